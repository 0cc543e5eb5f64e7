"""What programs may ask for, checked before anybody is asked: a slip is an error here, and at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeGuard, TypeVar

from tensor_pool.errors import ChannelError, ConfigError
from tensor_pool.pool.fallback_uri import check_fallback_uri
from tensor_pool.pool.pacing import MAX_RATE_HZ, MIN_RATE_HZ

if TYPE_CHECKING:
    from tensor_pool.pool.consumer import Consumer

__all__ = [
    "check_choice",
    "check_consumers",
    "check_count",
    "check_fallback",
    "check_flag",
    "check_metadata",
    "check_name",
    "check_pools",
    "check_positive",
    "check_rate",
    "check_seconds",
    "check_shape",
    "check_start",
    "check_stream",
    "check_tags",
]

_MAX_NAME_BYTES: Final = 255
_MAX_DIMS: Final = 8
_MAX_DIM: Final = 2**31 - 1
_MOST_POOLS: Final = 64
_MAX_SEQ: Final = 2**63 - 1
_LONGEST_S: Final = 1e9
"""Whoever waits for longer waits for ever; larger integers may not even have a float."""

ChoiceT = TypeVar("ChoiceT", bound=str)


def check_stream(stream: object) -> dict[str, Any]:
    """The name or the id of a stream, as a wish has it.

    Example:
        >>> check_stream("camera-1"), check_stream(10000)
        ({'name': 'camera-1'}, {'stream_id': 10000})
    """
    if isinstance(stream, str):
        return {"name": _stream_name(stream)}
    if _is_whole(stream) and 0 < int(stream) < 2**32 - 1:
        return {"stream_id": int(stream)}
    raise ConfigError(f"{stream!r:.80} can't be a stream", hint="a name, or an id from 1 to 4294967294")


def check_name(name: object, *, stream: object) -> dict[str, str]:
    """What a stream that is given by its id is to be called, as a wish has it; empty for no name.

    Example:
        >>> check_name("camera-1", stream=10000), check_name("", stream=10000)
        ({'name': 'camera-1'}, {})
    """
    if not isinstance(name, str):
        raise ConfigError(f"name={name!r}", hint="a text, such as 'camera-1'")
    if not name or name == stream:
        return {}
    if isinstance(stream, str):
        raise ConfigError(
            f"the stream has two names, {stream!r} and name={name!r}",
            hint="name= is for streams that are given by their id",
        )
    return {"name": _stream_name(name)}


def _stream_name(name: str) -> str:
    if not name or not name.isascii() or not name.isprintable() or len(name) > _MAX_NAME_BYTES:
        raise ConfigError(
            f"{name!r:.80} can't be the name of a stream",
            hint=f"use 1 to {_MAX_NAME_BYTES} printable ASCII characters",
        )
    return name


def check_metadata(metadata: object) -> dict[str, Any]:
    """What consumers should know of a stream: keys with values, or None for nothing.

    Example:
        >>> check_metadata({"exposure_ms": 12.5}), check_metadata(None)
        ({'exposure_ms': 12.5}, {})
    """
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping):
        return dict(metadata)
    raise ConfigError(
        f"metadata={metadata!r:.80}", hint="a dict of keys with their values, such as {'exposure_ms': 12.5}"
    )


def check_tags(tags: object) -> list[str]:
    """Several tags, in anything that can be gone through.

    Example:
        >>> check_tags(("lab", "north"))
        ['lab', 'north']
    """
    found = list(tags) if isinstance(tags, Iterable) else [None]
    if all(isinstance(tag, str) and tag.isascii() for tag in found):
        return [str(tag) for tag in found]
    raise ConfigError(f"tag={tags!r:.80}", hint="a text of ASCII characters, or a list of such")


def check_fallback(uri: object) -> str:
    """Where bridge chunks are; empty for nowhere.

    Example:
        >>> check_fallback("aeron:udp?endpoint=127.0.0.1:20121")
        'aeron:udp?endpoint=127.0.0.1:20121'
    """
    if not isinstance(uri, str):
        raise ConfigError(f"fallback_uri={uri!r:.80}", hint="a text such as 'aeron:udp?endpoint=HOST:PORT'")
    try:
        check_fallback_uri(uri)
    except ChannelError as e:
        raise ConfigError(f"fallback_uri: {e.message}", hint=e.hint) from None
    return uri


def check_consumers(consumers: object) -> list[Consumer]:
    """Several consumers, in anything that can be gone through.

    Example:
        >>> check_consumers([])
        []
    """
    from tensor_pool.pool.consumer import Consumer  # noqa: PLC0415 - a heavy one, for a name

    hint = "give what Pool.consumer returned, in a list: wait([first, second], 1.0)"
    # A consumer can be gone through too: frame by frame, and without end.
    if not isinstance(consumers, Iterable) or isinstance(consumers, Consumer | str | bytes):
        raise ConfigError(f"{consumers!r:.80} is no list of consumers", hint=hint)
    found = []
    for consumer in consumers:
        if not isinstance(consumer, Consumer):
            raise ConfigError(f"{consumer!r:.80} is no consumer", hint=hint)
        found.append(consumer)
    return found


def check_flag(what: str, value: object) -> bool:
    """True or False; other values are mostly a slip, however true they are.

    Example:
        >>> check_flag("progress", True)
        True
    """
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{what}={value!r:.80}", hint="True or False")


def check_choice(what: str, value: object, choices: Sequence[ChoiceT]) -> ChoiceT:
    """One of a few words.

    Example:
        >>> check_choice("order", "C", ["C", "F"])
        'C'
    """
    for choice in choices:
        if value == choice:
            return choice
    raise ConfigError(f"{what}={value!r}", hint=f"one of {', '.join(map(repr, choices))}")


def check_shape(shape: object) -> tuple[int, ...]:
    """The shape of a frame; one number is one dimension.

    Example:
        >>> check_shape([480, 640]), check_shape(None)
        ((480, 640), ())
    """
    if shape is None:
        return ()
    dims: tuple[object, ...] = (shape,) if _is_whole(shape) else _several(shape)
    if not 1 <= len(dims) <= _MAX_DIMS:
        raise ConfigError(f"shape={shape!r:.80}", hint=f"1 to {_MAX_DIMS} whole numbers, such as (480, 640)")
    found = [int(dim) for dim in dims if _is_whole(dim)]
    if len(found) < len(dims) or not all(0 <= dim <= _MAX_DIM for dim in found):
        raise ConfigError(f"shape={shape!r:.80}", hint=f"whole numbers from 0 to {_MAX_DIM}")
    return tuple(found)


def check_count(what: str, value: object, *, least: int, most: int) -> int | None:
    """A whole number, or None when nobody asks.

    Example:
        >>> check_count("slots", 8, least=1, most=1024)
        8
    """
    if value is None:
        return None
    if _is_whole(value) and least <= int(value) <= most:
        return int(value)
    raise ConfigError(f"{what}={value!r:.80}", hint=f"a whole number from {least} to {most}")


def check_pools(pools: object, *, most_bytes: int) -> tuple[int, ...]:
    """Sizes of slots, at least one; empty when left out.

    Example:
        >>> check_pools([64, 4096], most_bytes=2**31), check_pools(None, most_bytes=2**31)
        ((64, 4096), ())
    """
    if pools is None:
        return ()
    if not isinstance(pools, tuple | list) or not 1 <= len(pools) <= _MOST_POOLS:
        raise ConfigError(f"pools={pools!r:.80}", hint=f"1 to {_MOST_POOLS} slot sizes in bytes, in a list")
    return tuple(check_count("pools", stride, least=64, most=most_bytes) or 0 for stride in pools)


def check_positive(what: str, value: object, *, most: float = 1e9) -> float | None:
    """A number above 0, or None when nobody asks.

    Example:
        >>> check_positive("rate_hz", 100)
        100.0
    """
    if value is None:
        return None
    if _is_real(value) and 0 < value <= most:
        return float(value)  # NaN is not above 0
    raise ConfigError(f"{what}={value!r:.80}", hint=f"a number above 0, up to {most:,.0f}")


def check_rate(what: str, value: object) -> float:
    """Frames a second; 0 for no limit.

    Example:
        >>> check_rate("max_rate_hz", 2.5)
        2.5
    """
    if _is_real(value) and (value == 0 or MIN_RATE_HZ <= value <= MAX_RATE_HZ):
        return float(value)  # NaN is neither
    raise ConfigError(f"{what}={value!r:.80}", hint="frames a second, such as 10 or 0.5; 0 for all of them")


def check_seconds(what: str, value: object) -> float:
    """How long to wait: a number of seconds, 0 for no time at all.

    Example:
        >>> check_seconds("timeout", 1)
        1.0
    """
    if _is_real(value) and value >= 0:  # NaN is not above 0, infinity is for ever
        return float(value) if value <= _LONGEST_S else math.inf
    raise ConfigError(f"{what}={value!r:.80}", hint="seconds, such as 1.0; 0 does not wait")


def check_start(start: object) -> str | int:
    """Where a consumer begins.

    Example:
        >>> check_start("latest"), check_start(42)
        ('latest', 42)
    """
    if isinstance(start, str) and start in ("latest", "oldest"):
        return start
    if _is_whole(start) and 0 <= int(start) <= _MAX_SEQ:
        return int(start)
    raise ConfigError(f"start={start!r:.80}", hint="'latest', 'oldest', or a sequence number")


def _is_whole(value: object) -> TypeGuard[SupportsIndex]:
    """Whether it counts something: Python's and NumPy's integers, but no truth value and no array."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and not hasattr(value, "__len__")


def _is_real(value: object) -> TypeGuard[float]:
    """Whether it measures something: Python's and NumPy's numbers, but no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _several(values: object) -> tuple[object, ...]:
    """What is in a tuple, a list, a range or an array; nothing where it is none of them."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    return tuple(listed) if isinstance(listed, Sequence) and not isinstance(listed, str | bytes) else ()

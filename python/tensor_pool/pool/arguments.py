"""What programs may ask for, checked before anybody is asked: a slip is an error here, and at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeGuard, TypeVar

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_choice", "check_count", "check_positive", "check_shape", "check_start", "check_stream"]

_MAX_NAME_BYTES: Final = 255
_MAX_DIMS: Final = 8
_MAX_DIM: Final = 2**31 - 1
_MAX_SEQ: Final = 2**63 - 1

ChoiceT = TypeVar("ChoiceT", bound=str)


def check_stream(stream: object) -> dict[str, Any]:
    """The name or the id of a stream, as a wish has it.

    Example:
        >>> check_stream("camera-1"), check_stream(10000)
        ({'name': 'camera-1'}, {'stream_id': 10000})
    """
    if isinstance(stream, str):
        if not stream or not stream.isascii() or not stream.isprintable() or len(stream) > _MAX_NAME_BYTES:
            raise ConfigError(
                f"{stream!r} can't be the name of a stream",
                hint=f"use 1 to {_MAX_NAME_BYTES} printable ASCII characters",
            )
        return {"name": stream}
    if _is_whole(stream) and 0 < int(stream) < 2**32 - 1:
        return {"stream_id": int(stream)}
    raise ConfigError(f"{stream!r} can't be a stream", hint="a name, or an id from 1 to 4294967294")


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
    dims = (shape,) if _is_whole(shape) else tuple(shape) if isinstance(shape, tuple | list) else None
    if dims is None or not dims or len(dims) > _MAX_DIMS:
        raise ConfigError(f"shape={shape!r}", hint=f"1 to {_MAX_DIMS} whole numbers, such as (480, 640)")
    if not all(_is_whole(dim) and 0 <= int(dim) <= _MAX_DIM for dim in dims):
        raise ConfigError(f"shape={shape!r}", hint=f"whole numbers from 0 to {_MAX_DIM}")
    return tuple(int(dim) for dim in dims)


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
    raise ConfigError(f"{what}={value!r}", hint=f"a whole number from {least} to {most}")


def check_positive(what: str, value: object, *, most: float = 1e9) -> float | None:
    """A number above 0, or None when nobody asks.

    Example:
        >>> check_positive("rate_hz", 100)
        100.0
    """
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most:
        return float(value)  # NaN is not above 0
    raise ConfigError(f"{what}={value!r}", hint=f"a number above 0, up to {most:g}")


def check_start(start: object) -> str | int:
    """Where a consumer begins.

    Example:
        >>> check_start("latest"), check_start(42)
        ('latest', 42)
    """
    if start in ("latest", "oldest"):
        return str(start)
    if _is_whole(start) and 0 <= int(start) <= _MAX_SEQ:
        return int(start)
    raise ConfigError(f"start={start!r}", hint="'latest', 'oldest', or a sequence number")


def _is_whole(value: object) -> TypeGuard[SupportsIndex]:
    """Whether it counts something: Python's and NumPy's integers, but no truth value."""
    return hasattr(value, "__index__") and not isinstance(value, bool)

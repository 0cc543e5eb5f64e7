"""Which split a frame belongs to: by a hash of its name and number, or by its time.

By hash, a frame's split depends on nothing but the frame and the seed: more data, other tasks or another
machine do not move it. By time, everything up to a moment is one split, so that nothing of the future is
trained on.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["By", "Splits", "hash_splits", "is_by_fractions", "time_splits", "time_us"]

By = Literal["hash", "time"]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_WHOLE: Final = 1 << 64
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Splits(msgspec.Struct, frozen=True, kw_only=True):
    """Names of splits, and where each of them ends."""

    by: By
    names: tuple[str, ...]
    ends: tuple[int, ...]
    """Of all but the last: hashes below it, or times in microseconds up to it."""
    seed: int = 0

    def of_frame(self, stream: str, epoch: int, seq: int, time_us: int | None = None) -> str:
        """The split of a frame.

        Raises:
            ConfigError: They go by time, and it has none.

        Example:
            >>> hash_splits({"train": 1.0}).of_frame("camera-1", 1, 5)
            'train'
            >>> time_splits({"train": "2026-11-15T12:00:00Z", "val": None}).of_frame("camera-1", 1, 5, 0)
            'train'
        """
        if self.by == "hash":
            key = f"{self.seed}\0{stream}\0{epoch}\0{seq}".encode()
            place = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
            inside = (place < end for end in self.ends)
        elif time_us is None:
            raise ConfigError(
                f"frame {seq} of {stream} has no time", hint='by="hash" needs none; or filter such frames out'
            )
        else:
            inside = (time_us <= end for end in self.ends)
        return next((name for name, is_in in zip(self.names, inside, strict=False) if is_in), self.names[-1])


def hash_splits(splits: Mapping[str, float], *, seed: int = 0) -> Splits:
    """Splits by fractions, the same for a frame forever.

    Args:
        splits: Fractions by name; together they are 1.
        seed: Another one gives other splits.

    Raises:
        ConfigError: A name can't be one of a directory, or they are not 1 together.

    Example:
        >>> splits = hash_splits({"train": 0.8, "val": 0.2})
        >>> sum(splits.of_frame("camera-1", 1, seq) == "val" for seq in range(1000))
        202
    """
    edges = _edges(splits)
    ends = tuple(min(round(edge * _WHOLE), _WHOLE - 1) for edge in edges)
    return Splits(by="hash", names=tuple(splits), ends=ends, seed=seed)


def time_splits(
    splits: Mapping[str, float | str | dt.datetime | None], quantiles: Sequence[int] | None = None
) -> Splits:
    """Splits by time.

    Args:
        splits: Moments up to which each lasts, the last one None; or fractions of all frames.
        quantiles: For fractions: the times in microseconds up to which those fractions of the frames lie.

    Raises:
        ConfigError: They are neither, or not in order.

    Example:
        >>> time_splits({"train": 0.8, "val": 0.2}, quantiles=[1_000]).of_frame("camera-1", 1, 5, 1_001)
        'val'
    """
    if is_by_fractions(splits):
        edges = _edges(splits)  # type: ignore[arg-type] # all are numbers
        if quantiles is None or len(quantiles) != len(edges):
            raise ConfigError(
                "fractions of a stream that goes on are not known",
                hint='give times: splits={"train": "2026-11-15T12:00:00Z", "val": None}, or by="hash"',
            )
        return Splits(by="time", names=tuple(splits), ends=tuple(quantiles))
    _check_names(splits)
    *moments, last = splits.values()
    if last is not None or None in moments:
        raise ConfigError(f"splits={splits!r}", hint="the last one, and no other, lasts forever: None")
    ends = tuple(time_us(moment) for moment in moments)
    if list(ends) != sorted(set(ends)):
        raise ConfigError(f"splits={splits!r}", hint="times in order, each later than the one before")
    return Splits(by="time", names=tuple(splits), ends=ends)


def is_by_fractions(splits: Mapping[str, object]) -> bool:
    """Whether splits are given as numbers and not as moments.

    Example:
        >>> is_by_fractions({"train": 0.8, "val": 0.2})
        True
    """
    return all(isinstance(each, int | float) for each in splits.values())


def fractions_to_ask(splits: Mapping[str, float]) -> list[float]:
    """Up to which fraction each but the last goes.

    Example:
        >>> fractions_to_ask({"train": 0.75, "val": 0.125, "test": 0.125})
        [0.75, 0.875]
    """
    return _edges(splits)


def time_us(moment: object) -> int:
    """A moment in microseconds; without a time zone it is UTC.

    Raises:
        ConfigError: It is none.

    Example:
        >>> time_us("1970-01-01T00:00:01Z")
        1000000
    """
    try:
        found = moment if isinstance(moment, dt.datetime) else dt.datetime.fromisoformat(str(moment))
    except ValueError:
        raise ConfigError(f"{moment!r} is no time", hint="such as 2026-11-15T12:00:00Z") from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
    return (found - _EPOCH) // dt.timedelta(microseconds=1)


def _edges(splits: Mapping[str, float]) -> list[float]:
    _check_names(splits)
    sizes = list(splits.values())
    wrong = [size for size in sizes if not isinstance(size, int | float) or not 0 <= size <= 1]
    if wrong or abs(sum(sizes) - 1) > 1e-9:
        raise ConfigError(f"splits={dict(splits)!r}", hint='fractions that are 1 together: {"train": 1.0}')
    edges, total = [], 0.0
    for size in sizes[:-1]:
        total += size
        edges.append(min(total, 1.0))
    return edges


def _check_names(splits: Mapping[str, object]) -> None:
    wrong = [name for name in splits if not isinstance(name, str) or not _NAME.fullmatch(name)]
    if wrong or not splits:
        raise ConfigError(
            f"splits are called {wrong}" if wrong else "there are no splits",
            hint="their names are those of directories: letters, digits, and - _ . after the first",
        )

"""From what a person types to a stream: its name, or its id."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tensor_pool.errors import NoStreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["find_stream", "near_names"]

_NEAR: Final = 0.5
_MOST_NAMES: Final = 3
_MOST_DIGITS: Final = 10


class _Named(Protocol):
    @property
    def stream_id(self) -> int: ...
    @property
    def name(self) -> str | None: ...


StreamT = TypeVar("StreamT", bound=_Named)


def find_stream(streams: Iterable[StreamT], wanted: str, *, where: str | None = None) -> StreamT:
    """The stream of that name, or else of that id.

    Args:
        streams: Those that there are.
        wanted: What a person typed.
        where: The place that was asked, which an error names: often it is the wrong one.

    Raises:
        NoStreamError: There is none; the hint lists names that are nearly right.

    Example:
        >>> from collections import namedtuple
        >>> Stream = namedtuple("Stream", "stream_id name")
        >>> find_stream([Stream(10000, "camera-1"), Stream(10001, "camera-2")], "camera-2").stream_id
        10001
        >>> find_stream([Stream(10000, "camera-1")], "camera1")
        Traceback (most recent call last):
        tensor_pool.errors.NoStreamError: there is no stream 'camera1'
          try: did you mean camera-1? `tpool streams` lists what is there
    """
    known = list(streams)
    by_name = {stream.name: stream for stream in known if stream.name}
    if wanted in by_name:  # a name may look like a number, and what a person gave it counts more
        return by_name[wanted]
    if wanted.isascii() and wanted.isdigit() and len(wanted) <= _MOST_DIGITS:
        for stream in known:
            if stream.stream_id == int(wanted):
                return stream
    hint = _hint(wanted, sorted(filter(None, by_name)))
    raise NoStreamError(f"there is no stream {wanted!r}", where=where, hint=hint)


def near_names(wanted: str, names: Sequence[str]) -> list[str]:
    """Names that somebody may have meant, the likeliest first.

    Example:
        >>> near_names("cam", ["camera-1", "lidar"])
        ['camera-1']
    """
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), lower, n=_MOST_NAMES, cutoff=_NEAR)
    containing = [name for name in lower if wanted and wanted.lower() in name]
    return [lower[name] for name in dict.fromkeys((*near, *containing))][:_MOST_NAMES]


def _hint(wanted: str, names: list[str]) -> str:
    near = near_names(wanted, names)
    if near:
        return f"did you mean {' or '.join(near)}? `tpool streams` lists what is there"
    return "`tpool streams` lists what is there" if names else "nobody has named a stream here yet"

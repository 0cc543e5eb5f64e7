"""Messages that say the same again and again, but for their time, are read and written once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from tensor_pool.wire.framing import HEADER_BYTES, MessageHeader, message_layouts

if TYPE_CHECKING:
    from tensor_pool.wire.bind import Message

__all__ = ["Repeats", "with_time"]

_ABOUT_BYTES: Final = HEADER_BYTES + 4
"""Header and stream id: what a message is, and what it is about."""
_TIMES: Final = frozenset({"announceTimestampNs", "timestampNs"})
_LARGEST_BYTES: Final = 2_048
"""Longer messages are rare, and not kept."""


class Repeats:
    """What was said last about each stream, and how it read.

    Announces and metadata come every second and rarely change but for their time. Comparing bytes takes a
    fraction of the time that reading them takes.

    Args:
        message_types: Messages whose first field is the stream's id.
        most: How many to keep; the oldest goes first.

    Example:
        >>> from tensor_pool.wire import encode
        >>> from tensor_pool.wire.messages import DataSourceMeta
        >>> repeats = Repeats(DataSourceMeta, most=100)
        >>> first, second = (DataSourceMeta(10000, 1, timestamp_ns=time, attributes=()) for time in (1, 2))
        >>> repeats.keep(encode(first), first)
        >>> repeats.recall(encode(second)) is first
        True
    """

    def __init__(self, *message_types: type[Message], most: int) -> None:
        self._most = most
        self._times = dict(_where_time_stands(message_type) for message_type in message_types)
        self._kept: dict[bytes, tuple[bytes, bytes, Message]] = {}

    def recall(self, data: bytes) -> Message | None:
        """The message that said the same, if it was the last about its stream; with that one's time."""
        kept = self._kept.get(data[:_ABOUT_BYTES])
        if kept is None:
            return None
        before, behind, message = kept
        start, end = self._times[data[:HEADER_BYTES]]
        return message if data[:start] == before and data[end:] == behind else None

    def keep(self, data: bytes, message: Message) -> None:
        """Keeps what was read from some bytes, if it is one of those that repeat."""
        time = self._times.get(data[:HEADER_BYTES])
        if time is None or len(data) > _LARGEST_BYTES:
            return
        about = data[:_ABOUT_BYTES]
        if about not in self._kept and len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        start, end = time
        self._kept[about] = (data[:start], data[end:], message)


def with_time(data: bytes, message_type: type[Message], time_ns: int) -> bytes:
    """The bytes of a message, with another time.

    Example:
        >>> from tensor_pool.wire import decode, encode
        >>> from tensor_pool.wire.messages import DataSourceMeta
        >>> data = encode(DataSourceMeta(10000, 1, timestamp_ns=1, attributes=()))
        >>> decode(with_time(data, DataSourceMeta, 2)).timestamp_ns
        2
    """
    _, (start, end) = _where_time_stands(message_type)
    return b"".join((data[:start], time_ns.to_bytes(end - start, "little"), data[end:]))


@functools.cache
def _where_time_stands(message_type: type[Message]) -> tuple[bytes, tuple[int, int]]:
    """The header of a message, and where in it its time begins and ends."""
    layout = message_layouts(message_type)[0]
    header = MessageHeader(layout.block_length, layout.template_id, layout.schema_id, layout.version)
    times = [field for field in layout.fields if field.name in _TIMES]
    start = HEADER_BYTES + times[0].offset if times else 0
    return header.to_bytes(), (start, start + (times[0].size if times else 0))

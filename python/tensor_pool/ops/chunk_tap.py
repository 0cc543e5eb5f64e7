"""Chunks of bridged frames as a tap shows them: what each is, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from tensor_pool import _native
from tensor_pool.bridging.udp import for_chunks_in
from tensor_pool.channels import Channel
from tensor_pool.wire.messages import NewerBridgeFrameChunk
from tensor_pool.wire.shm import SLOT_BYTES

if TYPE_CHECKING:
    from tensor_pool.bridging.config import BridgeSection
    from tensor_pool.wire.messages import BridgeFrameChunk

    AnyChunk = BridgeFrameChunk | NewerBridgeFrameChunk

__all__ = ["BRIDGE", "ChunkReader", "chunk_channel", "chunk_places", "what_is_wrong"]

BRIDGE: Final = "bridge"
"""The source that chunks are shown under."""
_MOST_OPEN: Final = 64
"""Frames whose checksum is being counted; what is older was lost on the way."""


def chunk_channel(channel: str, *, spy: bool = False) -> str:
    """The channel that chunks can be listened to on, beside a bridge that listens there too.

    Args:
        channel: Where chunks go, as it was configured.
        spy: Whether this host sends them: then it has no network to listen to but its own publication.

    Raises:
        ChannelError: Not a channel.

    Example:
        >>> chunk_channel("aeron:udp?endpoint=10.0.0.2:20121", spy=True)
        'aeron-spy:aeron:udp?endpoint=10.0.0.2:20121'
    """
    parsed = Channel.parse(channel)
    if spy or parsed.spy:
        return str(dataclasses.replace(parsed, spy=True))
    # The same buffers as the bridge's own: Aeron refuses two that differ.
    return for_chunks_in(channel) if parsed.media == "udp" else channel


def chunk_places(section: BridgeSection) -> dict[tuple[str, int], str]:
    """Where the chunks of all mappings can be listened to on this host, as `Tap` takes it.

    Example:
        >>> from tensor_pool.bridging.config import BridgeMapping, BridgeSection
        >>> here, there = (f"aeron:udp?endpoint=10.0.0.{host}:20121" for host in (1, 2))
        >>> mappings = (
        ...     BridgeMapping(10_000, 50_000, role="sender", payload_channel=there),
        ...     BridgeMapping(10_001, 50_001, role="receiver", payload_channel=here),
        ... )
        >>> section = BridgeSection("lab", control_channel=here, payload_channel=here, mappings=mappings)
        >>> [channel.partition("endpoint=")[0] for channel, _ in chunk_places(section)]
        ['aeron-spy:aeron:udp?', 'aeron:udp?']
    """
    found: dict[tuple[str, int], str] = {}
    for route in section.resolved_mappings:
        channel, stream_id = route.payload
        found[chunk_channel(channel, spy=not route.receives), stream_id] = BRIDGE
    return found


def what_is_wrong(chunk: AnyChunk) -> str | None:
    """Why no receiver would take it; None when it is fine by itself."""
    if not chunk.chunk_index < chunk.chunk_count:
        return f"chunk {chunk.chunk_index} of {chunk.chunk_count}"
    if len(chunk.payload_bytes) != chunk.chunk_length:
        return f"it carries {len(chunk.payload_bytes)} bytes and says {chunk.chunk_length}"
    if chunk.chunk_offset + chunk.chunk_length > chunk.payload_length:
        end = chunk.chunk_offset + chunk.chunk_length
        return f"it ends at {end}, behind the payload of {chunk.payload_length} bytes"
    return _what_is_wrong_with_its_header(chunk)


def _what_is_wrong_with_its_header(chunk: AnyChunk) -> str | None:
    """It travels with the first chunk, which begins the payload, and only there."""
    is_first = chunk.chunk_index == 0
    if chunk.header_included != is_first:
        return f"chunk {chunk.chunk_index} says that it has {'a' if chunk.header_included else 'no'} header"
    if len(chunk.header_bytes) != (SLOT_BYTES if is_first else 0):
        wanted = f"{SLOT_BYTES} bytes" if is_first else "none"
        return (
            f"chunk {chunk.chunk_index} has a header of {len(chunk.header_bytes)} bytes instead of {wanted}"
        )
    if is_first and chunk.chunk_offset:
        return f"the first chunk begins at {chunk.chunk_offset}"
    return None


class ChunkReader:
    """Reads chunks one after the other, and knows at the last one of a frame whether its checksum holds.

    Example:
        >>> from tensor_pool.wire.messages import BridgeFrameChunk
        >>> chunk = BridgeFrameChunk(10_000, 1, 7, 1, 2, 64, 4, 68, False, b"", b"data")
        >>> fields, wrong = ChunkReader().read(chunk, session_id=1)
        >>> fields["seq"], fields["dialect"], fields["crc_ok"], wrong
        (7, 'ours', None, None)
    """

    def __init__(self) -> None:
        self._sums: OrderedDict[tuple[int, int, int, int], tuple[int, int]] = OrderedDict()
        """Bytes that were seen of a frame from its start on, and their checksum."""

    def read(self, chunk: AnyChunk, *, session_id: int) -> tuple[dict[str, Any], str | None]:
        """What it says, without the bytes of the payload, and what is wrong with it.

        Args:
            chunk: A chunk.
            session_id: Of its publication, which tells senders apart.
        """
        wrong = what_is_wrong(chunk)
        newer = isinstance(chunk, NewerBridgeFrameChunk)
        crc_ok = None if wrong is not None else self._checksum_holds(chunk, session_id)
        fields: dict[str, Any] = {
            "stream_id": chunk.stream_id,
            "epoch": chunk.epoch,
            "seq": chunk.seq,
            "chunk_index": chunk.chunk_index,
            "chunk_count": chunk.chunk_count,
            "chunk_offset": chunk.chunk_offset,
            "chunk_length": chunk.chunk_length,
            "payload_length": chunk.payload_length,
            "header_included": chunk.header_included,
            "dialect": "newer" if newer else "ours",
            "crc_ok": crc_ok,
            "trace_id": chunk.trace_id if isinstance(chunk, NewerBridgeFrameChunk) else None,
        }
        if crc_ok is False:
            wrong = "the payload does not match its checksum"
        return fields, wrong

    def _checksum_holds(self, chunk: AnyChunk, session_id: int) -> bool | None:
        """Known at the last chunk of a frame that was seen from its start on; else None."""
        if not isinstance(chunk, NewerBridgeFrameChunk) or chunk.payload_crc32c == 0:
            return None
        frame = (session_id, chunk.stream_id, chunk.epoch, chunk.seq)
        seen, crc = self._sums.get(frame, (0, 0))
        if chunk.chunk_offset != seen:
            return None  # a duplicate, or one before it was lost here
        self._sums.pop(frame, None)
        seen, crc = seen + chunk.chunk_length, _native.crc32c(chunk.payload_bytes, crc)
        if seen == chunk.payload_length:
            return crc == chunk.payload_crc32c
        self._sums[frame] = (seen, crc)
        if len(self._sums) > _MOST_OPEN:
            self._sums.popitem(last=False)
        return None

"""Schema 902: frames in pieces, from host to host.

The bridge itself encodes and decodes chunks in native code; these structs are for tools and tests.
"""

from tensor_pool.wire.bind import Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.schema import load_schema

__all__ = ["BridgeFrameChunk", "NewerBridgeFrameChunk"]


@message(load_schema("bridge"))
class BridgeFrameChunk(Message, frozen=True):
    """A slice of a payload; the first one also carries the 256-byte slot."""

    stream_id: int
    epoch: int
    seq: int
    chunk_index: int
    chunk_count: int
    chunk_offset: int
    chunk_length: int
    payload_length: int
    header_included: bool
    header_bytes: bytes = b""
    payload_bytes: bytes = b""


@message(load_schema("bridge_newer"), name="BridgeFrameChunk")
class NewerBridgeFrameChunk(Message, frozen=True):
    """The chunk as newer peers send it: with the trace id and a checksum of the payload."""

    stream_id: int
    epoch: int
    seq: int
    trace_id: int | None
    chunk_index: int
    chunk_count: int
    chunk_offset: int
    chunk_length: int
    payload_length: int
    payload_crc32c: int
    header_included: bool
    header_bytes: bytes = b""
    payload_bytes: bytes = b""

"""Values that a schema does not allow: clear errors on encode, and the same limits on decode."""

from __future__ import annotations

import msgspec
import pytest

from tensor_pool.errors import MalformedMessageError, TensorPoolError
from tensor_pool.wire import decode, encode
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    ClockDomain,
    DataSourceAnnounce,
    DataSourceMeta,
    DiscoveryResponse,
    DiscoveryResult,
    DiscoveryStatus,
    FrameDescriptor,
    GetDriverStatus,
    MetaAttribute,
    MetaBlobChunk,
    NewerBridgeFrameChunk,
    PayloadPool,
    ResolveStream,
    RevokeLease,
    ShmPoolAnnounce,
    TraceLinkSet,
    TraceParent,
)

HEADER = 8
POOL = PayloadPool(1, 8, 64, "uri")
ANNOUNCE = ShmPoolAnnounce(1, 2, 3, 4, ClockDomain.MONOTONIC, 1, 8, 256, (POOL,), "uri")
CHUNK = BridgeFrameChunk(1, 2, 3, 0, 1, 0, 0, 0, False)
NEWER_CHUNK = NewerBridgeFrameChunk(1, 2, 3, None, 0, 1, 0, 0, 0, 0, False)
RESULT = DiscoveryResult(1, 2, 3, 4, 5, 6, 7, None, 8)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (FrameDescriptor(-1, 0, 0), "FrameDescriptor.stream_id: -1 is not a uint32"),
        (FrameDescriptor(1 << 32, 0, 0), "FrameDescriptor.stream_id: 4294967296 is not a uint32"),
        (FrameDescriptor(0, 1 << 64, 0), "FrameDescriptor.epoch: 18446744073709551616 is not a uint64"),
        (FrameDescriptor(0, "0", 0), "FrameDescriptor.epoch: '0' is not a uint64"),
        (FrameDescriptor(0, 1.0, 0), "FrameDescriptor.epoch: 1.0 is not a uint64"),
        (FrameDescriptor(None, 0, 0), "FrameDescriptor.stream_id: None is not a uint32"),
        (FrameDescriptor(0, 0, 0, timestamp_ns=-1), "FrameDescriptor.timestamp_ns: -1 is not a uint64"),
        (GetDriverStatus(1 << 63, 1), "GetDriverStatus.correlation_id: 9223372036854775808 is not a int64"),
        (
            msgspec.structs.replace(ANNOUNCE, announce_clock_domain=None),
            "announce_clock_domain: None is not a ClockDomain",
        ),
        (
            msgspec.structs.replace(ANNOUNCE, announce_clock_domain=[]),
            r"announce_clock_domain: \[\] is not a ClockDomain",
        ),
        (
            msgspec.structs.replace(ANNOUNCE, payload_pools=(POOL, PayloadPool(1, -8, 64, "uri"))),
            r"ShmPoolAnnounce.payload_pools\[1\].pool_nslots: -8 is not a uint32",
        ),
        (
            msgspec.structs.replace(ANNOUNCE, payload_pools=(POOL, "pool")),
            r"payload_pools\[1\]: 'pool' is not a PayloadPool",
        ),
        (
            msgspec.structs.replace(ANNOUNCE, payload_pools=(TraceParent(1),)),
            r"payload_pools\[0\]: TraceParent\(trace_id=1\) is not a PayloadPool",
        ),
        (
            msgspec.structs.replace(ANNOUNCE, payload_pools=7),
            "payload_pools: 7 is not a tuple of PayloadPool",
        ),
        (
            msgspec.structs.replace(ANNOUNCE, header_region_uri=None),
            "header_region_uri: None is not US-ASCII",
        ),
        (
            msgspec.structs.replace(ANNOUNCE, header_region_uri=b"x"),
            "header_region_uri: b'x' is not US-ASCII",
        ),
        (DataSourceAnnounce(1, 2, 3, 4, "caméra"), "DataSourceAnnounce.name: 'caméra' is not US-ASCII text"),
        (DataSourceAnnounce(1, 2, 3, 4, "\ud800"), "DataSourceAnnounce.name: .* is not US-ASCII text"),
        (MetaBlobChunk(1, 2, 3, "text"), "MetaBlobChunk.bytes: 'text' is not bytes"),
        (MetaBlobChunk(1, 2, 3, 5), "MetaBlobChunk.bytes: 5 is not bytes"),
        (
            DataSourceMeta(1, 2, 3, (MetaAttribute("k", 1, b""),)),
            "attributes.format: 1 is not US-ASCII text",
        ),
        (TraceLinkSet(1, 2, 3, 4, (TraceParent(5),) * 65536), "parents: 65536 entries, but at most 65535"),
        (
            DiscoveryResponse(
                1, DiscoveryStatus.OK, (msgspec.structs.replace(RESULT, payload_pools=(POOL, POOL, None)),)
            ),
            r"DiscoveryResponse.results\[0\].payload_pools\[2\]: None is not a PayloadPool",
        ),
        (ResolveStream(1, 2, name="n" * 257), "ResolveStream.name: 257 bytes, but at most 256"),
        (RevokeLease(1, 2, 3, 4, reason="r" * 1025), "RevokeLease.reason: 1025 bytes, but at most 1024"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:40],
)
def test_encode_names_the_value(message, problem):
    with pytest.raises(MalformedMessageError, match=problem) as caught:
        encode(message)
    assert isinstance(caught.value, TensorPoolError | ValueError)


def test_long_values_are_shortened_in_errors():
    with pytest.raises(MalformedMessageError) as caught:
        encode(DataSourceAnnounce(1, 2, 3, 4, "é" * 100_000))
    assert len(str(caught.value)) < 300


def test_the_most_entries_fit():
    links = TraceLinkSet(1, 2, 3, 4, (TraceParent(5),) * 65535)
    assert decode(encode(links)) == links


@pytest.mark.parametrize(
    "value", [b"abc", bytearray(b"abc"), memoryview(b"abc")], ids=lambda v: type(v).__name__
)
def test_any_bytes_encode(value):
    assert encode(MetaBlobChunk(1, 2, 3, value)) == encode(MetaBlobChunk(1, 2, 3, b"abc"))


def test_lists_encode_like_tuples():
    assert encode(msgspec.structs.replace(ANNOUNCE, payload_pools=[POOL])) == encode(ANNOUNCE)


CHUNK_LIMITS = {"chunk_index": 65535, "chunk_count": 65535, "chunk_length": 65535, "payload_length": 1 << 30}


@pytest.mark.req("BRG-11-3")
@pytest.mark.parametrize(("field", "limit"), CHUNK_LIMITS.items())
@pytest.mark.parametrize("chunk", [CHUNK, NEWER_CHUNK], ids=["ours", "newer"])
def test_limits_of_chunk_fields(chunk, field, limit):
    at_limit = msgspec.structs.replace(chunk, **{field: limit})
    assert decode(encode(at_limit)) == at_limit
    above = msgspec.structs.replace(chunk, **{field: limit + 1})
    with pytest.raises(MalformedMessageError, match=f"{field}: {limit + 1} is not between 0 and {limit}"):
        encode(above)
    marked = encode(msgspec.structs.replace(chunk, **{field: 0x1234}))
    position = marked.index((0x1234).to_bytes(4, "little"))
    data = marked[:position] + (limit + 1).to_bytes(4, "little") + marked[position + 4 :]
    with pytest.raises(MalformedMessageError, match=f"{field}: {limit + 1} is not between"):
        decode(data)


@pytest.mark.req("BRG-11-2")
def test_header_bytes_of_a_chunk_are_at_most_256():
    chunk = msgspec.structs.replace(CHUNK, header_bytes=bytes(256))
    data = encode(chunk)
    assert decode(data) == chunk
    length = HEADER + 41
    assert data[length : length + 4] == (256).to_bytes(4, "little")
    longer = data[:length] + (257).to_bytes(4, "little") + bytes(257) + bytes(4)
    with pytest.raises(MalformedMessageError, match=r"257 bytes announced, .* 256 allowed"):
        decode(longer)
    with pytest.raises(MalformedMessageError, match="257 bytes, but at most 256"):
        encode(msgspec.structs.replace(CHUNK, header_bytes=bytes(257)))


@pytest.mark.req("WIRE-16-4", "WIRE-16-5")
@pytest.mark.parametrize("length", [5, 1 << 30, (1 << 30) + 1, 0xFFFFFFFF])
def test_lengths_beyond_the_buffer_or_the_maximum(length):
    for message, start in (
        (DataSourceAnnounce(1, 2, 3, 4, "name"), 20),
        (MetaBlobChunk(1, 2, 3, b"abcd"), 16),
    ):
        data = bytearray(encode(message))
        assert data[HEADER + start : HEADER + start + 4] == (4).to_bytes(4, "little")
        data[HEADER + start : HEADER + start + 4] = length.to_bytes(4, "little")
        with pytest.raises(MalformedMessageError):
            decode(data)


@pytest.mark.parametrize("byte", [0x80, 0xC3, 0xFF])
def test_text_that_is_not_ascii_is_refused(byte):
    data = encode(DataSourceAnnounce(1, 2, 3, 4, "name!"))
    with pytest.raises(MalformedMessageError, match=r"DataSourceAnnounce\.name: byte 4 is not US-ASCII"):
        decode(data.replace(b"!", bytes([byte])))


def test_control_characters_are_text():
    odd = DataSourceAnnounce(1, 2, 3, 4, "a\x00b\x7f\n")
    assert decode(encode(odd)) == odd

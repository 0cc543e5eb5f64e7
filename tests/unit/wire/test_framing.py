"""Which schemas, templates, versions and block lengths are decoded."""

from __future__ import annotations

import struct

import msgspec
import pytest

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire import MessageHeader, decode, encode, message_type, message_types, peek
from tensor_pool.wire.framing import find_template, message_layouts
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    ConsumerHello,
    DataSourceMeta,
    DiscoveryRequest,
    DiscoveryResponse,
    DiscoveryResult,
    DiscoveryStatus,
    DiscoveryTag,
    EventMessage,
    Format,
    FrameDescriptor,
    GetDriverStatus,
    LeaseRevokeReason,
    MetaAttribute,
    Mode,
    NewerBridgeFrameChunk,
    NewerShmAttachRequest,
    NewerShmAttachResponse,
    PayloadPool,
    ResponseCode,
    Role,
    SequenceMergeMapRequest,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmLeaseKeepalive,
    ShmLeaseRevoked,
    TraceLinkSet,
)

HEADER = 8
DESCRIPTOR = FrameDescriptor(stream_id=1, epoch=2, seq=3)


def with_header(data: bytes, **changes: int) -> bytes:
    header = msgspec.structs.replace(peek(data), **changes)
    return header.to_bytes() + data[HEADER:]


def longer_block(data: bytes, extra: bytes) -> bytes:
    """The same message from a peer whose block has more fields at its end."""
    block_length = peek(data).block_length
    end = HEADER + block_length
    return with_header(data[:end] + extra + data[end:], block_length=block_length + len(extra))


def test_peek_reads_the_header_only():
    assert peek(bytes.fromhex("0100 0200 0300 0400")) == MessageHeader(1, 2, 3, 4)
    assert peek(memoryview(b"\x01\x00\x02\x00\x03\x00\x04\x00 and more")) == MessageHeader(1, 2, 3, 4)


@pytest.mark.parametrize("size", range(8))
def test_no_room_for_a_header(size):
    with pytest.raises(MalformedMessageError, match=f"{size} bytes can't hold a message header"):
        decode(bytes(size))


def test_numbers_are_not_buffers():
    """`bytes(5)` would be five zeros; a message it is not."""
    with pytest.raises(TypeError):
        decode(5)


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview], ids=lambda view: view.__name__)
def test_any_buffer_decodes(view):
    assert decode(view(encode(DESCRIPTOR))) == DESCRIPTOR


def test_a_strided_view_decodes():
    data = encode(DESCRIPTOR)
    spread = bytearray(2 * len(data))
    spread[::2] = data
    assert decode(memoryview(spread)[::2]) == DESCRIPTOR


@pytest.mark.req("DSC-10-6", "DSC-4.2-3", "SVC-5-2")
def test_equal_template_ids_of_other_schemas_are_other_messages():
    """Template 1 is eight different messages (pitfall 8)."""
    first = {}
    for struct_type in message_types():
        for layout in message_layouts(struct_type):
            if layout.template_id == 1:
                first.setdefault(layout.schema_id, set()).add(layout.name)
    assert first == {
        900: {"ShmPoolAnnounce"},
        901: {"ShmAttachRequest"},
        902: {"BridgeFrameChunk"},
        903: {"SequenceMergeMapAnnounce"},
        904: {"TraceLinkSet"},
        905: {"EventMessage"},
        906: {"ResolveStream"},
        910: {"DiscoveryRequest"},
    }
    request = encode(DiscoveryRequest(1, 2, 3))
    with pytest.raises(MalformedMessageError):
        decode(with_header(request, schema_id=900))
    event = encode(EventMessage(1, 2, Format.NOTHING))
    with pytest.raises(MalformedMessageError):
        decode(with_header(event, schema_id=900))


@pytest.mark.parametrize(("schema_id", "template_id"), [(900, 14), (900, 50), (900, 51), (900, 52), (1, 1)])
def test_unknown_messages(schema_id, template_id):
    data = with_header(encode(DESCRIPTOR), schema_id=schema_id, template_id=template_id)
    assert find_template(peek(data)) is None
    with pytest.raises(MalformedMessageError, match=f"schema {schema_id} has no message {template_id}"):
        decode(data)


@pytest.mark.req("DSC-10-2", "DSC-10-3")
@pytest.mark.parametrize(
    "one",
    [
        ShmLeaseKeepalive(1, 2, 3, Role.CONSUMER, 4),
        BridgeFrameChunk(1, 2, 3, 0, 1, 0, 0, 0, False),
        SequenceMergeMapRequest(1, 2),
        TraceLinkSet(1, 2, 3, 4),
        EventMessage(1, 2, Format.NOTHING),
        GetDriverStatus(1, 2),
        DiscoveryResponse(1, DiscoveryStatus.OK),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("version", [0, 2, 99, 65535])
def test_other_versions_are_refused(one, version):
    """Decision B13."""
    with pytest.raises(MalformedMessageError, match=f"version {version} is not supported"):
        decode(with_header(encode(one), version=version))


def test_schema_900_may_grow():
    data = longer_block(encode(DESCRIPTOR), b"added later")
    assert decode(data) == DESCRIPTOR
    assert decode(with_header(data, version=2)) == DESCRIPTOR
    with pytest.raises(MalformedMessageError, match="version 0"):
        decode(with_header(data, version=0))


def test_a_longer_block_before_data_and_groups():
    hello = ConsumerHello(1, 2, True, False, Mode.STREAM, descriptor_channel="aeron:ipc")
    assert decode(longer_block(encode(hello), bytes(100))) == hello
    meta = DataSourceMeta(1, 2, 3, (MetaAttribute("k", "f", b"v"),))
    assert decode(longer_block(encode(meta), b"\xff")) == meta


def test_longer_entries_are_skipped_too():
    data = bytearray(encode(DataSourceMeta(1, 2, 3, (MetaAttribute("k", "f", b"v"),))))
    entry = HEADER + 16
    assert data[entry : entry + 4] == bytes.fromhex("0000 0100")
    grown = bytes(data[:entry]) + bytes.fromhex("0300 0100") + b"new" + bytes(data[entry + 4 :])
    assert decode(grown) == decode(data)


@pytest.mark.parametrize("missing", [1, 8, 40])
def test_shorter_blocks_are_refused(missing):
    data = encode(DESCRIPTOR)
    with pytest.raises(MalformedMessageError, match=f"a block of {40 - missing} bytes instead of 40"):
        decode(with_header(data[:-missing], block_length=40 - missing))


TWO_DIALECTS = [
    (ShmAttachRequest(1, 2, 3, Role.PRODUCER), 24, 27),
    (ShmAttachResponse(1, ResponseCode.OK), 51, 54),
    (BridgeFrameChunk(1, 2, 3, 0, 1, 0, 0, 0, False), 41, 53),
]


@pytest.mark.parametrize(("ours", "length", "newer"), TWO_DIALECTS, ids=lambda v: type(v).__name__)
def test_two_dialects_have_two_block_lengths_and_no_other(ours, length, newer):
    """Decision B10."""
    data = encode(ours)
    body = data[HEADER:] + bytes(200)
    assert peek(data).block_length == length
    for block_length in range(128):
        candidate = with_header(data[:HEADER] + body, block_length=block_length)
        if block_length not in (length, newer):
            with pytest.raises(MalformedMessageError, match=f"instead of {length} or {newer}"):
                decode(candidate)


def test_dialects_are_chosen_by_block_length():
    assert message_type("ShmAttachRequest") is ShmAttachRequest
    assert message_type("ShmAttachRequest", block_length=24) is ShmAttachRequest
    assert message_type("ShmAttachRequest", block_length=27) is NewerShmAttachRequest
    assert message_type("ShmAttachResponse", block_length=54) is NewerShmAttachResponse
    assert message_type("BridgeFrameChunk", block_length=53) is NewerBridgeFrameChunk
    assert message_type("BridgeFrameChunk", block_length=52) is None
    assert message_type("Nothing") is None
    template = find_template(peek(encode(ShmAttachRequest(1, 2, 3, Role.PRODUCER))))
    assert template.types() == (ShmAttachRequest, NewerShmAttachRequest)
    assert template.type_for(27) is NewerShmAttachRequest


def test_groups_of_a_template_with_dialects_are_exact_too():
    response = ShmAttachResponse(1, ResponseCode.OK, payload_pools=(PayloadPool(1, 2, 3, "u"),))
    data = bytearray(encode(response))
    group = HEADER + 51
    assert data[group : group + 4] == bytes.fromhex("0a00 0100")
    data[group] = 11
    data.insert(group + 14, 0)
    with pytest.raises(MalformedMessageError, match="payloadPools: a block of 11 bytes instead of 10"):
        decode(data)


@pytest.mark.req("SVC-5.1-1")
@pytest.mark.parametrize(("block_length", "accepted"), [(37, 0), (38, 1), (39, 0), (40, 1), (41, 1), (99, 1)])
def test_event_message_blocks(block_length, accepted):
    event = EventMessage(1, 2, Format.STRING, 3, 4, 5, "tag", "key", b"value")
    if block_length < 40:
        data = with_header(encode(event, block_length=38), block_length=block_length)
    else:
        data = longer_block(encode(event), bytes(block_length - 40))
    if accepted:
        assert decode(data) == event
    else:
        with pytest.raises(MalformedMessageError):
            decode(data)


@pytest.mark.req("DSC-10-1")
def test_discovery_does_not_care_about_layout_versions():
    result = DiscoveryResult(1, 2, 3, 2, 8, 256, 8, None, 1000)
    response = DiscoveryResponse(1, DiscoveryStatus.OK, (result,))
    assert decode(encode(response)).results[0].layout_version == 2


@pytest.mark.parametrize("extra", [b"\0", bytes(8), b"x" * 1000])
def test_bytes_behind_the_end_are_refused(extra):
    with pytest.raises(MalformedMessageError, match=f"{len(extra)} bytes behind its end"):
        decode(encode(DESCRIPTOR) + extra)


def test_a_discovery_request_may_lack_its_last_prefix():
    """Decision K9; nowhere else, and only the whole of it."""
    request = DiscoveryRequest(1, 2, 3, tags=(DiscoveryTag("a"),), response_channel="aeron:ipc")
    data = encode(request)
    assert decode(data[:-4]) == request
    for missing in (1, 2, 3, 5, 8):
        with pytest.raises(MalformedMessageError):
            decode(data[:-missing])
    revoked = encode(ShmLeaseRevoked(1, 2, 3, 4, Role.CONSUMER, LeaseRevokeReason.EXPIRED))
    with pytest.raises(MalformedMessageError):
        decode(revoked[:-4])


def test_a_nameless_request_whose_channel_is_missing_is_refused():
    data = encode(DiscoveryRequest(1, 2, 3))
    assert decode(data[:-4]) == decode(data)
    with pytest.raises(MalformedMessageError):
        decode(data[:-8])


def test_encode_takes_messages_only():
    with pytest.raises(TypeError, match="PayloadPool is not a message"):
        encode(PayloadPool(1, 2, 3, "uri"))
    with pytest.raises(MalformedMessageError, match="FrameDescriptor has no block of 41 bytes"):
        encode(DESCRIPTOR, block_length=41)


def test_layouts_of_a_message():
    assert [layout.block_length for layout in message_layouts(EventMessage)] == [40, 38]
    assert struct.calcsize("<qqb3xIQQ") == 40


def test_messages_are_immutable():
    with pytest.raises(AttributeError):
        DESCRIPTOR.seq = 4

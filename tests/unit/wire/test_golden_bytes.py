"""Messages against bytes packed by hand from the byte tables."""

from __future__ import annotations

import pytest

from golden_messages import A4, A8, B8, C8, D8, GOLDEN, POOL, header, i8, u1, u4, u8, var
from tensor_pool.wire import decode, encode, message_types
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    ClockDomain,
    DataSourceMeta,
    DiscoveryRequest,
    DiscoveryResponse,
    DiscoveryStatus,
    DiscoveryTag,
    EventMessage,
    Format,
    FrameDescriptor,
    MetaAttribute,
    ResponseCode,
    Role,
    ShmAttachResponse,
    ShmLeaseKeepalive,
    ShmPoolAnnounce,
)


@pytest.mark.parametrize(("message", "expected"), GOLDEN)
def test_encodes_to_the_bytes_of_the_table(message, expected):
    assert encode(message).hex(" ") == expected.hex(" ")


@pytest.mark.parametrize(("message", "expected"), GOLDEN)
def test_decodes_from_the_bytes_of_the_table(message, expected):
    assert decode(expected) == message


def test_every_message_is_covered():
    assert {type(case.values[0]) for case in GOLDEN} == set(message_types())


@pytest.mark.req("SVC-5.1-3")
def test_event_message_as_a_strict_parser_lays_it_out():
    message = EventMessage(-A8, B8, Format.REF, A4, C8, D8, "tag", "key", b"\xfe")
    packed = header(38, 1, 905) + i8(-A8, B8) + u1(15, 0) + u4(A4) + u8(C8, D8)
    packed += var(b"tag") + var(b"key") + var(b"\xfe")
    assert decode(packed) == message
    assert encode(message, block_length=38) == packed


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            FrameDescriptor(1, 2, 3),
            "28 00 04 00 84 03 01 00",
            marks=pytest.mark.req("WIRE-16-1", "WIRE-16-2"),
        ),
        pytest.param(
            ShmLeaseKeepalive(1, 2, 3, Role.CONSUMER, 4),
            "19 00 05 00 85 03 01 00",
            marks=pytest.mark.req("DRV-A-1"),
        ),
        pytest.param(
            BridgeFrameChunk(1, 2, 3, 0, 1, 0, 0, 0, False),
            "29 00 01 00 86 03 01 00",
            marks=pytest.mark.req("BRG-11-1"),
        ),
        pytest.param(
            DiscoveryRequest(1, 2, 3),
            "20 00 01 00 8e 03 01 00",
            marks=pytest.mark.req("DSC-15-1", "DSC-10-5", "DSC-4.1-1"),
        ),
        pytest.param(
            DiscoveryResponse(1, DiscoveryStatus.ERROR),
            "09 00 02 00 8e 03 01 00",
            marks=pytest.mark.req("DSC-10-5"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_message_header(message, expected):
    assert encode(message)[:8].hex(" ") == expected


@pytest.mark.req("WIRE-16-3", "DRV-A-2", "DSC-15-2")
def test_group_header_is_block_length_and_count():
    message = ShmPoolAnnounce(1, 1, 1, 1, ClockDomain.MONOTONIC, 1, 8, 256, (POOL, POOL), "ab")
    assert encode(message)[8 + 35 : 8 + 35 + 4] == bytes.fromhex("0a 00 02 00")
    assert encode(message).endswith(bytes.fromhex("02 00 00 00 61 62"))
    response = ShmAttachResponse(1, ResponseCode.OK, payload_pools=(POOL, POOL))
    assert encode(response)[8 + 51 : 8 + 51 + 4] == bytes.fromhex("0a 00 02 00")
    request = DiscoveryRequest(1, 2, 3, tags=(DiscoveryTag("ab"),), response_channel="ab")
    assert encode(request)[8 + 32 :] == bytes.fromhex("00 00 01 00 02000000 6162 02000000 6162 00000000")


@pytest.mark.req("WIRE-16-4", "WIRE-16-5", "WIRE-10.3.2-2")
def test_text_and_bytes_have_a_four_byte_length():
    message = DataSourceMeta(1, 2, 3, (MetaAttribute("ab", "f", b"\x00\xff"),))
    entry = encode(message)[8 + 16 + 4 :]
    assert entry == bytes.fromhex("02000000 6162 01000000 66 02000000 00ff")

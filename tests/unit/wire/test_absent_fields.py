"""Absent fields: nulls on the wire, None in Python; empty text and bytes."""

from __future__ import annotations

import pytest

from tensor_pool.wire import decode, encode
from tensor_pool.wire.messages import (
    ConsumerConfig,
    ConsumerHello,
    DiscoveryRequest,
    FrameDescriptor,
    Mode,
    NewerBridgeFrameChunk,
    NewerShmAttachRequest,
    NewerShmAttachResponse,
    QosProducer,
    ResponseCode,
    Role,
    ShmAttachResponse,
)

HEADER = 8


@pytest.mark.req("WIRE-10.1-1", "WIRE-10.1-3")
def test_absent_uint32_is_all_ones():
    data = encode(ConsumerHello(1, 2, True, True, Mode.STREAM))
    assert data[HEADER + 19 : HEADER + 31] == b"\xff" * 12
    hello = decode(data)
    assert (hello.progress_interval_us, hello.progress_bytes_delta, hello.progress_major_delta_units) == (
        None,
        None,
        None,
    )


@pytest.mark.req("WIRE-10.1-2", "WIRE-10.1-3", "WIRE-10.1-4", "WIRE-10.2.1-2")
def test_absent_uint64_is_all_ones_except_the_trace_id():
    data = encode(FrameDescriptor(1, 2, 3))
    assert data[HEADER + 20 : HEADER + 28] == b"\xff" * 8
    assert data[HEADER + 32 : HEADER + 40] == bytes(8)
    descriptor = decode(data)
    assert descriptor.timestamp_ns is None
    assert descriptor.trace_id is None


@pytest.mark.parametrize("written", [bytes(8), b"\xff" * 8], ids=["zero", "all ones"])
def test_two_trace_ids_read_as_absent(written):
    """Decision B5: codecs that don't know the declared null write that of the type."""
    descriptor = encode(FrameDescriptor(1, 2, 3, trace_id=9))
    assert decode(descriptor[:-8] + written).trace_id is None
    chunk = bytearray(encode(NewerBridgeFrameChunk(1, 2, 3, 9, 0, 1, 0, 0, 0, 0, False)))
    chunk[HEADER + 20 : HEADER + 28] = written
    assert decode(chunk).trace_id is None


def test_a_trace_id_of_zero_is_absent():
    assert encode(FrameDescriptor(1, 2, 3, trace_id=0)) == encode(FrameDescriptor(1, 2, 3))


def test_a_null_in_a_required_field_is_its_number():
    descriptor = decode(encode(FrameDescriptor(0xFFFFFFFF, 2**64 - 1, 2**64 - 1)))
    assert (descriptor.stream_id, descriptor.epoch, descriptor.seq) == (0xFFFFFFFF, 2**64 - 1, 2**64 - 1)


@pytest.mark.req("WIRE-10.1-4")
def test_only_the_null_itself_is_absent():
    producer = QosProducer(1, 2, 3, 4, watermark=0xFFFFFFFE)
    assert decode(encode(producer)).watermark == 0xFFFFFFFE
    assert decode(encode(QosProducer(1, 2, 3, 4, watermark=0))).watermark == 0


@pytest.mark.req("WIRE-10.1-5", "WIRE-10.1-6", "WIRE-10.1.3-1", "WIRE-10.1.3-6")
def test_absent_text_has_length_zero():
    data = encode(ConsumerConfig(1, 2, True, Mode.STREAM))
    assert data[HEADER + 18 :] == bytes(12)
    assert data[HEADER + 10 : HEADER + 18] == bytes(8)
    config = decode(data)
    assert (config.payload_fallback_uri, config.descriptor_channel, config.control_channel) == ("", "", "")
    blank = decode(encode(ConsumerConfig(1, 2, True, Mode.STREAM, descriptor_channel="  ")))
    assert blank.descriptor_channel == "  "


def test_text_behind_empty_text_is_found():
    """An empty field must move the position like any other (pitfall 7)."""
    config = ConsumerConfig(1, 2, False, Mode.STREAM, payload_fallback_uri="", control_channel="aeron:ipc")
    assert decode(encode(config)) == config


@pytest.mark.req("DRV-4.2-14", "DRV-4.2-12", "DRV-4.2-15")
def test_an_error_response_has_nulls():
    data = encode(ShmAttachResponse(7, ResponseCode.REJECTED, error_message="no"))
    assert data[HEADER + 12 : HEADER + 51] == b"\xff" * 39
    assert data[HEADER + 51 :] == bytes.fromhex("0a00 0000 00000000 02000000 6e6f")
    response = decode(data)
    assert response.lease_id is None
    assert response.header_slot_bytes is None
    assert response.max_dims is None
    assert response.payload_pools == ()
    newer = encode(NewerShmAttachResponse(7, ResponseCode.REJECTED, error_message="no"))
    assert newer[HEADER + 12 : HEADER + 54] == b"\xff" * 42


def test_the_newer_request_leaves_its_wishes_open():
    data = encode(NewerShmAttachRequest(1, 2, 3, Role.CONSUMER))
    assert data[HEADER + 21 :] == bytes.fromhex("ff 00 ffffffff")


@pytest.mark.req("DSC-5.0-1", "DSC-5.0-2", "DSC-5.0-3")
def test_a_query_without_filters():
    data = encode(DiscoveryRequest(1, 2, 3, response_channel="aeron:ipc"))
    assert data[HEADER + 16 : HEADER + 32] == b"\xff" * 16
    assert data.endswith(bytes(4))
    request = decode(data)
    assert (request.stream_id, request.producer_id, request.data_source_id) == (None, None, None)
    assert request.data_source_name == ""

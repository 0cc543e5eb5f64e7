"""Superblocks, slots and tensor headers, byte by byte."""

from __future__ import annotations

import struct

import msgspec
import pytest

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire import MessageHeader, shm

SUPERBLOCK = shm.ShmRegionSuperblock(
    magic=shm.MAGIC,
    layout_version=1,
    epoch=0x0102030405060708,
    stream_id=0x11121314,
    region_type=shm.RegionType.PAYLOAD_POOL,
    pool_id=0x2122,
    nslots=0x31323334,
    slot_bytes=0x41424344,
    stride_bytes=0x51525354,
    pid=0x6162636465666768,
    start_timestamp_ns=0x7172737475767778,
    activity_timestamp_ns=0x8182838485868788,
)
SUPERBLOCK_BYTES = struct.pack(
    "<QIQIhHIIIQQQ",
    *(0x544F504C53484D31, 1, 0x0102030405060708, 0x11121314, 2, 0x2122, 0x31323334, 0x41424344),
    *(0x51525354, 0x6162636465666768, 0x7172737475767778, 0x8182838485868788),
)

TENSOR = shm.TensorHeader(
    dtype=Dtype.FLOAT32,
    major_order=MajorOrder.COLUMN,
    ndims=3,
    progress_unit=shm.ProgressUnit.ROWS,
    progress_stride_bytes=0x01020304,
    dims=(3, 5, 7, 0, 0, 0, 0, -1),
    strides=(4, 12, 60, 0, 0, 0, 0, -2),
)
TENSOR_BYTES = (
    struct.pack("<HHHH", 184, 52, 900, 1)
    + struct.pack("<hhBxBI", 9, 2, 3, 1, 0x01020304)
    + struct.pack("<8i", 3, 5, 7, 0, 0, 0, 0, -1)
    + struct.pack("<8i", 4, 12, 60, 0, 0, 0, 0, -2)
    + bytes(109)
)

HEADER = shm.SlotHeader(
    seq_commit=(42 << 1) | 1,
    values_len_bytes=0x11121314,
    payload_slot=0x21222324,
    pool_id=0x3132,
    payload_offset=0x41424344,
    timestamp_ns=0x5152535455565758,
    meta_version=0x61626364,
    header_bytes=TENSOR_BYTES,
)
SLOT_BYTES = (
    struct.pack("<QIIHIQI", 85, 0x11121314, 0x21222324, 0x3132, 0x41424344, 0x5152535455565758, 0x61626364)
    + bytes(26)
    + struct.pack("<I", 192)
    + TENSOR_BYTES
)


@pytest.mark.req("WIRE-16-27", "WIRE-7.1-1", "WIRE-6-2")
def test_superblock():
    assert len(SUPERBLOCK_BYTES) == 64 == shm.SUPERBLOCK_BYTES
    assert shm.encode_superblock(SUPERBLOCK).hex(" ") == SUPERBLOCK_BYTES.hex(" ")
    assert shm.decode_superblock(SUPERBLOCK_BYTES) == SUPERBLOCK
    assert SUPERBLOCK_BYTES[8:12] == bytes.fromhex("01 00 00 00")


@pytest.mark.req("WIRE-7.1-6")
def test_magic_is_the_number_stored_little_endian():
    assert shm.MAGIC == 0x544F504C53484D31
    assert shm.encode_superblock(SUPERBLOCK)[:8] == bytes.fromhex("31 4D 48 53 4C 50 4F 54") == b"1MHSLPOT"


@pytest.mark.req("WIRE-7.1-2")
@pytest.mark.parametrize(("region_type", "number"), [("HEADER_RING", 1), ("PAYLOAD_POOL", 2)])
def test_region_type(region_type, number):
    superblock = msgspec.structs.replace(SUPERBLOCK, region_type=shm.RegionType[region_type])
    assert shm.encode_superblock(superblock)[24:26] == struct.pack("<h", number)


@pytest.mark.req("WIRE-7.1-7")
@pytest.mark.parametrize("bit", range(64))
def test_any_other_magic_is_refused(bit):
    data = bytearray(SUPERBLOCK_BYTES)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedMessageError, match="a region starts with"):
        shm.decode_superblock(data)


def test_superblock_of_a_whole_region():
    region = SUPERBLOCK_BYTES + bytes(10_000)
    assert shm.decode_superblock(memoryview(region)) == SUPERBLOCK


@pytest.mark.parametrize("size", [0, 1, 63])
def test_short_superblocks(size):
    with pytest.raises(MalformedMessageError):
        shm.decode_superblock(SUPERBLOCK_BYTES[:size])


def test_superblock_with_another_layout_version_is_shown():
    """Whether it can be used is for the reader of the region to decide [WIRE-7.1-8]."""
    other = msgspec.structs.replace(SUPERBLOCK, layout_version=2)
    assert shm.decode_superblock(shm.encode_superblock(other)) == other


@pytest.mark.req("WIRE-16-28", "WIRE-8.1-1", "WIRE-8.2-3", "WIRE-8.2-4", "WIRE-8.2-6")
def test_slot():
    assert len(SLOT_BYTES) == 256 == shm.SLOT_BYTES
    assert shm.encode_slot(HEADER).hex(" ") == SLOT_BYTES.hex(" ")
    slot = shm.decode_slot(SLOT_BYTES)
    assert slot == shm.Slot(HEADER, MessageHeader(184, 52, 900, 1), TENSOR)
    assert int.from_bytes(SLOT_BYTES[:8], "little") == slot.header.seq_commit == (42 << 1) | 1
    assert int.from_bytes(SLOT_BYTES[60:64], "little") == 192 == shm.TENSOR_HEADER_BYTES


@pytest.mark.req("WIRE-16-29", "WIRE-8.2-1", "WIRE-8.2-7")
def test_tensor_header():
    assert len(TENSOR_BYTES) == 192
    assert shm.encode_tensor_header(TENSOR).hex(" ") == TENSOR_BYTES.hex(" ")
    assert shm.decode_tensor_header(TENSOR_BYTES) == TENSOR
    assert SLOT_BYTES[64:72] == struct.pack("<HHHH", 184, 52, 900, 1)


@pytest.mark.req("WIRE-8.2-5")
def test_padding_is_ignored_and_written_as_zeros():
    noisy = bytearray(SLOT_BYTES)
    noisy[34:60] = b"\xa5" * 26
    noisy[64 + 8 + 5] = 0xA5
    noisy[256 - 109 :] = b"\xa5" * 109
    slot = shm.decode_slot(noisy)
    assert slot.tensor_header == TENSOR
    assert msgspec.structs.replace(slot.header, header_bytes=TENSOR_BYTES) == HEADER
    rewritten = msgspec.structs.replace(HEADER, header_bytes=shm.encode_tensor_header(slot.tensor_header))
    assert shm.encode_slot(rewritten) == SLOT_BYTES


def test_a_slot_that_was_never_written():
    slot = shm.decode_slot(bytes(256))
    assert slot.header.seq_commit == 0
    assert slot.tensor_header is None
    assert slot.tensor_message_header is None
    assert shm.encode_slot(slot.header) == bytes(256)


@pytest.mark.req("WIRE-8.3-12")
@pytest.mark.parametrize("length", [1, 184, 191, 193, 1 << 31, 0xFFFFFFFF])
def test_header_lengths_that_are_refused(length):
    data = bytearray(SLOT_BYTES)
    data[60:64] = struct.pack("<I", length)
    with pytest.raises(MalformedMessageError):
        shm.decode_slot(data)


@pytest.mark.req("WIRE-8.3-13", "WIRE-8.3-14", "WIRE-8.3-15")
@pytest.mark.parametrize("field", range(4), ids=["block_length", "template_id", "schema_id", "version"])
@pytest.mark.parametrize("change", [-1, 1, 98])
def test_the_embedded_header_is_exact(field, change):
    """Decision B13: all four numbers."""
    numbers = [184, 52, 900, 1]
    numbers[field] += change
    data = bytearray(SLOT_BYTES)
    data[64:72] = struct.pack("<HHHH", *numbers)
    with pytest.raises(MalformedMessageError, match="not the header of a TensorHeader"):
        shm.decode_slot(data)


@pytest.mark.parametrize("size", [0, 64, 255, 257, 512])
def test_slots_of_another_size(size):
    with pytest.raises(MalformedMessageError, match=f"256 bytes, not {size}"):
        shm.decode_slot(bytes(size))


@pytest.mark.parametrize("size", [0, 8, 191, 193])
def test_tensor_headers_of_another_size(size):
    with pytest.raises(MalformedMessageError, match=f"192 bytes, not {size}"):
        shm.decode_tensor_header(TENSOR_BYTES.ljust(200, b"\0")[:size])
    if size:
        with pytest.raises(MalformedMessageError, match=f"192 bytes, not {size}"):
            shm.encode_slot(msgspec.structs.replace(HEADER, header_bytes=bytes(size)))


@pytest.mark.parametrize("dims", [(), (1,) * 7, (1,) * 9, (1,) * 7 + (1 << 31,), (1,) * 7 + ("x",), 5, None])
def test_dims_are_eight_int32(dims):
    with pytest.raises(MalformedMessageError, match=r"TensorHeader.dims: .* is not a int32\[8\]"):
        shm.encode_tensor_header(msgspec.structs.replace(TENSOR, dims=dims))


def test_seq_commit_holds_sequence_and_flag():
    committed = shm.decode_slot(SLOT_BYTES).header.seq_commit
    assert (committed >> 1, committed & 1) == (42, 1)

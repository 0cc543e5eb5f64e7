"""Everything that an implementation of others wrote decodes, to its last byte and with the right values."""

from __future__ import annotations

import enum
import hashlib
from typing import Any

import msgspec
import pytest

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.wire import compiled_layout, decode, encode, message_layouts, peek, shm
from tensor_pool.wire.schema import BlockLayout
from wire_vectors import FOREIGN, foreign_index, read_foreign

INDEX = foreign_index()
MESSAGES = INDEX["messages"]
FRAMES = [*INDEX["frames"], *INDEX["static"]["frames"]]
REGIONS = [
    (f"{prefix}{folder}/{name}", described)
    for prefix, group in (("", INDEX), ("static/", INDEX["static"]))
    for folder in ("shm_initial", "shm_final")
    for name, described in group[folder].items()
]


def on_the_wire(struct: msgspec.Struct, layout: BlockLayout) -> dict[str, Any]:
    """The fields under their wire names, enums and nulls as numbers, as the foreign index has them."""
    fields: dict[str, Any] = {}
    for field in layout.fields:
        if not field.padding:
            value = getattr(struct, field.attribute)
            fields[field.name] = field.null if value is None else int(value)
    for group in layout.groups:
        fields[group.name] = [on_the_wire(entry, group.entry) for entry in getattr(struct, group.attribute)]
    for part in layout.data:
        value = getattr(struct, part.attribute)
        fields[part.name] = value.hex() if isinstance(value, bytes) else value
    return fields


def test_there_are_as_many_as_were_recorded():
    assert len(MESSAGES) == 220 == len(list((FOREIGN / "messages").glob("*.bin")))
    assert len(INDEX["frames"]) == 21
    assert len(REGIONS) == 10


@pytest.mark.req("WIRE-10-1", "DSC-4.1-1")
@pytest.mark.parametrize("entry", MESSAGES, ids=lambda entry: entry["file"])
def test_message(entry):
    data = read_foreign(entry["file"])
    assert hashlib.sha256(data).hexdigest() == entry["sha256"]
    header = peek(data)
    assert (header.schema_id, header.template_id, header.version, header.block_length) == (
        entry["schema_id"],
        entry["template_id"],
        entry["version"],
        entry["block_length"],
    )
    message = decode(data)  # which raises unless it ends where the data ends
    expected = dict(entry["fields"])
    for missing in expected.pop("_missing_trailing_data", ()):
        expected[missing] = ""
    layout = next(
        layout for layout in message_layouts(type(message)) if layout.block_length == header.block_length
    )
    assert on_the_wire(message, layout) == expected


@pytest.mark.parametrize("entry", MESSAGES, ids=lambda entry: entry["file"])
def test_message_encodes_back(entry):
    data = read_foreign(entry["file"])
    encoded = encode(decode(data))
    if "quirk" in entry:  # decision K9: the peer left out the last length prefix, we write it
        assert encoded == data + bytes(4)
    else:
        assert encoded == data


@pytest.mark.req("WIRE-8.2-4", "WIRE-8.2-7", "WIRE-16-28", "WIRE-16-29")
@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame["slot_file"])
def test_slot(frame):
    data = read_foreign(frame["slot_file"])
    slot = shm.decode_slot(data)
    expected = frame["slot_decoded"]
    header, tensor = slot.header, slot.tensor_header
    assert header.seq_commit == frame["seq_commit"] == 2 * frame["seq"] + 1
    assert header.values_len_bytes == expected["valuesLenBytes"] == frame["values_len_bytes"]
    assert header.payload_slot == expected["payloadSlot"]
    assert header.pool_id == frame["pool_id"]
    assert header.payload_offset == 0
    assert header.timestamp_ns == frame["slot_timestamp_ns"]
    assert header.meta_version == frame["meta_version"]
    assert len(header.header_bytes) == expected["headerBytesLength"]
    assert [*msgspec.structs.astuple(slot.tensor_message_header)] == expected["embedded_header"]
    assert tensor.dtype is Dtype(frame["dtype_code"])
    assert tensor.major_order is MajorOrder[frame["major_order"].upper()]
    assert tensor.ndims == len(frame["dims"])
    assert list(tensor.dims[: tensor.ndims]) == frame["dims"]
    assert list(tensor.dims) == expected["dims"]
    assert list(tensor.strides) == expected["strides"]
    assert tensor.progress_unit == frame["progress_unit"]
    assert tensor.progress_stride_bytes == frame["progress_stride_bytes"]
    assert shm.encode_slot(header) == data
    assert shm.encode_tensor_header(tensor) == header.header_bytes


@pytest.mark.req("WIRE-6-1", "WIRE-7.1-1", "WIRE-7.1-2")
@pytest.mark.parametrize(("file", "described"), REGIONS, ids=[file for file, _ in REGIONS])
def test_region(file, described):
    data = read_foreign(file)
    assert len(data) == described["size"]
    superblock = shm.decode_superblock(data)
    decoded = {
        name: value.value if isinstance(value, enum.Enum) else value
        for name, value in msgspec.structs.asdict(superblock).items()
    }
    assert decoded == {
        field.attribute: described["superblock"][field.name]
        for field in compiled_layout("ShmRegionSuperblock").fields
    }
    assert shm.encode_superblock(superblock) == data[: shm.SUPERBLOCK_BYTES]
    for entry in described.get("slots", ()):
        start = shm.SUPERBLOCK_BYTES + shm.SLOT_BYTES * entry["index"]
        slot = shm.decode_slot(data[start : start + shm.SLOT_BYTES])
        assert slot.header.seq_commit == entry["seqCommit"]
        assert (slot.tensor_header is None) == (entry["seqCommit"] == 0)

"""The offsets that Rust uses are those of the compiled schemas: neither side can drift alone."""

from __future__ import annotations

import pytest

from tensor_pool import _native, wire

TABLES = _native.hot_layouts()


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t[0]}-{t[3]}")
def test_every_field_lies_where_the_schema_says(table):
    message, schema_id, template_id, block_length, fields = table
    layout = wire.compiled_layout(message, block_length=block_length)
    assert (layout.schema_id, layout.template_id) == (schema_id, template_id)
    assert fields == [(field.name, field.offset, field.size) for field in layout.fields]


def test_all_hot_structures_are_compared():
    assert [(message, block) for message, _, _, block, _ in TABLES] == [
        ("ShmRegionSuperblock", 64),
        ("SlotHeader", 60),
        ("TensorHeader", 184),
        ("FrameDescriptor", 40),
        ("FrameProgress", 29),
        ("BridgeFrameChunk", 41),
        ("BridgeFrameChunk", 53),
    ]


@pytest.mark.req("WIRE-10.2.1-2")
def test_descriptors_and_progress_are_the_same_bytes_from_both_codecs():
    descriptor = {
        "stream_id": 7,
        "epoch": 2**63,
        "seq": 9,
        "timestamp_ns": 5,
        "meta_version": 3,
        "trace_id": 1,
    }
    bare = {"stream_id": 7, "epoch": 1, "seq": 2}
    for fields in (descriptor, bare):
        native = _native.FrameDescriptor(**fields).encode()
        assert native == wire.encode(wire.messages.FrameDescriptor(**fields))
    assert native[8 + 32 :] == bytes(8), "no trace is 0"
    for state in wire.messages.FrameProgressState:
        fields = {"stream_id": 7, "epoch": 1, "seq": 2, "payload_bytes_filled": 3, "state": state}
        assert _native.FrameProgress(**fields).encode() == wire.encode(wire.messages.FrameProgress(**fields))

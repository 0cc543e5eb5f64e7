"""Random messages of every type survive encoding, decoding, and their JSON form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.wire import compiled_layout, decode, encode, message_layouts, message_types, peek, shm
from tensor_pool.wire.bind import bind
from tensor_pool.wire.json_form import from_json_form, to_json_form
from wire_strategies import messages, messages_of, structs

thorough = settings(max_examples=40, deadline=None, print_blob=True)


@pytest.mark.parametrize("struct_type", message_types(), ids=lambda struct_type: struct_type.__name__)
@thorough
@given(st.data())
def test_every_message_round_trips(struct_type, data):
    message = data.draw(messages_of(struct_type))
    for layout in message_layouts(struct_type):
        encoded = encode(message, block_length=layout.block_length)
        header = peek(encoded)
        assert (header.schema_id, header.template_id) == (layout.schema_id, layout.template_id)
        assert header.block_length == layout.block_length
        decoded = decode(encoded)
        assert decoded == message
        assert type(decoded) is struct_type
        assert encode(decoded, block_length=layout.block_length) == encoded


@settings(max_examples=300, deadline=None, print_blob=True)
@given(messages())
def test_the_json_form_round_trips(drawn):
    message, layout = drawn
    encoded = encode(message, block_length=layout.block_length)
    form = json.loads(json.dumps(to_json_form(encoded, "message")))
    assert form["message"] == layout.name
    assert from_json_form(form) == encoded


@settings(max_examples=200, deadline=None, print_blob=True)
@given(st.data())
def test_shared_memory_round_trips(data):
    tensor = data.draw(structs(bind(shm.TensorHeader, compiled_layout("TensorHeader"))))
    assert isinstance(tensor.dtype, Dtype)
    assert isinstance(tensor.major_order, MajorOrder)
    header_bytes = shm.encode_tensor_header(tensor)
    fields = data.draw(structs(bind(shm.SlotHeader, compiled_layout("SlotHeader"))))
    header = shm.SlotHeader(*(getattr(fields, name) for name in fields.__struct_fields__[:-1]), header_bytes)
    encoded = shm.encode_slot(header)
    assert len(encoded) == 256
    slot = shm.decode_slot(encoded)
    assert (slot.header, slot.tensor_header) == (header, tensor)
    form = json.loads(json.dumps(to_json_form(encoded, "slot256")))
    assert from_json_form(form) == encoded


@settings(max_examples=100, deadline=None, print_blob=True)
@given(structs(bind(shm.ShmRegionSuperblock, compiled_layout("ShmRegionSuperblock"))))
def test_superblocks_round_trip(drawn):
    fields = {name: getattr(drawn, name) for name in drawn.__struct_fields__}
    superblock = shm.ShmRegionSuperblock(**{**fields, "magic": shm.MAGIC})
    encoded = shm.encode_superblock(superblock)
    assert shm.decode_superblock(encoded) == superblock
    assert from_json_form(json.loads(json.dumps(to_json_form(encoded)))) == encoded

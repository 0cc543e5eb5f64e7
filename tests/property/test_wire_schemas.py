"""Random schemas: what the codec writes is what a tiny encoder that shares nothing with it writes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from random_schemas import Block, schemas
from tensor_pool.errors import MalformedMessageError, SchemaError
from tensor_pool.wire import compile_schema
from tensor_pool.wire.bind import bind
from tensor_pool.wire.codec import Codec
from tensor_pool.wire.schema import BlockLayout

often = settings(
    max_examples=150,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def codec_for(schema, *, extensible: bool = False) -> Codec:
    layout = compile_schema(schema.xml, "random.xml").messages["mPart"]
    struct_type = schema.message.struct_type
    return Codec(struct_type, bind(struct_type, layout), extensible=extensible)


def assert_same_layout(layout: BlockLayout, block: Block) -> None:
    assert layout.block_length == block.block_length
    assert [(f.name, f.offset, f.size) for f in layout.fields] == [
        (f.name, f.offset, f.size) for f in block.fields if not f.constant
    ]
    assert len(layout.groups) == len(block.groups)
    for group, expected in zip(layout.groups, block.groups, strict=True):
        assert_same_layout(group.entry, expected)


@often
@given(st.data())
def test_random_schemas_round_trip(data):
    schema = data.draw(schemas())
    codec = codec_for(schema)
    assert_same_layout(codec.layout, schema.message)
    value = data.draw(schema.message.values())
    expected = schema.message.encode(value)
    assert codec.encode(value) == expected
    decoded, end = codec.decode(expected, 0, codec.block_length)
    assert decoded == value
    assert end == len(expected)
    at_an_offset, end = codec.decode(b"before" + expected + b"behind", 6, codec.block_length)
    assert at_an_offset == value
    assert end == 6 + len(expected)


@often
@given(st.data())
def test_truncations_of_random_schemas(data):
    schema = data.draw(schemas())
    codec = codec_for(schema)
    encoded = schema.message.encode(data.draw(schema.message.values()))
    for size in range(len(encoded)):
        with pytest.raises(MalformedMessageError):
            codec.decode(encoded[:size], 0, codec.block_length)


@often
@given(st.data())
def test_damage_to_random_schemas(data):
    schema = data.draw(schemas())
    codec = codec_for(schema, extensible=True)
    encoded = bytearray(schema.message.encode(data.draw(schema.message.values())))
    for _ in range(data.draw(st.integers(0, 5)) if encoded else 0):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    block_length = data.draw(st.sampled_from([codec.block_length, 0, codec.block_length + 1, 65535]))
    try:
        value, end = codec.decode(bytes(encoded), 0, block_length)
    except MalformedMessageError:
        return
    assert end <= len(encoded)
    assert isinstance(value, schema.message.struct_type)


@often
@given(st.data())
def test_longer_blocks_of_random_schemas(data):
    """A block with more at its end decodes to the same value when the codec is extensible, else not."""
    schema = data.draw(schemas())
    value = data.draw(schema.message.values())
    encoded = schema.message.encode(value)
    start = schema.message.block_length
    extra = data.draw(st.binary(min_size=1, max_size=20))
    longer = encoded[:start] + extra + encoded[start:]
    decoded, end = codec_for(schema, extensible=True).decode(longer, 0, start + len(extra))
    assert decoded == value
    assert end == len(longer)
    with pytest.raises(MalformedMessageError, match=f"a block of {start + len(extra)} bytes instead of"):
        codec_for(schema).decode(longer, 0, start + len(extra))


@often
@given(st.data())
def test_damaged_schemas(data):
    """A schema with characters lost or changed is refused with a SchemaError or means something."""
    xml = data.draw(schemas()).xml
    start = data.draw(st.integers(0, len(xml)))
    length = data.draw(st.integers(0, 40))
    changed = xml[:start] + data.draw(st.text(max_size=5)) + xml[start + length :]
    try:
        compiled = compile_schema(changed, "changed.xml")
    except SchemaError:
        return
    assert compiled.source == "changed.xml"

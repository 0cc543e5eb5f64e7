"""A struct that differs from its schema is refused, whatever differs."""

import enum
import re

import msgspec
import pytest

from tensor_pool.errors import SchemaError
from tensor_pool.wire import MessageLayout, compile_schema, compiled_layout, messages, shm
from tensor_pool.wire.bind import GroupEntry, Message, bind
from tensor_pool.wire.framing import message, message_layouts, message_types
from tensor_pool.wire.schema import load_schema

SCHEMA = """
<messageSchema package="example" id="7" version="1">
  <types>
    <composite name="messageHeader">
      <type name="blockLength" primitiveType="uint16"/>
      <type name="templateId" primitiveType="uint16"/>
      <type name="schemaId" primitiveType="uint16"/>
      <type name="version" primitiveType="uint16"/>
    </composite>
    <composite name="groupSizeEncoding">
      <type name="blockLength" primitiveType="uint16"/>
      <type name="numInGroup" primitiveType="uint16"/>
    </composite>
    <composite name="text">
      <type name="length" primitiveType="uint32"/>
      <type name="varData" primitiveType="uint8" length="0" characterEncoding="US-ASCII"/>
    </composite>
    <composite name="blob">
      <type name="length" primitiveType="uint32"/>
      <type name="varData" primitiveType="uint8" length="0"/>
    </composite>
    <type name="triple" primitiveType="int32" length="3"/>
    <type name="pad" primitiveType="uint8" length="2" semanticType="Padding"/>
    <enum name="Bool" encodingType="uint8">
      <validValue name="FALSE">0</validValue>
      <validValue name="TRUE">1</validValue>
    </enum>
    <enum name="Colour" encodingType="uint8">
      <validValue name="RED">1</validValue>
      <validValue name="BLUE">2</validValue>
    </enum>
  </types>
  <message name="Sample" id="1">
    <field name="seqNo" id="1" type="uint32"/>
    <field name="limit" id="2" type="uint16" presence="optional"/>
    <field name="colour" id="3" type="Colour"/>
    <field name="filler" id="4" type="pad"/>
    <field name="active" id="5" type="Bool" presence="optional"/>
    <field name="origin" id="6" type="triple"/>
    <group name="points" id="7">
      <field name="x" id="1" type="int16"/>
    </group>
    <data name="label" id="8" type="text"/>
    <data name="content" id="9" type="blob"/>
  </message>
</messageSchema>
"""


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Point(GroupEntry, frozen=True):
    x: int


class Sample(Message, frozen=True):
    seq_no: int
    limit: int | None
    colour: Colour
    active: bool | None
    origin: tuple[int, ...]
    points: tuple[Point, ...]
    label: str
    content: bytes


def altered(*replacements: tuple[str, str]) -> MessageLayout:
    xml = SCHEMA
    for old, new in replacements:
        assert xml.count(old) == 1, old
        xml = xml.replace(old, new)
    return compile_schema(xml).messages["Sample"]


def test_a_struct_that_agrees():
    bound = bind(Sample, altered())
    assert bound.struct_type is Sample
    assert bound.value_types == {"seq_no": int, "limit": int, "colour": Colour, "active": bool, "origin": int}
    assert [group.struct_type for group in bound.groups] == [Point]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name="seqNo"', 'name="seqNumber"', "has the fields seq_no, .* has seq_number"),
        ('<field name="seqNo" id="1" type="uint32"/>', "", "has the fields seq_no"),
        (
            '<field name="x" id="1" type="int16"/>',
            '<field name="y" id="1" type="int16"/>',
            "Point has the fields x",
        ),
        ('type="uint16" presence="optional"', 'type="uint16"', r"Sample.limit must be int"),
        (
            'name="seqNo" id="1" type="uint32"',
            'name="seqNo" id="1" type="uint32" presence="optional"',
            "optional",
        ),
        ('type="Colour"', 'type="uint8"', "Sample.colour must be int .* not Colour"),
        ('type="Colour"', 'type="Bool"', "Sample.colour must be bool"),
        ('type="Bool" presence="optional"', 'type="Bool"', "Sample.active must be bool"),
        ('type="Bool" presence="optional"', 'type="uint8" presence="optional"', "Sample.active must be int"),
        ('<validValue name="BLUE">2<', '<validValue name="BLUE">3<', "'BLUE': 2.* 'BLUE': 3"),
        ('<validValue name="BLUE">2<', '<validValue name="GREEN">2<', "'GREEN': 2"),
        ('<validValue name="BLUE">2</validValue>', "", "Colour"),
        ('type="triple"', 'type="int32"', "Sample.origin must be int"),
        (
            'name="seqNo" id="1" type="uint32"',
            'name="seqNo" id="1" type="triple"',
            r"Sample.seq_no must be tuple",
        ),
        ('name="label" id="8" type="text"', 'name="label" id="8" type="blob"', "Sample.label must be bytes"),
        (
            'name="content" id="9" type="blob"',
            'name="content" id="9" type="text"',
            "Sample.content must be str",
        ),
    ],
)
def test_drift_of_the_schema_is_refused(old, new, problem):
    with pytest.raises(SchemaError, match=problem):
        bind(Sample, altered((old, new)))


def test_an_enum_of_another_name_is_refused():
    with pytest.raises(SchemaError, match=r"Colour .* is Hue"):
        bind(
            Sample,
            altered(('enum name="Colour"', 'enum name="Hue"'), ('id="3" type="Colour"', 'id="3" type="Hue"')),
        )


def test_order_matters():
    xml = re.sub(r'(<field name="seqNo".*?/>)\s*(<field name="limit".*?/>)', r"\2\1", SCHEMA)
    assert xml != SCHEMA
    with pytest.raises(SchemaError, match="has the fields seq_no, limit"):
        bind(Sample, compile_schema(xml).messages["Sample"])


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (list[Point], "is a group in the schema"),
        (tuple[Point, Point], "is a group in the schema"),
        (tuple[int, ...], "is a group in the schema"),
        (tuple[Sample, ...], "is a group in the schema"),
    ],
)
def test_groups_are_tuples_of_entries(annotation, problem):
    fields = [(name, kind) for name, kind in Sample.__annotations__.items()]
    fields[5] = ("points", annotation)
    drifted = msgspec.defstruct("Drifted", fields, bases=(Message,), frozen=True)
    with pytest.raises(SchemaError, match=problem):
        bind(drifted, altered())


def test_an_enum_is_an_int_enum():
    fields = [(name, kind) for name, kind in Sample.__annotations__.items()]
    fields[2] = ("colour", enum.Enum("Colour", {"RED": 1, "BLUE": 2}))
    drifted = msgspec.defstruct("Drifted", fields, bases=(Message,), frozen=True)
    with pytest.raises(SchemaError, match="is the enum Colour in the schema"):
        bind(drifted, altered())


def test_annotations_as_text_are_refused():
    drifted = msgspec.defstruct("Drifted", [("a", "int")], bases=(Message,), frozen=True)
    with pytest.raises(SchemaError, match="annotations are text"):
        bind(drifted, altered())


def test_every_message_notices_a_field_that_is_gone():
    """Each struct of the package, against its own schema with one field less or another name."""
    checked = 0
    for struct_type in message_types():
        for layout in message_layouts(struct_type):
            renamed = msgspec.structs.replace(
                layout,
                fields=(msgspec.structs.replace(layout.fields[0], attribute="renamed"), *layout.fields[1:]),
            )
            shorter = msgspec.structs.replace(layout, fields=layout.fields[1:])
            for drifted in (renamed, shorter):
                with pytest.raises(SchemaError):
                    bind(struct_type, drifted)
            checked += 1
    assert checked == len(message_types()) + 1  # EventMessage has two layouts


@pytest.mark.parametrize("struct_type", [shm.ShmRegionSuperblock, shm.SlotHeader, shm.TensorHeader])
def test_structures_in_shared_memory_are_bound_too(struct_type):
    layout = compiled_layout(struct_type.__name__)
    assert bind(struct_type, layout).layout is layout
    with pytest.raises(SchemaError):
        bind(struct_type, compiled_layout("FrameDescriptor"))


def test_a_message_is_carried_by_one_struct():
    with pytest.raises(SchemaError, match="a block of 28 bytes is bound already"):

        @message(load_schema("trace"), name="TraceLinkSet")
        class Second(Message, frozen=True):
            stream_id: int
            epoch: int
            seq: int
            trace_id: int
            parents: tuple[messages.TraceParent, ...] = ()


def test_a_message_must_be_in_its_schema():
    with pytest.raises(SchemaError, match=r"trace.xml has no message Unheard"):

        @message(load_schema("trace"))
        class Unheard(Message, frozen=True):
            stream_id: int

"""What the schema compiler makes of schemas, and what it refuses."""

from __future__ import annotations

import pytest

from tensor_pool.errors import SchemaError
from tensor_pool.wire import compile_schema, compiled_layout, load_schema
from tensor_pool.wire.schema import snake_case

TYPES = """
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
      <type name="length" primitiveType="uint32" maxValue="9"/>
      <type name="varData" primitiveType="uint8" length="0" characterEncoding="US-ASCII"/>
    </composite>
    <composite name="blob">
      <type name="length" primitiveType="uint32"/>
      <type name="varData" primitiveType="uint8" length="0"/>
    </composite>
    <enum name="Colour" encodingType="int16">
      <validValue name="RED">-1</validValue>
      <validValue name="BLUE">300</validValue>
    </enum>
    <type name="zero_is_null" primitiveType="uint64" nullValue="0"/>
    <type name="always_optional" primitiveType="int8" presence="optional"/>
    <type name="small" primitiveType="uint32" minValue="3" maxValue="5"/>
    <type name="four" primitiveType="int32" length="4"/>
    <type name="gap" primitiveType="uint8" length="3" semanticType="Padding"/>
    <type name="eight" primitiveType="uint8" presence="constant">8</type>
"""


def schema(members: str = "", *, types: str = TYPES, attributes: str = "", message: str = 'id="1"') -> str:
    return f"""<?xml version="1.0"?>
<sbe:messageSchema xmlns:sbe="http://fixprotocol.io/2016/sbe" package="p" id="7" version="3" {attributes}>
  <types>{types}</types>
  <sbe:message name="Sample" {message}>{members}</sbe:message>
</sbe:messageSchema>"""


def sample(members: str, **options: str):
    return compile_schema(schema(members, **options)).messages["Sample"]


def refused(xml: str | bytes) -> str:
    with pytest.raises(SchemaError) as caught:
        compile_schema(xml, "example.xml")
    assert "example.xml" in caught.value.message
    return caught.value.message


def test_schema_attributes():
    compiled = compile_schema(schema(attributes='semanticVersion="1.5" byteOrder="littleEndian"'))
    assert (compiled.schema_id, compiled.version) == (7, 3)
    assert (compiled.package, compiled.semantic_version) == ("p", "1.5")
    assert compiled.enums["Colour"].values == {"RED": -1, "BLUE": 300}


def test_a_message_without_members_is_legal():
    assert sample("").block_length == 0


def test_fields_are_packed_in_order_without_gaps():
    layout = sample("""
        <field name="a" id="1" type="uint8"/>
        <field name="b" id="2" type="uint64"/>
        <field name="c" id="3" type="Colour"/>
        <field name="d" id="4" type="eight"/>
        <field name="e" id="5" type="gap"/>
        <field name="f" id="6" type="four"/>""")
    assert [(field.name, field.offset, field.size) for field in layout.fields] == [
        ("a", 0, 1),
        ("b", 1, 8),
        ("c", 9, 2),
        ("e", 11, 3),
        ("f", 14, 16),
    ]
    assert layout.block_length == 30
    assert [(constant.name, constant.value) for constant in layout.constants] == [("d", 8)]
    assert layout.attributes == ("a", "b", "c", "f")
    assert layout.fields[3].padding
    assert layout.fields[4].length == 4


def test_offsets_and_block_lengths_may_leave_room():
    layout = sample(
        '<field name="a" id="1" type="uint8" offset="4"/><field name="b" id="2" type="uint8"/>',
        message='id="1" blockLength="16"',
    )
    assert [field.offset for field in layout.fields] == [4, 5]
    assert layout.block_length == 16


def test_nulls():
    layout = sample("""
        <field name="a" id="1" type="uint32"/>
        <field name="b" id="2" type="uint32" presence="optional"/>
        <field name="c" id="3" type="zero_is_null" presence="optional"/>
        <field name="d" id="4" type="zero_is_null"/>
        <field name="e" id="5" type="always_optional"/>
        <field name="f" id="6" type="always_optional" presence="required"/>
        <field name="g" id="7" type="Colour" presence="optional"/>""")
    assert [field.null for field in layout.fields] == [None, 0xFFFFFFFF, 0, None, -128, None, -32768]


def test_limits():
    layout = sample('<field name="a" id="1" type="small"/><field name="b" id="2" type="uint32"/>')
    assert [(field.minimum, field.maximum) for field in layout.fields] == [(3, 5), (None, None)]


def test_groups_and_data():
    layout = sample("""
        <field name="a" id="1" type="uint8"/>
        <group name="outer" id="2" dimensionType="groupSizeEncoding">
          <field name="x" id="1" type="uint16"/>
          <group name="innerOnes" id="2"><data name="t" id="1" type="text"/></group>
          <data name="u" id="3" type="blob"/>
        </group>
        <data name="v" id="3" type="text"/>""")
    (outer,) = layout.groups
    (inner,) = outer.entry.groups
    assert (outer.entry.block_length, inner.entry.block_length) == (2, 0)
    assert inner.attribute == "inner_ones"
    assert [(part.maximum, part.text) for part in (layout.data[0], outer.entry.data[0])] == [
        (9, True),
        (2**32 - 2, False),
    ]
    assert (layout.minimum_size, outer.entry.minimum_size, inner.entry.minimum_size) == (9, 10, 4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("streamId", "stream_id"),
        ("headerNslots", "header_nslots"),
        ("payloadCrc32c", "payload_crc32c"),
        ("maxRateHz", "max_rate_hz"),
        ("progressIntervalUs", "progress_interval_us"),
        ("seq", "seq"),
        ("already_snake", "already_snake"),
    ],
)
def test_snake_case(name, expected):
    assert snake_case(name) == expected


GROUP = '<group name="g" id="1">{}</group>'


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ('<field name="a" id="1" type="nothing"/>', "there is no type 'nothing'"),
        ('<field name="a" id="1"/>', "there is no type ''"),
        ('<field id="1" type="uint8"/>', "needs a name"),
        ('<field name="a b" id="1" type="uint8"/>', "needs a name"),
        ('<field name="a" type="uint8"/>', "needs the attribute 'id'"),
        ('<field name="a" id="one" type="uint8"/>', "'one' is not a whole number"),
        ('<field name="a" id="65536" type="uint8"/>', "id 65536 is not between 0 and 65535"),
        ('<field name="a" id="1" type="uint8" presence="maybe"/>', "presence 'maybe'"),
        ('<field name="a" id="1" type="uint8" presence="constant"/>', "a constant needs a type"),
        ('<field name="a" id="1" type="eight" presence="optional"/>', "a constant needs a type"),
        ('<field name="a" id="1" type="four" presence="optional"/>', "can be optional"),
        ('<field name="a" id="1" type="gap" presence="optional"/>', "can be optional"),
        ('<field name="a" id="1" type="uint8" length="3"/>', "attribute 'length' is not allowed"),
        ('<field name="a" id="1" type="uint8" nullValue="0"/>', "attribute 'nullValue' is not allowed"),
        ('<field name="a" id="1" type="uint8" sinceVersion="2"/>', "attribute 'sinceVersion'"),
        ('<field name="a" id="1" type="text"/>', "a field has a fixed size"),
        ('<field name="a" id="1" type="messageHeader"/>', "type of a header"),
        ('<field name="a" id="1" type="groupSizeEncoding"/>', "type of a header"),
        (
            '<field name="a" id="1" type="uint32"/><field name="b" id="2" type="uint8" offset="3"/>',
            "offset 3",
        ),
        ('<field name="a" id="1" type="uint8"/><field name="a" id="2" type="uint8"/>', "used twice"),
        ('<field name="a" id="1" type="uint8"/><field name="b" id="1" type="uint8"/>', "used twice"),
        ('<field name="aB" id="1" type="uint8"/><field name="a_b" id="2" type="uint8"/>', "used twice"),
        (
            '<field name="a" id="1" type="uint8"><field name="b" id="2" type="uint8"/></field>',
            "not allowed inside",
        ),
        ('<set name="a" id="1"/>', "not allowed inside"),
        (GROUP.format("") + '<field name="a" id="2" type="uint8"/>', "a group needs members"),
        (GROUP.format('<field name="c" id="1" type="eight"/>'), "a group needs members"),
        (
            '<group name="g" id="1" dimensionType="text"><data name="d" id="1" type="text"/></group>',
            "dimensionType",
        ),
        (
            '<group name="g" id="1" dimensionType="no"><data name="d" id="1" type="text"/></group>',
            "dimensionType",
        ),
        ('<data name="d" id="1" type="uint8"/>', "data needs a type of variable length"),
        ('<data name="d" id="1" type="text" presence="optional"/>', "attribute 'presence' is not allowed"),
    ],
)
def test_wrong_members_are_refused(members, problem):
    assert problem in refused(schema(members))


@pytest.mark.req("WIRE-10.1-7")
def test_data_has_no_presence():
    assert "presence" in refused(schema('<data name="d" id="1" type="text" presence="optional"/>'))


@pytest.mark.req("WIRE-10.1-8")
@pytest.mark.parametrize("second", ['<field name="a" id="2" type="uint8"/>', GROUP.replace('"1"', '"2"')])
def test_nothing_follows_data(second):
    xml = schema('<data name="d" id="1" type="text"/>' + second.format('<data name="e" id="1" type="text"/>'))
    assert "come before" in refused(xml)


def test_no_field_follows_a_group():
    group = GROUP.format('<field name="b" id="1" type="uint8"/>')
    assert "fields come before" in refused(schema(group + '<field name="a" id="2" type="uint8"/>'))


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        ('<type name="a" primitiveType="float"/>', "primitiveType 'float' is not one of"),
        ('<type name="a"/>', "primitiveType '' is not one of"),
        ('<type name="uint8" primitiveType="uint8"/>', "defined twice"),
        ('<type name="small" primitiveType="uint8"/>', "defined twice"),
        ('<composite name="messageHeader"/>', "defined twice"),
        ('<type name="a" primitiveType="uint8" length="0"/>', "at least one element"),
        ('<type name="a" primitiveType="uint8" length="65536"/>', "not between 0 and 65535"),
        ('<type name="a" primitiveType="uint8" presence="never"/>', "presence 'never'"),
        ('<type name="a" primitiveType="uint8" nullValue="256"/>', "256 does not fit uint8"),
        ('<type name="a" primitiveType="int8" minValue="-129"/>', "-129 does not fit int8"),
        ('<type name="a" primitiveType="uint8" maxValue="1e3"/>', "is not a whole number"),
        ('<type name="a" primitiveType="uint8" maxValue="999999999999999999999"/>', "not a whole number"),
        ('<type name="a" primitiveType="uint8" presence="constant"/>', "'' is not a whole number"),
        ('<type name="a" primitiveType="uint8" presence="constant">300</type>', "300 does not fit"),
        ('<type name="a" primitiveType="uint8" length="2" presence="optional"/>', "an array can be neither"),
        ('<type name="a" primitiveType="uint8" length="2" maxValue="3"/>', "an array can be neither"),
        ('<type name="a" primitiveType="uint8" semanticType="Price"/>', "semanticType 'Price' is unknown"),
        ('<type name="a" primitiveType="uint16" semanticType="Padding"/>', "padding must be required uint8"),
        ('<type name="a" primitiveType="uint8" colour="red"/>', "attribute 'colour' is not allowed"),
        ('<set name="a" encodingType="uint8"/>', "not allowed inside <types>"),
        ('<enum name="a" encodingType="char"/>', "encodingType 'char'"),
        ('<enum name="a" encodingType="uint8"/>', "has no values"),
        ('<enum name="a" encodingType="uint8"><validValue name="X">256</validValue></enum>', "does not fit"),
        ('<enum name="a" encodingType="uint8"><validValue name="X"/></enum>', "not a whole number"),
        (
            (
                '<enum name="a" encodingType="uint8"><validValue name="X">1</validValue>'
                '<validValue name="X">2</validValue></enum>'
            ),
            "used twice",
        ),
        (
            (
                '<enum name="a" encodingType="uint8"><validValue name="X">1</validValue>'
                '<validValue name="Y">1</validValue></enum>'
            ),
            "used twice",
        ),
        # Decision B6: 255 is the null of a uint8, so it can't be a value of its own.
        (
            '<enum name="a" encodingType="uint8"><validValue name="X">255</validValue></enum>',
            "is the null of",
        ),
        (
            '<enum name="a" encodingType="int8"><validValue name="X">-128</validValue></enum>',
            "is the null of",
        ),
        (
            '<composite name="a"><type name="x" primitiveType="uint8"/></composite>',
            "neither a message header",
        ),
        (
            (
                '<composite name="a"><type name="length" primitiveType="uint32"/>'
                '<type name="varData" primitiveType="uint8"/></composite>'
            ),
            'needs length="0"',
        ),
        (
            (
                '<composite name="a"><type name="length" primitiveType="uint32"/>'
                '<type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-8"/>'
                "</composite>"
            ),
            "is not US-ASCII",
        ),
        (
            (
                '<composite name="a"><type name="length" primitiveType="uint32" maxValue="4294967296"/>'
                '<type name="varData" primitiveType="uint8" length="0"/></composite>'
            ),
            "not between",
        ),
    ],
)
def test_wrong_types_are_refused(types, problem):
    assert problem in refused(schema(types=TYPES + types))


def test_schemas_that_are_none():
    assert "not well-formed" in refused("<messageSchema")
    assert "not well-formed" in refused("")
    assert "the root must be <messageSchema>" in refused("<types/>")
    assert "only littleEndian" in refused(schema(attributes='byteOrder="bigEndian"'))
    assert "needs the attribute 'id'" in refused("<messageSchema/>")
    assert "needs the composite messageHeader" in refused('<messageSchema id="1"/>')
    assert "headerType" in refused(schema(attributes='headerType="other"'))
    assert "not allowed inside" in refused(schema().replace("<types>", "<include/><types>"))
    assert "is not between" in refused(schema(message='id="70000"'))


def test_two_messages_of_one_name_or_id():
    for second in ('name="Sample" id="2"', 'name="Other" id="1"'):
        xml = schema().replace("</sbe:messageSchema>", f"<message {second}/></sbe:messageSchema>")
        assert "name or id used twice" in refused(xml)


def test_blocks_that_are_too_small_or_too_large():
    field = '<field name="a" id="1" type="uint64"/>'
    assert "take 8 bytes" in refused(schema(field, message='id="1" blockLength="7"'))
    huge = '<type name="huge" primitiveType="uint64" length="8192"/>'
    assert "take 65536 bytes" in refused(schema('<field name="a" id="1" type="huge"/>', types=TYPES + huge))


def test_hostile_documents():
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><x>&b;</x>'
    assert "no document type" in refused(bomb)
    assert "nested more than 32 levels deep" in refused("<x>" * 100 + "</x>" * 100)
    deep = '<data name="d" id="1" type="text"/>'
    for level in range(6):
        deep = f'<group name="g{level}" id="1">{deep}</group>'
    assert "groups nested more than" in refused(schema(deep))
    assert refused(b'<?xml version="1.0" encoding="klingon"?><x/>')
    assert refused("<x>\ud800</x>")
    assert refused(b"\xff\xfe\x00")


def test_errors_name_the_line():
    xml = schema('\n\n<field name="a" id="1" type="nothing"/>')
    line = next(number for number, text in enumerate(xml.splitlines(), 1) if "nothing" in text)
    assert refused(xml).startswith(f"example.xml:{line}: <field> a: ")


def test_schemas_of_the_package():
    assert load_schema("control") is load_schema("control")
    with pytest.raises(SchemaError, match="there is no schema 'missing'"):
        load_schema("missing")
    with pytest.raises(SchemaError, match="no schema has a message 'Missing'"):
        compiled_layout("Missing")
    with pytest.raises(SchemaError, match="with a block of 9 bytes"):
        compiled_layout("FrameDescriptor", block_length=9)

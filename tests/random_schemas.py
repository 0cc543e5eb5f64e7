"""Random SBE schemas with values for them, and a tiny encoder of its own that says what their bytes are.

Nothing here uses the compiler or the codec: offsets are added up and integers written with `int.to_bytes`.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec
from hypothesis import strategies as st

from tensor_pool.wire.bind import GroupEntry, Message

INTEGERS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}


def limits(primitive: str) -> tuple[int, int]:
    bits = 8 * INTEGERS[primitive]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if primitive.startswith("i") else (0, (1 << bits) - 1)


def default_null(primitive: str) -> int:
    low, high = limits(primitive)
    return low if primitive.startswith("i") else high


def number_bytes(primitive: str, value: int) -> bytes:
    return int(value).to_bytes(INTEGERS[primitive], "little", signed=primitive.startswith("i"))


@dataclass
class Field:
    """A field with everything that a schema, a struct and a byte string need to know about it."""

    name: str
    primitive: str
    type_xml: str = ""
    type_name: str = ""
    length: int = 1
    null: int | None = None
    annotation: Any = int
    values: st.SearchStrategy[Any] | None = None
    offset: int = 0
    explicit_offset: bool = False
    hidden: bool = False  # padding, or a constant
    constant: bool = False

    @property
    def size(self) -> int:
        return 0 if self.constant else INTEGERS[self.primitive] * self.length

    def encode(self, value: Any) -> bytes:
        if self.length != 1:
            return b"".join(number_bytes(self.primitive, element) for element in value)
        return number_bytes(self.primitive, self.null if value is None else value)


@dataclass
class Data:
    name: str
    type_name: str
    text: bool
    maximum: int

    def encode(self, value: Any) -> bytes:
        raw = value.encode() if self.text else value
        return len(raw).to_bytes(4, "little") + raw


@dataclass
class Block:
    name: str
    fields: list[Field] = field(default_factory=list)
    groups: list[Block] = field(default_factory=list)
    data: list[Data] = field(default_factory=list)
    slack: int = 0
    struct_type: type[msgspec.Struct] = msgspec.Struct

    @property
    def block_length(self) -> int:
        return max((f.offset + f.size for f in self.fields), default=0) + self.slack

    def encode(self, value: Any) -> bytes:
        block = bytearray(self.block_length)
        for f in self.fields:
            if not f.hidden:
                block[f.offset : f.offset + f.size] = f.encode(getattr(value, snake(f.name)))
        encoded = bytes(block)
        for group in self.groups:
            entries = getattr(value, snake(group.name))
            encoded += group.block_length.to_bytes(2, "little") + len(entries).to_bytes(2, "little")
            encoded += b"".join(group.encode(entry) for entry in entries)
        for part in self.data:
            encoded += part.encode(getattr(value, snake(part.name)))
        return encoded

    def values(self) -> st.SearchStrategy[Any]:
        parts: dict[str, Any] = {snake(f.name): f.values for f in self.fields if not f.hidden}
        for group in self.groups:
            parts[snake(group.name)] = st.lists(group.values(), max_size=3).map(tuple)
        for part in self.data:
            longest = min(20, part.maximum)
            parts[snake(part.name)] = (
                st.text(st.characters(max_codepoint=127), max_size=longest)
                if part.text
                else st.binary(max_size=longest)
            )
        return st.builds(self.struct_type, **parts)

    def finish(self, base: type[msgspec.Struct]) -> None:
        """Makes the struct that carries this block, after those of its groups."""
        members: list[tuple[str, Any]] = [(snake(f.name), f.annotation) for f in self.fields if not f.hidden]
        for group in self.groups:
            group.finish(GroupEntry)
            members.append((snake(group.name), tuple[group.struct_type, ...]))
        members += [(snake(part.name), str if part.text else bytes) for part in self.data]
        self.struct_type = msgspec.defstruct("Struct" + self.name, members, bases=(base,), frozen=True)

    def types_xml(self) -> str:
        return "".join(f.type_xml for f in self.fields) + "".join(group.types_xml() for group in self.groups)

    def members_xml(self) -> str:
        xml = ""
        ids = itertools.count(1)
        for f in self.fields:
            presence = ' presence="optional"' if f.null is not None else ""
            offset = f' offset="{f.offset}"' if f.explicit_offset else ""
            xml += f'<field name="{f.name}" id="{next(ids)}" type="{f.type_name}"{presence}{offset}/>'
        for group in self.groups:
            xml += f'<group name="{group.name}" id="{next(ids)}" blockLength="{group.block_length}">'
            xml += group.members_xml() + "</group>"
        for part in self.data:
            xml += f'<data name="{part.name}" id="{next(ids)}" type="{part.type_name}"/>'
        return xml


@dataclass
class RandomSchema:
    xml: str
    message: Block


def snake(name: str) -> str:
    """The names used here are a letter and a number, a capital, lower-case letters: ``m3Part``."""
    head, part = name[: name.index("P")], name[name.index("P") :]
    return f"{head}_{part.lower()}"


HEADER_TYPES = """
<composite name="messageHeader">
  <type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
  <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
</composite>
<composite name="groupSizeEncoding">
  <type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint16"/>
</composite>
"""
DATA_TYPES = {
    f"{kind}{maximum}": (kind == "text", maximum) for kind in ("text", "blob") for maximum in (3, 16, 1 << 30)
}


def data_types_xml() -> str:
    xml = ""
    for name, (text, maximum) in DATA_TYPES.items():
        encoding = ' characterEncoding="US-ASCII"' if text else ""
        xml += f'<composite name="{name}"><type name="length" primitiveType="uint32" maxValue="{maximum}"/>'
        xml += f'<type name="varData" primitiveType="uint8" length="0"{encoding}/></composite>'
    return xml


@st.composite
def plain_fields(draw: Any, name: str) -> Field:
    """An integer: perhaps optional, with a null of its own, or with limits."""
    primitive = draw(st.sampled_from(sorted(INTEGERS)))
    low, high = limits(primitive)
    optional, own_null, limited = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    attributes = ""
    null = draw(st.integers(low, high)) if own_null else default_null(primitive)
    if own_null:
        attributes += f' nullValue="{null}"'
    if limited:
        low, high = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
        attributes += f' minValue="{low}" maxValue="{high}"'
    values: st.SearchStrategy[Any] = st.integers(low, high)
    if optional:
        # The primitive's own null reads as absent too, so it is not a value either.
        absent = (null, default_null(primitive))
        values = st.none() | values.filter(lambda value: value not in absent)
    return Field(
        name=name,
        primitive=primitive,
        type_xml=f'<type name="{name}Type" primitiveType="{primitive}"{attributes}/>',
        type_name=f"{name}Type",
        null=null if optional else None,
        annotation=int | None if optional else int,
        values=values,
    )


@st.composite
def enum_fields(draw: Any, name: str) -> Field:
    primitive = draw(st.sampled_from(sorted(INTEGERS)))
    low, high = limits(primitive)
    optional = draw(st.booleans())
    if draw(st.booleans()):
        kind: Any = bool
        members = {"FALSE": 0, "TRUE": 1}
    else:
        legal = st.integers(low, high).filter(lambda number: number != default_null(primitive))
        numbers = draw(st.lists(legal, min_size=1, max_size=5, unique=True))
        members = {f"VALUE_{index}": number for index, number in enumerate(numbers)}
        if members != {"FALSE": 0, "TRUE": 1}:
            kind = enum.IntEnum(f"{name}Enum", members)
    listed = "".join(
        f"<validValue name={quoteattr(label)}>{number}</validValue>" for label, number in members.items()
    )
    values: st.SearchStrategy[Any] = st.sampled_from(list(kind) if kind is not bool else [False, True])
    return Field(
        name=name,
        primitive=primitive,
        type_xml=f'<enum name="{name}Enum" encodingType="{primitive}">{listed}</enum>',
        type_name=f"{name}Enum",
        null=default_null(primitive) if optional else None,
        annotation=kind | None if optional else kind,
        values=st.none() | values if optional else values,
    )


@st.composite
def array_fields(draw: Any, name: str) -> Field:
    primitive = draw(st.sampled_from(sorted(INTEGERS)))
    length = draw(st.integers(2, 5))
    return Field(
        name=name,
        primitive=primitive,
        type_xml=f'<type name="{name}Type" primitiveType="{primitive}" length="{length}"/>',
        type_name=f"{name}Type",
        length=length,
        annotation=tuple[int, ...],
        values=st.tuples(*[st.integers(*limits(primitive))] * length),
    )


@st.composite
def hidden_fields(draw: Any, name: str) -> Field:
    if draw(st.booleans()):
        length = draw(st.integers(1, 20))
        xml = f'<type name="{name}Type" primitiveType="uint8" length="{length}" semanticType="Padding"/>'
        return Field(name, "uint8", xml, f"{name}Type", length, hidden=True)
    xml = f'<type name="{name}Type" primitiveType="uint8" presence="constant">8</type>'
    return Field(name, "uint8", xml, f"{name}Type", hidden=True, constant=True)


@st.composite
def blocks(draw: Any, name: str, depth: int) -> Block:
    block = Block(name, slack=draw(st.sampled_from([0, 0, 0, 1, 7])))
    end = 0
    for number in range(draw(st.integers(0, 4))):
        made_by = draw(
            st.sampled_from([plain_fields, plain_fields, enum_fields, array_fields, hidden_fields])
        )
        one: Field = draw(made_by(f"{name.replace('Part', '')}f{number}Part"))
        gap = draw(st.sampled_from([0, 0, 0, 3]))
        one.offset, one.explicit_offset = end + gap, gap > 0
        end = one.offset + one.size
        if one.constant:
            one.offset, one.explicit_offset, end = end - gap, False, end - gap
        block.fields.append(one)
    if depth:
        for number in range(draw(st.integers(0, 2))):
            block.groups.append(draw(blocks(f"{name.replace('Part', '')}g{number}Part", depth - 1)))
    for number in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(sorted(DATA_TYPES)))
        text, maximum = DATA_TYPES[kind]
        block.data.append(Data(f"{name.replace('Part', '')}d{number}Part", kind, text, maximum))
    if not (block.block_length or block.groups or block.data):
        block.slack = 1  # a group needs something to repeat
    return block


@st.composite
def schemas(draw: Any) -> RandomSchema:
    """A schema with one message."""
    message = draw(blocks("mPart", depth=2))
    message.finish(Message)
    xml = (
        '<messageSchema package="random" id="1" version="1"><types>'
        + HEADER_TYPES
        + data_types_xml()
        + message.types_xml()
        + f'</types><message name="mPart" id="1" blockLength="{message.block_length}">'
        + message.members_xml()
        + "</message></messageSchema>"
    )
    return RandomSchema(xml, message)

"""The schema compiler: SBE XML in, layouts out.

It knows the part of SBE that this family of protocols uses (integers, enums, arrays, constants, padding,
groups, variable-length data; little-endian) and refuses the rest, so that nothing in a schema is silently
without effect. Deliberately stricter than the XML printed in the specifications:

- padding is an array type marked ``semanticType="Padding"``; ``length`` on a field is refused (decision B3)
- a null belongs to a type or to its primitive, and an enum must not name it (decision B6)
- variable-length data has no ``presence`` and comes last [WIRE-10.1-7, WIRE-10.1-8]
- a ``<field>`` of a variable-length type is refused; it must be ``<data>`` (decision B7)

Fields lie one after the other without implicit padding, in the order of the file (decision B12).
"""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import Final

import msgspec

from tensor_pool.errors import SchemaError
from tensor_pool.wire.schema.layout import (
    BlockLayout,
    ConstantLayout,
    DataLayout,
    EnumLayout,
    FieldLayout,
    GroupLayout,
    MessageLayout,
    snake_case,
)
from tensor_pool.wire.schema.source import Element, SchemaSource, parse_xml
from tensor_pool.wire.schema.types import DimensionType, NamedType, VarDataType, WireType, read_types

__all__ = ["SCHEMA_NAMES", "Schema", "compile_schema", "compiled_layout", "load_schema"]

SCHEMA_NAMES: Final = (
    "control",
    "driver",
    "driver_newer",
    "bridge",
    "bridge_newer",
    "join_barrier",
    "trace",
    "service_control",
    "service_control_packed",
    "admin",
    "discovery",
)
"""The schemas of this package, a dialect behind the schema that it varies."""

_UINT16_MAX: Final = 65535
_MAX_GROUP_DEPTH: Final = 4


class Schema(msgspec.Struct, frozen=True):
    """A compiled schema.

    Example:
        >>> schema = load_schema("control")
        >>> schema.schema_id, schema.messages["FrameDescriptor"].block_length
        (900, 40)
    """

    source: str
    package: str
    schema_id: int
    version: int
    semantic_version: str
    enums: dict[str, EnumLayout]
    messages: dict[str, MessageLayout]


@cache
def load_schema(name: str) -> Schema:
    """Compiles a schema of this package, once.

    Args:
        name: The file in ``schemas/`` without its ending, e.g. ``"control"``.

    Raises:
        SchemaError: No such schema, or a wrong one.
    """
    source = f"{name}.xml"
    try:
        # Not importlib.resources: importing that takes longer than compiling all schemas (8 ms against 5).
        xml = pkgutil.get_data("tensor_pool.wire", f"schemas/{source}")
    except OSError:
        xml = None
    if xml is None:
        raise SchemaError(f"there is no schema {name!r} in this package", hint="reinstall shm-tensor-pool")
    return compile_schema(xml, source)


def compiled_layout(message: str, *, block_length: int | None = None) -> MessageLayout:
    """The layout of a message or shared-memory structure of this package.

    Args:
        message: The name in its schema, e.g. ``"BridgeFrameChunk"``.
        block_length: Chooses between dialects; without it the layout that we write by default.

    Raises:
        SchemaError: No such message, or not with such a block.

    Example:
        >>> [field.offset for field in compiled_layout("BridgeFrameChunk").fields][-1]
        40
        >>> [field.offset for field in compiled_layout("BridgeFrameChunk", block_length=53).fields][-1]
        52
    """
    for name in SCHEMA_NAMES:
        layout = load_schema(name).messages.get(message)
        if layout is not None and block_length in (None, layout.block_length):
            return layout
    block = "" if block_length is None else f" with a block of {block_length} bytes"
    raise SchemaError(f"no schema has a message {message!r}{block}")


def compile_schema(xml: str | bytes, source: str = "schema") -> Schema:
    """Compiles a schema.

    Args:
        xml: The document.
        source: What errors call it.

    Raises:
        SchemaError: Anything that is not a schema this compiler fully understands.
    """
    origin = SchemaSource(source)
    root = parse_xml(xml, source)
    if root.tag != "messageSchema":
        origin.refuse(root, "the root must be <messageSchema>")
    origin.allow(
        root,
        *("package", "id", "version", "semanticVersion", "byteOrder"),
        children=("types", "message"),
    )
    if root.attributes.get("byteOrder", "littleEndian") != "littleEndian":
        origin.refuse(root, "only littleEndian is supported")
    schema_id = origin.number(root, "id", maximum=_UINT16_MAX)
    version = origin.number(root, "version", maximum=_UINT16_MAX, default=0)
    types = read_types(origin, root, [child for child in root.children if child.tag == "types"])
    messages: dict[str, MessageLayout] = {}
    for element in root.children:
        if element.tag == "message":
            layout = _read_message(origin, types, element, schema_id, version)
            if layout.name in messages or any(
                layout.template_id == other.template_id for other in messages.values()
            ):
                origin.refuse(element, "name or id used twice")
            messages[layout.name] = layout
    return Schema(
        source=source,
        package=root.attributes.get("package", ""),
        schema_id=schema_id,
        version=version,
        semantic_version=root.attributes.get("semanticVersion", ""),
        enums={name: found for name, found in types.items() if isinstance(found, EnumLayout)},
        messages=messages,
    )


def _read_message(
    source: SchemaSource, types: dict[str, WireType], element: Element, schema_id: int, version: int
) -> MessageLayout:
    source.allow(element, "name", "id", "blockLength", children=("field", "group", "data"))
    template_id = source.number(element, "id", maximum=_UINT16_MAX)
    block = _BlockReader(source, types, element).read()
    return MessageLayout(
        name=block.name,
        block_length=block.block_length,
        fields=block.fields,
        constants=block.constants,
        groups=block.groups,
        data=block.data,
        schema_id=schema_id,
        template_id=template_id,
        version=version,
    )


class _BlockReader:
    """Reads the members of a message or group, keeping count of offsets, names and ids."""

    def __init__(
        self, source: SchemaSource, types: dict[str, WireType], element: Element, depth: int = 0
    ) -> None:
        self._source = source
        self._types = types
        self._element = element
        self._depth = depth
        self._end = 0
        self._fields: list[FieldLayout] = []
        self._constants: list[ConstantLayout] = []
        self._groups: list[GroupLayout] = []
        self._data: list[DataLayout] = []

    def read(self) -> BlockLayout:
        source, element = self._source, self._element
        name = source.identifier(element)
        seen: set[str | int] = set()
        for member in element.children:
            attribute = snake_case(source.identifier(member))
            member_id = source.number(member, "id", maximum=_UINT16_MAX)
            if attribute in seen or member_id in seen:
                source.refuse(member, "name or id used twice")
            seen |= {attribute, member_id}
            if member.tag == "field":
                self._read_field(member)
            elif member.tag == "group":
                self._read_group(member)
            else:
                self._read_data(member)
        block_length = source.number(element, "blockLength", maximum=_UINT16_MAX, default=self._end)
        if block_length < self._end or self._end > _UINT16_MAX:
            source.refuse(element, f"its fields take {self._end} bytes, its block only {block_length}")
        if self._depth and not (block_length or self._groups or self._data):
            # An entry of no bytes could be repeated 65535 times in a message of twelve.
            source.refuse(element, "a group needs members")
        return BlockLayout(
            name=name,
            block_length=block_length,
            fields=tuple(self._fields),
            constants=tuple(self._constants),
            groups=tuple(self._groups),
            data=tuple(self._data),
        )

    def _read_field(self, member: Element) -> None:
        source = self._source
        source.allow(member, "name", "id", "type", "presence", "offset")
        if self._groups or self._data:
            source.refuse(member, "fields come before groups and data")
        found = self._type_of(member)
        if isinstance(found, VarDataType):
            source.refuse(member, "a field has a fixed size", hint="write <data> instead of <field>")
        if not isinstance(found, NamedType | EnumLayout):
            source.refuse(member, "the type of a header is no type for a field")
        offset = source.number(member, "offset", maximum=_UINT16_MAX, default=self._end)
        if offset < self._end:
            source.refuse(member, f"offset {offset} lies inside the field before, which ends at {self._end}")
        enum = found if isinstance(found, EnumLayout) else None
        named = NamedType(found.primitive) if isinstance(found, EnumLayout) else found
        presence = member.attributes.get("presence", named.presence)
        if (presence == "constant") != (named.presence == "constant"):
            source.refuse(member, "a constant needs a type that is constant and says its value")
        if presence not in ("required", "optional", "constant"):
            source.refuse(member, f"presence {presence!r} is none of required, optional, constant")
        if presence == "optional" and (named.length != 1 or named.padding):
            source.refuse(member, "neither an array nor padding can be optional")
        if named.constant is not None:
            self._constants.append(ConstantLayout(member.attributes["name"], named.constant))
            return
        null = None
        if presence == "optional":
            null = named.primitive.null if named.null is None else named.null
        size = named.primitive.size * named.length
        self._fields.append(
            FieldLayout(
                name=member.attributes["name"],
                attribute=snake_case(member.attributes["name"]),
                offset=offset,
                size=size,
                primitive=named.primitive,
                length=named.length,
                enum=enum,
                null=null,
                minimum=named.minimum,
                maximum=named.maximum,
                padding=named.padding,
            )
        )
        self._end = offset + size

    def _read_group(self, member: Element) -> None:
        source = self._source
        source.allow(
            member,
            *("name", "id", "dimensionType", "blockLength"),
            children=("field", "group", "data"),
        )
        if self._data:
            source.refuse(member, "groups come before data")
        if self._depth == _MAX_GROUP_DEPTH:
            source.refuse(member, f"groups nested more than {_MAX_GROUP_DEPTH} deep")
        dimension = self._types.get(member.attributes.get("dimensionType", "groupSizeEncoding"))
        if not isinstance(dimension, DimensionType):
            source.refuse(member, "needs a dimensionType of two uint16: blockLength, numInGroup")
        entry = _BlockReader(source, self._types, member, self._depth + 1).read()
        self._groups.append(GroupLayout(entry.name, snake_case(entry.name), entry))

    def _read_data(self, member: Element) -> None:
        source = self._source
        source.allow(member, "name", "id", "type")  # [WIRE-10.1-7]: no presence
        found = self._type_of(member)
        if not isinstance(found, VarDataType):
            source.refuse(member, "data needs a type of variable length")
        name = member.attributes["name"]
        self._data.append(DataLayout(name, snake_case(name), found.maximum, found.text))

    def _type_of(self, member: Element) -> WireType:
        name = member.attributes.get("type", "")
        if name not in self._types:
            self._source.refuse(member, f"there is no type {name!r}")
        return self._types[name]

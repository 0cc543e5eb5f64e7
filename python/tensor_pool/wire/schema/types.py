"""The ``<types>`` of a schema: named integers, enums, and the composites of group headers and data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.wire.schema.layout import PRIMITIVES, EnumLayout, Primitive

if TYPE_CHECKING:
    from tensor_pool.wire.schema.source import Element, SchemaSource

__all__ = ["DimensionType", "NamedType", "VarDataType", "WireType", "read_types"]

_PADDING: Final = "Padding"
_MAX_ARRAY: Final = 65535


class NamedType(msgspec.Struct, frozen=True):
    """An integer type, perhaps an array, with what it says about absence and limits."""

    primitive: Primitive
    length: int = 1
    presence: str = "required"
    null: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    constant: int | None = None
    padding: bool = False


class VarDataType(msgspec.Struct, frozen=True):
    """A 4-byte length and that many bytes."""

    maximum: int
    text: bool


class DimensionType(msgspec.Struct, frozen=True):
    """The header of a group: two bytes of block length, two bytes of count."""


class HeaderType(msgspec.Struct, frozen=True):
    """The header of a message; the same four numbers in every schema."""


WireType = NamedType | EnumLayout | VarDataType | DimensionType | HeaderType

# The shapes of composites that messages are made of: names and primitives of their members.
_MESSAGE_HEADER: Final = (
    ("blockLength", "uint16"),
    ("templateId", "uint16"),
    ("schemaId", "uint16"),
    ("version", "uint16"),
)
_DIMENSIONS: Final = (("blockLength", "uint16"), ("numInGroup", "uint16"))
_VAR_DATA: Final = (("length", "uint32"), ("varData", "uint8"))


def read_types(source: SchemaSource, root: Element, sections: list[Element]) -> dict[str, WireType]:
    """The types of a schema by name, the primitives included.

    Args:
        source: The schema file.
        root: Its root element, which errors about missing types point at.
        sections: Its ``<types>`` elements.

    Raises:
        SchemaError: A type that is malformed, unknown to this compiler, or defined twice.
    """
    types: dict[str, WireType] = {name: NamedType(primitive) for name, primitive in PRIMITIVES.items()}
    for section in sections:
        source.allow(section, children=("type", "enum", "composite"))
        for element in section.children:
            name = source.identifier(element)
            if name in types:
                source.refuse(element, "defined twice")
            if element.tag == "type":
                types[name] = _read_type(source, element)
            elif element.tag == "enum":
                types[name] = _read_enum(source, element, name)
            else:
                types[name] = _read_composite(source, element)
    if not isinstance(types.get("messageHeader"), HeaderType):
        source.refuse(
            root, f"needs the composite messageHeader: {', '.join(name for name, _ in _MESSAGE_HEADER)}"
        )
    return types


def _read_type(source: SchemaSource, element: Element) -> NamedType:
    source.allow(
        element,
        *("name", "primitiveType", "length", "presence", "nullValue"),
        *("minValue", "maxValue", "characterEncoding", "semanticType"),
    )
    primitive = _primitive(source, element, "primitiveType")
    attributes = element.attributes
    length = source.number(element, "length", maximum=_MAX_ARRAY, default=1)
    if length == 0:
        source.refuse(element, "an array needs at least one element")
    presence = attributes.get("presence", "required")
    if presence not in ("required", "optional", "constant"):
        source.refuse(element, f"presence {presence!r} is none of required, optional, constant")
    semantic = attributes.get("semanticType", _PADDING)
    padding = "semanticType" in attributes
    if semantic != _PADDING:
        source.refuse(
            element, f"semanticType {semantic!r} is unknown", hint=f"only {_PADDING!r} has a meaning"
        )
    if padding and (primitive.name != "uint8" or presence != "required"):
        source.refuse(element, "padding must be required uint8")
    limits = {
        name: source.value_of(element, attributes[name], primitive) if name in attributes else None
        for name in ("nullValue", "minValue", "maxValue")
    }
    if length != 1 and (presence != "required" or any(limit is not None for limit in limits.values())):
        source.refuse(element, "an array can be neither optional nor constant nor limited")
    constant = source.value_of(element, element.text, primitive) if presence == "constant" else None
    return NamedType(
        primitive=primitive,
        length=length,
        presence=presence,
        null=limits["nullValue"],
        minimum=limits["minValue"],
        maximum=limits["maxValue"],
        constant=constant,
        padding=padding,
    )


def _read_enum(source: SchemaSource, element: Element, name: str) -> EnumLayout:
    source.allow(element, "name", "encodingType", children=("validValue",))
    primitive = _primitive(source, element, "encodingType")
    values: dict[str, int] = {}
    for child in element.children:
        source.allow(child, "name")
        label = source.identifier(child)
        value = source.value_of(child, child.text, primitive)
        if label in values or value in values.values():
            source.refuse(child, "name or number used twice")
        if value == primitive.null:
            # Decision B6: 255 is the null of a uint8 enum, not a value of its own.
            source.refuse(child, f"{value} is the null of {primitive.name}", hint="make the field optional")
        values[label] = value
    if not values:
        source.refuse(element, "has no values")
    return EnumLayout(name, primitive, values)


def _shape(source: SchemaSource, element: Element) -> tuple[tuple[str, str], ...]:
    source.allow(element, "name", children=("type",))
    return tuple(
        (child.attributes.get("name", ""), child.attributes.get("primitiveType", ""))
        for child in element.children
    )


def _read_composite(source: SchemaSource, element: Element) -> VarDataType | DimensionType | HeaderType:
    shape = _shape(source, element)
    if shape == _MESSAGE_HEADER:
        return HeaderType()
    if shape == _DIMENSIONS:
        return DimensionType()
    if shape != _VAR_DATA:
        source.refuse(
            element,
            "neither a message header, nor a group header, nor variable-length data",
            hint="write the members as separate fields",
        )
    length, content = element.children
    source.allow(length, "name", "primitiveType", "maxValue")
    source.allow(content, "name", "primitiveType", "length", "characterEncoding")
    if content.attributes.get("length") != "0":
        source.refuse(content, 'needs length="0"')
    encoding = content.attributes.get("characterEncoding")
    if encoding not in (None, "US-ASCII"):
        source.refuse(content, f"characterEncoding {encoding!r} is not US-ASCII")
    uint32 = PRIMITIVES["uint32"]
    maximum = source.number(length, "maxValue", maximum=uint32.maximum, default=uint32.maximum - 1)
    return VarDataType(maximum=maximum, text=encoding is not None)


def _primitive(source: SchemaSource, element: Element, attribute: str) -> Primitive:
    name = element.attributes.get(attribute, "")
    if name not in PRIMITIVES:
        source.refuse(element, f"{attribute} {name!r} is not one of {', '.join(PRIMITIVES)}")
    return PRIMITIVES[name]

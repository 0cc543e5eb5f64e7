"""What the schema compiler makes of a message: where each field lies, in how many bytes, with which null.

These are plain descriptions without behaviour. The codec turns them into functions, the binder compares
Python structs with them, and a test compares them with the tables of offsets that the native code carries.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import msgspec

__all__ = [
    "PRIMITIVES",
    "BlockLayout",
    "ConstantLayout",
    "DataLayout",
    "EnumLayout",
    "FieldLayout",
    "GroupLayout",
    "MessageLayout",
    "Primitive",
    "snake_case",
]

DIMENSION_BYTES: Final = 4
"""Size of a group's header: the length of an entry's block and the number of entries, two bytes each."""

LENGTH_PREFIX_BYTES: Final = 4
"""Size of the length in front of variable-length data."""

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def snake_case(name: str) -> str:
    """The Python name of a schema name.

    Example:
        >>> snake_case("payloadCrc32c"), snake_case("headerNslots")
        ('payload_crc32c', 'header_nslots')
    """
    return _CAPITAL.sub("_", name).lower()


class Primitive(msgspec.Struct, frozen=True):
    """An integer encoding; `null` is what stands for "absent" unless a type declares another value."""

    name: str
    code: str
    size: int
    minimum: int
    maximum: int
    null: int


def _signed(name: str, code: str, size: int) -> Primitive:
    limit = 1 << (8 * size - 1)
    return Primitive(name, code, size, minimum=-limit, maximum=limit - 1, null=-limit)


def _unsigned(name: str, code: str, size: int) -> Primitive:
    limit = (1 << (8 * size)) - 1
    return Primitive(name, code, size, minimum=0, maximum=limit, null=limit)


PRIMITIVES: Final = {
    primitive.name: primitive
    for primitive in (
        _signed("int8", "b", 1),
        _signed("int16", "h", 2),
        _signed("int32", "i", 4),
        _signed("int64", "q", 8),
        _unsigned("uint8", "B", 1),
        _unsigned("uint16", "H", 2),
        _unsigned("uint32", "I", 4),
        _unsigned("uint64", "Q", 8),
    )
}
"""The encodings that the schemas of this family use; `code` is the letter of the `struct` module."""


class EnumLayout(msgspec.Struct, frozen=True):
    """A named set of numbers; a number outside it is refused on decode and on encode."""

    name: str
    primitive: Primitive
    values: dict[str, int]


class FieldLayout(msgspec.Struct, frozen=True):
    """A field of fixed size.

    Attributes:
        name: The name in the schema; `attribute` is the Python one.
        offset: Distance from the start of the block, in bytes.
        size: Bytes in the block: those of the primitive, times `length`.
        length: Number of elements; above 1 the field is an array.
        null: What an absent value is written as; None for a required field.
        minimum: The smallest value that the schema allows, where it narrows the primitive.
        maximum: The largest one, likewise.
        padding: Written as zeros, ignored on read, not a field of the Python struct.
    """

    name: str
    attribute: str
    offset: int
    size: int
    primitive: Primitive
    length: int = 1
    enum: EnumLayout | None = None
    null: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    padding: bool = False


class ConstantLayout(msgspec.Struct, frozen=True):
    """A value that the schema fixes; it takes no bytes."""

    name: str
    value: int


class DataLayout(msgspec.Struct, frozen=True):
    """Bytes of variable length behind a 4-byte length; `text` means US-ASCII."""

    name: str
    attribute: str
    maximum: int
    text: bool


class BlockLayout(msgspec.Struct, frozen=True):
    """Fields of fixed size, then groups, then variable-length data: a message, or an entry of a group."""

    name: str
    block_length: int
    fields: tuple[FieldLayout, ...]
    constants: tuple[ConstantLayout, ...]
    groups: tuple[GroupLayout, ...]
    data: tuple[DataLayout, ...]

    @property
    def minimum_size(self) -> int:
        """Bytes that this takes when every group and every piece of data is empty."""
        return self.block_length + DIMENSION_BYTES * len(self.groups) + LENGTH_PREFIX_BYTES * len(self.data)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The Python names of everything that carries a value, in wire order."""
        fixed = tuple(field.attribute for field in self.fields if not field.padding)
        groups = tuple(group.attribute for group in self.groups)
        return fixed + groups + tuple(part.attribute for part in self.data)


class GroupLayout(msgspec.Struct, frozen=True):
    """Entries of one form, repeated."""

    name: str
    attribute: str
    entry: BlockLayout


class MessageLayout(BlockLayout, frozen=True, kw_only=True):
    """A block with the numbers that its message header carries.

    Example:
        >>> from tensor_pool.wire import compiled_layout
        >>> layout = compiled_layout("FrameDescriptor")
        >>> layout.block_length, [(field.name, field.offset, field.size) for field in layout.fields][-1]
        (40, ('traceId', 32, 8))
    """

    schema_id: int
    template_id: int
    version: int

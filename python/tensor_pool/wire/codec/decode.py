"""Compiles a layout into a function that decodes it: one sequential pass, no cursor that callers see.

A block and the prefix behind it (the header of a group, or the length of the first data) are read with a
single `struct` call, so an announce with three pools takes five of them. What a peer sends is checked before
it is believed: a count or a length is compared with the bytes that are there before anything is allocated
for it, so time and memory stay proportional to the size of the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire.codec.bound import (
    BoundBlock,
    array_struct,
    block_format,
    compile_limits,
    value_fields,
)

if TYPE_CHECKING:
    from tensor_pool.wire.schema import BlockLayout

__all__ = ["Decoder", "compile_decoder"]

Decoder = Callable[[bytes, int, int, int], tuple[list[Any], int]]
"""Decodes structs that follow each other.

Takes a buffer, the position of the first one, the length of each block and their number (1 for a message);
returns them and the position behind the last one.
"""

_Reader = Callable[[bytes, int, list[Any]], int]
"""Appends what it reads to the values of a block; returns the position behind it."""

_DIMENSIONS: Final = struct.Struct("<HH")
_LENGTH: Final = struct.Struct("<I")


class _ListedValues(dict[int, Any]):
    """Numbers and what they stand for; any other number is refused."""

    __slots__ = ("_field",)

    def __init__(self, values: dict[int, Any], field: str) -> None:
        super().__init__(values)
        self._field = field

    def __missing__(self, number: int) -> Any:
        raise MalformedMessageError(f"{self._field}: {number} is none of its values")


def compile_decoder(block: BoundBlock, *, extensible: bool, may_lack_last_prefix: bool = False) -> Decoder:
    """The decoder of a message or of the entries of a group.

    Closures over compiled parts rather than generated source: an announce with three pools takes 5 us this
    way and would take 2.5 us the other way, which no control stream notices, while compiling source would
    add more to every import than it saves.

    Args:
        block: The layout and its struct.
        extensible: Whether blocks longer than the layout are accepted and their ends skipped.
        may_lack_last_prefix: Whether the length of the last data may be missing at the very end.
    """
    layout = block.layout
    name, expected = layout.name, layout.block_length
    smallest = layout.minimum_size - (_LENGTH.size if may_lack_last_prefix else 0)
    head_for = _compile_heads(layout, extensible=extensible)
    exact_head = head_for(expected)
    adapt = _compile_adaptation(block)
    read_groups = _compile_groups(block, extensible=extensible) if layout.groups else None
    read_data = _compile_data(layout, may_lack_last_prefix) if layout.data else None
    construct = block.struct_type

    def decode(data: bytes, position: int, block_length: int, count: int) -> tuple[list[Any], int]:
        head = exact_head if block_length == expected else head_for(block_length)
        # The smallest entry takes a byte or more, so this bounds what a lying count can make us build.
        if count * smallest > len(data) - position:
            raise MalformedMessageError(f"{name}: {len(data) - position} bytes can't hold {count} of it")
        structs = []
        unpack, step = head.unpack_from, head.size
        for _ in range(count):
            try:
                values: list[Any] = [*unpack(data, position)]
            except struct.error:
                raise _truncated(name, data, position, step) from None
            position += step
            if adapt is not None:
                adapt(values)
            if read_groups is not None:
                position = read_groups(data, position, values)
            if read_data is not None:
                position = read_data(data, position, values)
            structs.append(construct(*values))
        return structs, position

    return decode


def _compile_heads(layout: BlockLayout, *, extensible: bool) -> Callable[[int], struct.Struct]:
    """What reads a block of a given length and the prefix behind it, if there is one."""
    fixed = block_format(layout)
    prefix = "HH" if layout.groups else "I" if layout.data else ""
    expected = layout.block_length

    def head_for(block_length: int) -> struct.Struct:
        if block_length < expected or (block_length > expected and not extensible):
            raise MalformedMessageError(
                f"{layout.name}: a block of {block_length} bytes instead of {expected}"
            )
        return struct.Struct(f"<{fixed}{block_length - expected}x{prefix}")

    return head_for


def _compile_adaptation(block: BoundBlock) -> Callable[[list[Any]], None] | None:
    """What turns the numbers of a block into the values of its struct, in place; None if nothing does."""
    conversions = _conversions(block)
    optional = _optional_fields(block.layout)
    check_limits = compile_limits(block.layout)

    def adapt(values: list[Any]) -> None:
        for index, convert in conversions:
            values[index] = convert(values[index])
        for index, nulls in optional:
            if values[index] in nulls:
                values[index] = None
        if check_limits is not None:
            check_limits(values)

    return adapt if conversions or optional or check_limits is not None else None


def _conversions(block: BoundBlock) -> list[tuple[int, Callable[[Any], Any]]]:
    conversions: list[tuple[int, Callable[[Any], Any]]] = []
    for index, field in enumerate(value_fields(block.layout)):
        if field.length != 1:
            conversions.append((index, array_struct(field).unpack))
        elif field.enum is not None:
            value_type = block.value_types[field.attribute]
            listed = {number: value_type(number) for number in field.enum.values.values()}
            if field.null is not None:
                listed[field.null] = None
            label = f"{block.layout.name}.{field.attribute}"
            conversions.append((index, _ListedValues(listed, label).__getitem__))
    return conversions


def _optional_fields(layout: BlockLayout) -> list[tuple[int, frozenset[int | None]]]:
    """The numbers that read as absent: the declared null, and the null of the primitive.

    The two differ for trace ids only: 0 is what we write, 2^64-1 what many generated codecs write because
    they don't look at declared nulls (decision B5).
    """
    return [
        (index, frozenset({field.null, field.primitive.null}))
        for index, field in enumerate(value_fields(layout))
        if field.null is not None and field.enum is None
    ]


def _compile_groups(block: BoundBlock, *, extensible: bool) -> _Reader:
    name = block.layout.name
    groups = [compile_decoder(group, extensible=extensible) for group in block.groups]
    last = len(groups) - 1

    def read_groups(data: bytes, position: int, values: list[Any]) -> int:
        count, block_length = values.pop(), values.pop()  # the first header was read with the block
        for number, decode_entries in enumerate(groups):
            entries, position = decode_entries(data, position, block_length, count)
            values.append(tuple(entries))
            if number != last:
                try:
                    block_length, count = _DIMENSIONS.unpack_from(data, position)
                except struct.error:
                    raise _truncated(name, data, position, _DIMENSIONS.size) from None
                position += _DIMENSIONS.size
        return position

    return read_groups


def _compile_data(layout: BlockLayout, may_lack_last_prefix: bool) -> _Reader:
    name = layout.name
    last = layout.data[-1].attribute
    parts = [
        (part.attribute, part.maximum, part.text, may_lack_last_prefix and part.attribute == last)
        for part in layout.data
    ]
    first_prefix_was_read = not layout.groups  # together with the block
    read_length = _LENGTH.unpack_from

    def read_data(data: bytes, position: int, values: list[Any]) -> int:
        length = values.pop() if first_prefix_was_read else None
        for attribute, maximum, text, may_lack_prefix in parts:
            if length is None:
                if may_lack_prefix and position == len(data):
                    values.append("" if text else b"")
                    return position
                try:
                    (length,) = read_length(data, position)
                except struct.error:
                    raise _truncated(name, data, position, _LENGTH.size) from None
                position += 4
            end = position + length
            if length > maximum or end > len(data):
                left = len(data) - position
                raise MalformedMessageError(
                    f"{name}.{attribute}: {length} bytes announced, {left} left, {maximum} allowed"
                )
            piece = data[position:end]
            try:
                values.append(piece.decode("ascii") if text else piece)
            except UnicodeDecodeError as e:
                raise MalformedMessageError(f"{name}.{attribute}: byte {e.start} is not US-ASCII") from None
            position = end
            length = None
        return position

    return read_data


def _truncated(name: str, data: bytes, position: int, needed: int) -> MalformedMessageError:
    left = max(0, len(data) - position)
    return MalformedMessageError(f"{name}: {left} bytes left where {needed} are needed")

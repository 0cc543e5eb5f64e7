"""A layout together with the struct that carries its values, and what decoding and encoding share."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgspec

from tensor_pool.errors import MalformedMessageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.wire.schema import BlockLayout, FieldLayout

__all__ = ["BoundBlock", "array_struct", "block_format", "compile_limits", "field_format", "value_fields"]


class BoundBlock(msgspec.Struct, frozen=True):
    """A layout and its struct; the binder has checked that they agree.

    Attributes:
        layout: What the schema says.
        struct_type: What decoding constructs, with positional arguments in wire order.
        value_types: For each attribute of fixed size int, bool or an IntEnum.
        groups: The same for the entries of each group.
    """

    layout: BlockLayout
    struct_type: type[msgspec.Struct]
    value_types: dict[str, type]
    groups: tuple[BoundBlock, ...]


def value_fields(layout: BlockLayout) -> list[FieldLayout]:
    """The fields that appear in the struct: all but padding."""
    return [field for field in layout.fields if not field.padding]


def array_struct(field: FieldLayout) -> struct.Struct:
    """Packs and unpacks the elements of an array field."""
    return struct.Struct(f"<{field.length}{field.primitive.code}")


def field_format(field: FieldLayout) -> str:
    """The `struct` format of one field; an array is one string of bytes, converted on its own."""
    if field.padding:
        return f"{field.size}x"
    return field.primitive.code if field.length == 1 else f"{field.size}s"


def block_format(layout: BlockLayout) -> str:
    """The `struct` format of a block, without its byte order."""
    codes: list[str] = []
    end = 0
    for field in layout.fields:
        codes += [_gap(field.offset - end), field_format(field)]
        end = field.offset + field.size
    return "".join([*codes, _gap(layout.block_length - end)])


def _gap(size: int) -> str:
    return f"{size}x" if size else ""


def compile_limits(layout: BlockLayout) -> Callable[[list[Any]], None] | None:
    """A check of the fields whose types narrow their primitive; None where there are none.

    It gets the values of a block in wire order; a value may be None (absent).
    """
    limited = [
        (
            index,
            field.attribute,
            field.primitive.minimum if field.minimum is None else field.minimum,
            field.primitive.maximum if field.maximum is None else field.maximum,
        )
        for index, field in enumerate(value_fields(layout))
        if field.minimum is not None or field.maximum is not None
    ]
    if not limited:
        return None

    def check(values: list[Any]) -> None:
        for index, attribute, minimum, maximum in limited:
            value = values[index]
            if value is not None and not minimum <= value <= maximum:
                raise MalformedMessageError(
                    f"{layout.name}.{attribute}: {value} is not between {minimum} and {maximum}"
                )

    return check

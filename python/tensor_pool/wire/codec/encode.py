"""Compiles a layout into a function that encodes it."""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import astuple

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire.codec.bound import (
    BoundBlock,
    array_struct,
    block_format,
    compile_limits,
    field_format,
    value_fields,
)

if TYPE_CHECKING:
    from tensor_pool.wire.schema import DataLayout, FieldLayout

__all__ = ["ENCODE_FAILURES", "Encoder", "compile_encoder", "explain"]

Encoder = Callable[[Any, list[bytes]], None]
"""Takes a struct and appends its bytes, in pieces."""

ENCODE_FAILURES: Final = (struct.error, TypeError, LookupError)
"""What packing a value of the wrong type or size raises; `explain` then says which value it was."""

_DIMENSIONS: Final = struct.Struct("<HH")
_LENGTH: Final = struct.Struct("<I")
_MAX_ENTRIES: Final = 65535


def compile_encoder(block: BoundBlock) -> Encoder:
    """The encoder of a message or of the entries of a group."""
    layout = block.layout
    fields = value_fields(layout)
    fixed = len(fields)
    first_data = fixed + len(layout.groups)
    pack = struct.Struct(f"<{block_format(layout)}").pack
    optional = [(index, field.null) for index, field in enumerate(fields) if field.null is not None]
    conversions = [
        (index, convert) for index, field in enumerate(fields) if (convert := _conversion(field)) is not None
    ]
    check_limits = compile_limits(layout)
    groups = [
        (group.struct_type, group.layout.block_length, compile_encoder(group)) for group in block.groups
    ]

    def encode(message: Any, parts: list[bytes]) -> None:
        values = list(astuple(message))
        if check_limits is not None:
            check_limits(values)
        for index, null in optional:
            if values[index] is None:
                values[index] = null
        for index, convert in conversions:
            values[index] = convert(values[index])
        parts.append(pack(*values[:fixed]))
        for (entry_type, block_length, encode_entry), entries in zip(groups, values[fixed:], strict=False):
            parts.append(_DIMENSIONS.pack(block_length, len(entries)))
            for entry in entries:
                if type(entry) is not entry_type:
                    raise TypeError
                encode_entry(entry, parts)
        for part, value in zip(layout.data, values[first_data:], strict=True):
            encoded = _encode_data(layout.name, part, value)
            parts.append(_LENGTH.pack(len(encoded)))
            parts.append(encoded)

    return encode


def _conversion(field: FieldLayout) -> Callable[[Any], Any] | None:
    if field.length != 1:
        pack = array_struct(field).pack
        return lambda elements: pack(*elements)
    if field.enum is None:
        return None
    listed = {number: number for number in field.enum.values.values()}
    if field.null is not None:
        listed[field.null] = field.null
    return listed.__getitem__


def _encode_data(name: str, part: DataLayout, value: Any) -> bytes:
    if part.text and isinstance(value, str) and value.isascii():
        encoded = value.encode("ascii")
    elif not part.text and isinstance(value, bytes | bytearray | memoryview):
        encoded = bytes(value)
    else:
        wanted = "US-ASCII text" if part.text else "bytes"
        raise MalformedMessageError(f"{name}.{part.attribute}: {_shown(value)} is not {wanted}")
    if len(encoded) > part.maximum:
        raise MalformedMessageError(
            f"{name}.{part.attribute}: {len(encoded)} bytes, but at most {part.maximum} are allowed"
        )
    return encoded


def explain(block: BoundBlock, message: Any, path: str) -> str:
    """Which value of a message can't be encoded; the slow path, so it simply tries each."""
    for field in value_fields(block.layout):
        value = getattr(message, field.attribute)
        if value is None and field.null is not None:
            continue
        convert = _conversion(field)
        try:
            struct.pack(f"<{field_format(field)}", value if convert is None else convert(value))
        except ENCODE_FAILURES:
            kind = field.primitive.name if field.enum is None else field.enum.name
            array = f"[{field.length}]" if field.length != 1 else ""
            return f"{path}.{field.attribute}: {_shown(value)} is not a {kind}{array}"
    for group, bound in zip(block.layout.groups, block.groups, strict=True):
        label = f"{path}.{group.attribute}"
        entries = getattr(message, group.attribute)
        if not isinstance(entries, tuple | list):
            return f"{label}: {_shown(entries)} is not a tuple of {bound.struct_type.__name__}"
        if len(entries) > _MAX_ENTRIES:
            return f"{label}: {len(entries)} entries, but at most {_MAX_ENTRIES} are allowed"
        for number, entry in enumerate(entries):
            if type(entry) is not bound.struct_type:
                return f"{label}[{number}]: {_shown(entry)} is not a {bound.struct_type.__name__}"
            problem = explain(bound, entry, f"{label}[{number}]")
            if problem:
                return problem
    return ""


def _shown(value: object) -> str:
    return reprlib.repr(value)

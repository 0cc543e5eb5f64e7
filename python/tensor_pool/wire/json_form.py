"""Messages, slots and superblocks as JSON: what ``tpool wire decode`` prints and ``encode`` takes back.

A message appears as ``{"kind": "message", "message": NAME, "header": {...}, "fields": {...}}``, with fields
in snake_case, enums by name, booleans as true and false, absent optional fields as null (a required field
always shows its number), groups as lists, bytes as hexadecimal text. A slot has the kind ``slot256`` and a
superblock ``superblock``; neither has a message header, and a superblock's region type is a number.
"""

from __future__ import annotations

import enum
import types
import typing
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire import framing, shm

if typing.TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KINDS", "from_json_form", "guess_kind", "to_json_form"]

JsonObject = dict[str, Any]
StructT = TypeVar("StructT", bound=msgspec.Struct)

_MESSAGE, _SLOT, _SUPERBLOCK = "message", "slot256", "superblock"
KINDS: Final = (_MESSAGE, _SLOT, _SUPERBLOCK)

_MAGIC_BYTES: Final = shm.MAGIC.to_bytes(8, "little")
_TENSOR_FIELDS: Final = ("header_bytes_length", "tensor_message_header", "tensor_header")


def guess_kind(data: bytes) -> str:
    """What bytes seem to hold, by their first bytes and their size.

    Example:
        >>> guess_kind(b"1MHSLPOT" + bytes(56)), guess_kind(bytes(256)), guess_kind(bytes(48))
        ('superblock', 'slot256', 'message')
    """
    if data.startswith(_MAGIC_BYTES):
        return _SUPERBLOCK
    if len(data) == shm.SLOT_BYTES and framing.find_template(framing.peek(data)) is None:
        return _SLOT
    return _MESSAGE


def to_json_form(data: bytes, kind: str | None = None) -> JsonObject:
    """Decodes bytes into their JSON form.

    Args:
        data: A whole message, a slot, or a region's bytes from its start.
        kind: One of `KINDS`; guessed when not given.

    Raises:
        MalformedMessageError: Not such bytes.
    """
    kind = kind or guess_kind(data)
    if kind == _SUPERBLOCK:
        superblock = shm.decode_superblock(data)
        return {
            "kind": kind,
            "fields": {**_plain_fields(superblock), "region_type": superblock.region_type.value},
        }
    if kind == _SLOT:
        return {"kind": kind, "fields": _slot_fields(shm.decode_slot(data))}
    message = framing.decode(data)
    header = framing.peek(data)
    layout = framing.message_layouts(type(message))[0]
    return {
        "kind": kind,
        "message": layout.name,
        "header": _plain_fields(header),
        "fields": _plain_fields(message),
    }


def from_json_form(form: object) -> bytes:
    """Encodes a JSON form; the inverse of `to_json_form`.

    Without a kind it is what the other keys show. ``header.block_length`` chooses the dialect; without a
    header it is the one that we write by default. Keys about the bytes (file, size, sha256) are ignored.

    Raises:
        MalformedMessageError: Something is missing, unknown, of the wrong type, or out of range.

    Example:
        >>> form = {"message": "SequenceMergeMapRequest", "fields": {"out_stream_id": 1, "epoch": 2}}
        >>> from_json_form(form).hex(" ", 4)
        '0c000200 87030100 01000000 02000000 00000000'
    """
    outer = _object(form, "the form")
    fields = _object(outer.get("fields"), "fields")
    kind = outer.get("kind") or _kind_of(outer, fields)
    if kind == _SUPERBLOCK:
        return shm.encode_superblock(_build(shm.ShmRegionSuperblock, fields, "fields"))
    if kind == _SLOT:
        return _encode_slot_fields(fields)
    if kind == _MESSAGE:
        return _encode_message(outer, fields)
    raise MalformedMessageError(f"kind: {kind!r} is none of {', '.join(KINDS)}")


# --- to JSON ----------------------------------------------------------------------------------------------


def _plain_fields(value: msgspec.Struct) -> JsonObject:
    return {name: _plain(getattr(value, name)) for name in sorted(value.__struct_fields__)}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, msgspec.Struct):
        return _plain_fields(value)
    return value


def _slot_fields(slot: shm.Slot) -> JsonObject:
    fields = _plain_fields(slot.header)
    del fields["header_bytes"]
    return {
        **fields,
        "header_bytes_length": len(slot.header.header_bytes),
        "tensor_message_header": _plain(slot.tensor_message_header),
        "tensor_header": _plain(slot.tensor_header),
    }


# --- from JSON --------------------------------------------------------------------------------------------


def _kind_of(outer: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    if "message" in outer:
        return _MESSAGE
    return _SUPERBLOCK if "magic" in fields else _SLOT if "seq_commit" in fields else _MESSAGE


def _encode_message(outer: Mapping[str, Any], fields: Mapping[str, Any]) -> bytes:
    name = outer.get("message")
    header = _build(framing.MessageHeader, outer["header"], "header") if outer.get("header") else None
    block_length = header.block_length if header else None
    found = framing.message_type(name, block_length=block_length) if isinstance(name, str) else None
    if found is None:
        block = f" with a block of {block_length} bytes" if header else ""
        raise MalformedMessageError(f"message: there is no message {name!r}{block}")
    encoded = framing.encode(_build(found, fields, "fields"), block_length=block_length)
    if header is not None and framing.peek(encoded) != header:
        raise MalformedMessageError(f"header: that of {name} is {framing.peek(encoded)}")
    return encoded


def _encode_slot_fields(fields: Mapping[str, Any]) -> bytes:
    tensor = fields.get("tensor_header")
    header_bytes = b""
    if tensor is not None:
        header_bytes = shm.encode_tensor_header(_build(shm.TensorHeader, tensor, "fields.tensor_header"))
    expected = {"header_bytes_length": len(header_bytes)}
    if tensor is not None:
        expected["tensor_message_header"] = _plain(framing.peek(header_bytes))
    for name, value in expected.items():
        if fields.get(name, value) != value:
            raise MalformedMessageError(f"fields.{name}: {fields[name]} must be {value}")
    fixed = {name: value for name, value in fields.items() if name not in _TENSOR_FIELDS}
    header = _build(shm.SlotHeader, {**fixed, "header_bytes": header_bytes.hex()}, "fields")
    return shm.encode_slot(header)


def _object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedMessageError(f"{path}: an object is needed")
    return value


@cache
def _fields_of(struct_type: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(struct_type)}


def _build(struct_type: type[StructT], value: object, path: str) -> StructT:
    """A struct from an object with its fields; what has a default may be missing."""
    given = _object(value, path)
    fields = _fields_of(struct_type)
    for name in given:
        if name not in fields:
            hint = f"one of {', '.join(fields)}"
            raise MalformedMessageError(f"{path}.{name}: there is no such field", hint=hint)
    for name, field in fields.items():
        if field.required and name not in given:
            raise MalformedMessageError(f"{path}.{name}: missing")
    return struct_type(
        **{name: _convert(fields[name].type, value, f"{path}.{name}") for name, value in given.items()}
    )


def _convert(wanted: Any, value: Any, path: str) -> Any:
    if isinstance(wanted, types.UnionType):
        return None if value is None else _convert(typing.get_args(wanted)[0], value, path)
    if typing.get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise MalformedMessageError(f"{path}: a list is needed")
        inner = typing.get_args(wanted)[0]
        return tuple(_convert(inner, element, f"{path}[{index}]") for index, element in enumerate(value))
    if issubclass(wanted, msgspec.Struct):
        return _build(wanted, value, path)
    if issubclass(wanted, enum.Enum):
        return _enum_member(wanted, value, path)
    if wanted is bytes and isinstance(value, str):
        return _from_hex(value, path)
    if type(value) is not wanted:
        needed = {int: "a whole number", bool: "true or false", str: "text", bytes: "hexadecimal text"}
        raise MalformedMessageError(f"{path}: {needed[wanted]} is needed")
    return value


def _enum_member(wanted: type[enum.Enum], value: Any, path: str) -> enum.Enum:
    for member in wanted:
        if value == member.name or (type(value) is int and value == member.value):
            return member
    names = ", ".join(wanted.__members__)
    raise MalformedMessageError(f"{path}: {value!r} is none of {names}")


def _from_hex(value: str, path: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise MalformedMessageError(f"{path}: not hexadecimal text") from None

"""Binds structs to layouts: refuses a struct whose fields, types, enums or nulls differ from its schema.

Messages are written by hand so that editors and type checkers see them; the schema stays the source of
truth, because a struct that drifted from it does not survive its import.

How a schema appears in Python:

====================================  =======================================================
integer                               ``int``
enum ``Bool`` {FALSE=0, TRUE=1}       ``bool``
other enum                            an ``IntEnum`` with the same names and numbers
optional field of type T              ``T | None``
array                                 ``tuple[int, ...]``
group                                 ``tuple[Entry, ...]`` with `Entry` a `GroupEntry`
text, bytes of variable length        ``str``, ``bytes``; absent is empty [WIRE-10.1-6]
padding, constant                     nothing
====================================  =======================================================
"""

from __future__ import annotations

import enum
import types
import typing
from typing import Any, Final

import msgspec

from tensor_pool.errors import SchemaError
from tensor_pool.wire.codec import BoundBlock

if typing.TYPE_CHECKING:
    from tensor_pool.wire.schema import BlockLayout, EnumLayout, FieldLayout

__all__ = ["GroupEntry", "Message", "ShmStructure", "bind"]

_BOOL: Final = {"FALSE": 0, "TRUE": 1}


class _WireStruct(msgspec.Struct, frozen=True, gc=False):
    """Immutable, and never part of a reference cycle, so the garbage collector need not know it."""


class Message(_WireStruct, frozen=True, gc=False):
    """A message with the 8-byte header in front: everything that travels over Aeron [WIRE-10-1]."""


class GroupEntry(_WireStruct, frozen=True, gc=False):
    """An entry of a group inside a message."""


class ShmStructure(_WireStruct, frozen=True, gc=False):
    """A structure in shared memory, without a message header of its own."""


def bind(struct_type: type[msgspec.Struct], layout: BlockLayout) -> BoundBlock:
    """Checks a struct against a layout.

    Raises:
        SchemaError: They differ; the message says where.

    Example:
        >>> from tensor_pool.wire.messages import FrameDescriptor
        >>> from tensor_pool.wire.schema import compiled_layout
        >>> bind(FrameDescriptor, compiled_layout("QosProducer"))
        Traceback (most recent call last):
        tensor_pool.errors.SchemaError: FrameDescriptor has the fields stream_id, epoch, seq, ...
    """
    name = struct_type.__name__
    # Read directly rather than through `msgspec.structs.fields`, which evaluates each annotation anew and
    # takes longer than compiling all the schemas.
    annotations = struct_type.__annotations__
    if any(isinstance(annotation, str) for annotation in annotations.values()):
        hint = "leave `from __future__ import annotations` out of its module"
        raise SchemaError(f"{name}: its annotations are text, not types", hint=hint)
    fields = struct_type.__struct_fields__
    if fields != layout.attributes:
        raise SchemaError(
            f"{name} has the fields {', '.join(fields)};"
            f" {layout.name} in the schema has {', '.join(layout.attributes)}"
        )
    value_types = {
        field.attribute: _value_type(f"{name}.{field.attribute}", annotations[field.attribute], field)
        for field in layout.fields
        if not field.padding
    }
    groups = tuple(
        bind(_entry_type(f"{name}.{group.attribute}", annotations[group.attribute]), group.entry)
        for group in layout.groups
    )
    for part in layout.data:
        _require(f"{name}.{part.attribute}", annotations[part.attribute], str if part.text else bytes)
    return BoundBlock(layout, struct_type, value_types, groups)


def _value_type(label: str, annotation: Any, field: FieldLayout) -> type:
    """The type of a field's values without None: int, bool or an IntEnum."""
    if field.length != 1:
        _require(label, annotation, tuple[int, ...])
        return int
    inner = annotation
    if field.null is not None:
        alternatives = typing.get_args(annotation)
        if (
            not isinstance(annotation, types.UnionType)
            or len(alternatives) != 2
            or alternatives[1] is not type(None)
        ):
            raise SchemaError(f"{label} is optional in the schema, so its type must be `... | None`")
        inner = alternatives[0]
    if field.enum is None:
        _require(label, inner, int)
        return int
    if field.enum.values == _BOOL:
        _require(label, inner, bool)
        return bool
    return _enum_type(label, inner, field.enum)


def _enum_type(label: str, annotation: Any, layout: EnumLayout) -> type:
    if not (isinstance(annotation, type) and issubclass(annotation, enum.IntEnum)):
        raise SchemaError(f"{label} is the enum {layout.name} in the schema, not {_shown(annotation)}")
    members = {name: member.value for name, member in annotation.__members__.items()}
    if annotation.__name__ != layout.name or members != layout.values:
        raise SchemaError(
            f"{label}: {annotation.__name__} {members} is {layout.name} {layout.values} in the schema"
        )
    return annotation


def _entry_type(label: str, annotation: Any) -> type[GroupEntry]:
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        entry = arguments[0]
        if isinstance(entry, type) and issubclass(entry, GroupEntry):
            return entry
    raise SchemaError(f"{label} is a group in the schema, so its type must be tuple[<a GroupEntry>, ...]")


def _require(label: str, annotation: Any, wanted: Any) -> None:
    if annotation != wanted:
        raise SchemaError(f"{label} must be {_shown(wanted)} as in the schema, not {_shown(annotation)}")


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)

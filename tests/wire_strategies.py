"""Hypothesis strategies for messages, derived from their compiled layouts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tensor_pool.wire import Message, MessageLayout, message_layouts, message_types
from tensor_pool.wire.bind import bind
from tensor_pool.wire.codec import BoundBlock
from tensor_pool.wire.schema import DataLayout, FieldLayout

MAX_ENTRIES = 3
MAX_DATA = 40


def numbers(field: FieldLayout) -> st.SearchStrategy[int]:
    """Every number that a field can carry as a value: not its null, within its limits, edges often."""
    primitive = field.primitive
    low = primitive.minimum if field.minimum is None else field.minimum
    high = primitive.maximum if field.maximum is None else field.maximum
    drawn = st.one_of(st.integers(low, high), st.sampled_from(sorted({low, low + 1, high - 1, high})))
    if field.null is None:
        return drawn
    return drawn.filter(lambda number: number not in (field.null, primitive.null))


def values(field: FieldLayout, value_type: type) -> st.SearchStrategy[Any]:
    if field.length != 1:
        return st.tuples(*[numbers(field)] * field.length)
    if field.enum is not None:
        chosen: st.SearchStrategy[Any] = st.sampled_from(
            [value_type(number) for number in field.enum.values.values()]
        )
    else:
        chosen = numbers(field)
    return chosen if field.null is None else st.none() | chosen


def data(part: DataLayout) -> st.SearchStrategy[str | bytes]:
    longest = min(MAX_DATA, part.maximum)
    if part.text:
        return st.text(st.characters(max_codepoint=127), max_size=longest)
    return st.binary(max_size=longest)


def structs(block: BoundBlock) -> st.SearchStrategy[Any]:
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for field in block.layout.fields:
        if not field.padding:
            parts[field.attribute] = values(field, block.value_types[field.attribute])
    for group, bound in zip(block.layout.groups, block.groups, strict=True):
        parts[group.attribute] = st.lists(structs(bound), max_size=MAX_ENTRIES).map(tuple)
    for part in block.layout.data:
        parts[part.attribute] = data(part)
    return st.builds(block.struct_type, **parts)


def messages_of(struct_type: type[Message]) -> st.SearchStrategy[Any]:
    return structs(bind(struct_type, message_layouts(struct_type)[0]))


def messages() -> st.SearchStrategy[tuple[Message, MessageLayout]]:
    """A message of any type, with one of the layouts that it can be encoded in."""
    return st.one_of(
        [
            st.tuples(messages_of(struct_type), st.sampled_from(message_layouts(struct_type)))
            for struct_type in message_types()
        ]
    )

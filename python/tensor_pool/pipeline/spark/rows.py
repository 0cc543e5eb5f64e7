"""From the table of a segment's rows to rows of the format ``tensorpool``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensor_pool import _native
from tensor_pool.pipeline.spark.schema import REF, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.pipeline.record.catalogue import Catalogue
    from tensor_pool.pipeline.record.place import Pieces, Place

__all__ = ["DAMAGED", "refs_of", "strides_of", "values_of"]

DAMAGED: Final = "damaged"
"""The status of a frame whose bytes are not those that were recorded."""
_BATCH_BYTES: Final = 16 << 20
"""What travels to the JVM at once."""


def refs_of(table: pa.Table, catalogue: Catalogue, segment: Place) -> pa.RecordBatch:
    """Rows that say where tensors lie.

    Args:
        table: Rows of one segment, without metadata.
        catalogue: Of its stream.
        segment: The file.
    """
    is_frame = pc.equal(table["kind"], "frame")
    rows = table.num_rows
    fields = {
        "kind": pa.repeat("segment", rows),
        "uri": pa.repeat(segment.uri, rows),
        "offset": table["values_start"].combine_chunks(),
        "length": table["nbytes"].combine_chunks(),
        "host": pa.repeat(catalogue.host, rows),
        "boot": pa.repeat(catalogue.boot_id, rows),
        "crc32c": pc.cast(table["crc32c"], pa.int64()).combine_chunks(),
    }
    ref = pa.StructArray.from_arrays(
        list(fields.values()), fields=list(REF), mask=pc.invert(is_frame).combine_chunks()
    )
    return pa.RecordBatch.from_arrays([*_common(table, catalogue), ref], schema=arrow_schema("ref"))


def values_of(table: pa.Table, catalogue: Catalogue, pieces: Pieces) -> Iterator[pa.RecordBatch]:
    """Rows with their tensors, a few MiB at a time; damaged ones have none, and say so.

    Args:
        table: Rows of one segment, without metadata.
        catalogue: Of its stream.
        pieces: Its bytes.
    """
    schema = arrow_schema("bytes")
    common = pa.Table.from_arrays(_common(table, catalogue), schema=schema.remove(len(schema) - 1))
    places = list(
        zip(*(table[name].to_pylist() for name in ("kind", "values_start", "nbytes", "crc32c")), strict=True)
    )
    first = 0
    while first < table.num_rows:
        values: list[pa.Buffer | None] = []
        damaged = []
        total = 0
        for kind, start, nbytes, crc in places[first:]:
            if values and total + nbytes > _BATCH_BYTES:
                break
            content = pieces.read(start, nbytes) if kind == "frame" else None
            is_damaged = content is not None and (content.size != nbytes or _native.crc32c(content) != crc)
            damaged.append(is_damaged)
            values.append(None if is_damaged else content)
            total += nbytes
        part = common.slice(first, len(values)).combine_chunks()
        columns = [column.combine_chunks() for column in part.columns]
        at = part.schema.get_field_index("status")
        columns[at] = pc.if_else(pa.array(damaged), DAMAGED, columns[at])
        columns.append(_binary(values))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        first += len(values)


def _binary(values: list[pa.Buffer | None]) -> pa.Array:
    """A column of bytes; each is copied once."""
    ends = np.cumsum([0, *(0 if each is None else each.size for each in values)], dtype=np.int32)
    is_there = np.packbits([each is not None for each in values], bitorder="little")
    content = b"".join(memoryview(each) for each in values if each is not None)
    buffers = [pa.py_buffer(part) for part in (is_there, ends, content)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _common(table: pa.Table, catalogue: Catalogue) -> list[pa.Array]:
    rows = table.num_rows
    event_ns = pc.add(table["timestamp_ns"], table["realtime_offset_ns"])
    columns = {
        "stream_name": pa.repeat(catalogue.stream_name, rows),
        "event_time": _time(event_ns),
        "recorded_time": _time(table["recorded_ns"]),
        "strides": [
            strides_of(dtype, tuple(shape), order)
            for dtype, shape, order in zip(
                table["dtype"].to_pylist(),
                table["shape"].to_pylist(),
                table["order"].to_pylist(),
                strict=True,
            )
        ],
        "trace_id": _signed(table["trace_id"]),
    }
    return [
        _array(columns[field.name] if field.name in columns else table[field.name], field.type)
        for field in arrow_schema("ref")
        if field.name != "ref"
    ]


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.cast(kind) if isinstance(column, pa.Array) else pa.array(column, kind)


def _time(ns: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.divide(ns, 1_000), pa.timestamp("us", tz="UTC"))


def _signed(numbers: pa.ChunkedArray) -> pa.Array:
    """Spark has no unsigned numbers: the same 64 bits as a signed one."""
    column = numbers.combine_chunks()
    filled = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.uint64).view(np.int64)
    return pa.array(filled, mask=column.is_null().to_numpy(zero_copy_only=False))


@cache
def strides_of(dtype: str, shape: tuple[int, ...], order: str) -> list[int]:
    """The strides of a contiguous array, in bytes; none where nothing is known.

    Example:
        >>> strides_of("uint16", (480, 640), "C")
        [1280, 2]
    """
    if not dtype:
        return []
    step, strides = np.dtype(dtype).itemsize, [0] * len(shape)
    for axis in range(len(shape)) if order == "F" else reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return strides

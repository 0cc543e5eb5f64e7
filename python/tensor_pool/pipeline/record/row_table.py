"""The table of a segment's rows: everything but the bytes of frames, and where in the segment those lie.

It lies beside each sealed segment, so that what a recording holds can be listed, filtered and planned, also
from far away, without touching a tensor. It holds nothing that the segment does not, and can be made anew.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tensor_pool import _native
from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.record.catalogue import SegmentInfo
from tensor_pool.pipeline.record.rows import SCHEMA, VALUES, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.pipeline.record.place import Place

__all__ = ["ROWS", "TABLE_SCHEMA", "Located", "describe_rows", "read_row_table", "row_table", "to_bytes"]

ROWS: Final = ".rows"
"""How its file's name ends."""

TABLE_SCHEMA: Final = pa.schema(
    [
        *(field for field in SCHEMA if field.name != VALUES),
        pa.field("values_start", pa.int64(), nullable=False),
        pa.field("nbytes", pa.int64(), nullable=False),
        pa.field("attributes", pa.binary()),
    ],
    metadata=SCHEMA.metadata,
)


class Located:
    """A row, its checksums, and where its bytes lie.

    Args:
        row: The row.
        crc32c: Of its bytes.
        values_start: Where they begin in the segment.
        nbytes: How many they are.
        attributes: The bytes themselves, of metadata.
    """

    __slots__ = ("attributes", "crc32c", "nbytes", "row", "values_start")

    def __init__(
        self, row: Row, crc32c: int, values_start: int, nbytes: int, attributes: bytes | None = None
    ) -> None:
        self.row = row
        self.crc32c = crc32c
        self.values_start = values_start
        self.nbytes = nbytes
        self.attributes = attributes


def row_table(rows: Sequence[Located]) -> pa.Table:
    """The table of a segment.

    Example:
        >>> row = Row(kind="frame", stream_id=1, epoch=1, seq=5)
        >>> row_table([Located(row, crc32c=7, values_start=64, nbytes=10)]).to_pylist()[0]["values_start"]
        64
    """
    columns: dict[str, list[object]] = {
        name: [getattr(located.row, name) for located in rows] for name in Row.__struct_fields__
    }
    columns["row_crc32c"] = [located.row.crc32c for located in rows]
    for name in ("crc32c", "values_start", "nbytes", "attributes"):
        columns[name] = [getattr(located, name) for located in rows]
    arrays = [pa.array(columns[field.name], field.type) for field in TABLE_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=TABLE_SCHEMA)


def to_bytes(table: pa.Table) -> pa.Buffer:
    """The file of a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, TABLE_SCHEMA) as writer:
        writer.write_table(table)
    return sink.getvalue()


def read_row_table(stream: Place, segment: SegmentInfo) -> pa.Table:
    """The table of a segment.

    Args:
        stream: The directory of the stream.
        segment: What the catalogue says of it.

    Raises:
        MalformedMessageError: It is damaged.
        RegionError: It is not there.
        OSError: It can't be read.
    """
    place = stream.child(segment.file.partition(".")[0] + ROWS)
    try:
        content = place.read()
    except FileNotFoundError:
        if stream.local is not None and not stream.local.exists():
            raise RegionError(
                f"there is no {stream} on {platform.node()}",
                hint="recordings belong where all workers find them: a shared disk or an object store",
            ) from None
        raise RegionError(
            f"{place} is missing", hint="`tpool verify --repair` makes it anew from the segment"
        ) from None
    if _native.crc32c(content) != segment.rows_crc32c:
        raise MalformedMessageError(
            f"{place} is damaged", hint="`tpool verify --repair` makes it anew from the segment"
        )
    table = pa.ipc.open_file(pa.py_buffer(content)).read_all()
    if not table.schema.equals(TABLE_SCHEMA):
        raise MalformedMessageError(f"{place} has other columns than those of a recording")
    return table


def describe_rows(file: str, nbytes: int, rows: Sequence[Row], *, rows_crc32c: int) -> SegmentInfo:
    """What the catalogue says of a segment.

    Args:
        file: Its name.
        nbytes: How long it is.
        rows: What is in it.
        rows_crc32c: The checksum of its table.

    Raises:
        MalformedMessageError: There is neither a frame nor a gap in it.
    """
    told = [row for row in rows if row.kind != "metadata"]
    if not told:
        raise MalformedMessageError(f"{file} holds no frame")
    frames = [row for row in told if row.kind == "frame"]
    stamps = [row.timestamp_ns for row in frames] or [0]
    events = [row.timestamp_ns + row.realtime_offset_ns for row in told if row.realtime_offset_ns is not None]
    return SegmentInfo(
        file=file,
        nbytes=nbytes,
        rows=len(rows),
        frames=len(frames),
        lost=sum(row.count for row in told if row.kind == "gap"),
        first_epoch=told[0].epoch,
        last_epoch=told[-1].epoch,
        first_seq=told[0].seq,
        last_seq=told[-1].last_seq,
        min_seq=min(row.seq for row in told),
        max_seq=max(row.last_seq for row in told),
        first_timestamp_ns=stamps[0],
        last_timestamp_ns=stamps[-1],
        first_recorded_ns=rows[0].recorded_ns,
        last_recorded_ns=rows[-1].recorded_ns,
        first_event_ns=min(events, default=None),
        last_event_ns=max(events, default=None),
        rows_crc32c=rows_crc32c,
        stream_ids=tuple(sorted({row.stream_id for row in told})),
    )

"""What a recording's rows are, and how frames, gaps and metadata become Arrow record batches.

A segment holds one row in each record batch, so that the bytes of a frame lie in one piece and can be mapped
where they are. Every segment begins with the metadata of the moment and can be understood by itself.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from tensor_pool import _native

__all__ = ["FORMAT_VERSION", "SCHEMA", "VALUES", "Row", "RowKind", "checksum", "to_batch"]

FORMAT_VERSION: Final = 1
"""Grows when older programs could not read what newer ones write; newer ones read all that came before."""

RowKind = Literal["frame", "gap", "metadata"]
VALUES: Final = "values"
"""The one column with the bytes of frames; the last one, so that they end where their message ends."""

SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("stream_id", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("timestamp_ns", pa.int64(), nullable=False),
        pa.field("recorded_ns", pa.int64(), nullable=False),
        pa.field("realtime_offset_ns", pa.int64()),
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("shape", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
        pa.field("order", pa.string(), nullable=False),
        pa.field("meta_version", pa.int64(), nullable=False),
        pa.field("trace_id", pa.uint64()),
        pa.field("row_crc32c", pa.uint32(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
        pa.field(VALUES, pa.binary(), nullable=False),
    ],
    metadata={"tensorpool.recording": str(FORMAT_VERSION)},
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a segment without its bytes.

    Example:
        >>> gap = Row(kind="gap", stream_id=10000, epoch=7, seq=40, count=3, status="overwritten")
        >>> gap.last_seq
        42
    """

    kind: RowKind
    stream_id: int
    epoch: int
    seq: int
    """Of a frame, or the first one of a gap."""
    count: int = 1
    """How many frames it stands for: 1, the length of a gap, 0 for metadata."""
    status: str = "ok"
    """Why frames are missing, for a gap."""
    timestamp_ns: int = 0
    """The frame's own time stamp, on the clock that the metadata names."""
    recorded_ns: int = 0
    """When it was recorded, real time."""
    realtime_offset_ns: int | None = None
    """Real time minus the clock of the time stamp; None when that clock is no clock of a computer."""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    order: str = "C"
    meta_version: int = 0
    trace_id: int | None = None

    @property
    def crc32c(self) -> int:
        """The checksum of everything that a row says, as a list in JSON; that of its bytes is another one."""
        return _native.crc32c(msgspec.json.encode(msgspec.structs.astuple(self)))

    def extended(self, other: Row) -> Row | None:
        """Both gaps as one, if the other one follows at once and for the same reason.

        Example:
            >>> gap = Row(kind="gap", stream_id=1, epoch=1, seq=5, count=2, status="lost")
            >>> gap.extended(msgspec.structs.replace(gap, seq=7)).count
            4
        """
        if (self.epoch, self.last_seq + 1, self.status) != (other.epoch, other.seq, other.status):
            return None
        return msgspec.structs.replace(self, count=self.count + other.count)

    @property
    def last_seq(self) -> int:
        """The last one of a gap; that of a frame."""
        return self.seq + max(self.count, 1) - 1


def checksum(values: Any) -> int:
    """The checksum of a frame's bytes as they lie in memory.

    Example:
        >>> hex(checksum(b"123456789"))
        '0xe3069283'
    """
    return _native.crc32c(pa.py_buffer(values))


def to_batch(row: Row, values: Any = b"", crc32c: int | None = None) -> tuple[pa.RecordBatch, int]:
    """A row and its bytes as a record batch that does not copy them, and their checksum.

    Args:
        row: The row.
        values: Anything with a contiguous buffer.
        crc32c: Their checksum, if it is known.

    Example:
        >>> batch, crc = to_batch(Row(kind="frame", stream_id=1, epoch=1, seq=5), b"123456789")
        >>> batch.num_rows, batch["seq"][0].as_py(), hex(crc)
        (1, 5, '0xe3069283')
    """
    data = pa.py_buffer(values)
    crc = checksum(data) if crc32c is None else crc32c
    columns = [pa.array([getattr(row, name)], SCHEMA.field(name).type) for name in Row.__struct_fields__]
    columns += [pa.array([row.crc32c], pa.uint32()), pa.array([crc], pa.uint32())]
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, ends, data]))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), crc

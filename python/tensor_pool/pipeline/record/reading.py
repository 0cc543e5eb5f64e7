"""Reading segments: sealed ones through their footer, open ones up to their last whole row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tensor_pool import _native
from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.record.row_table import Located, describe_rows, row_table, to_bytes
from tensor_pool.pipeline.record.rows import FORMAT_VERSION, SCHEMA, VALUES, Row
from tensor_pool.pipeline.record.segment import OPEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.catalogue import SegmentInfo

__all__ = ["RecordedRow", "describe_segment", "read_rows"]

_MAGIC: Final = b"ARROW1\0\0"
_VERSION_KEY: Final = b"tensorpool.recording"


class RecordedRow(NamedTuple):
    """A row and where its bytes are."""

    row: Row
    values: pa.Buffer
    """Mapped from the file, not copied."""
    row_crc32c: int
    crc32c: int
    values_start: int
    """Where they are in the segment."""

    @property
    def located(self) -> Located:
        """What the table of rows says of it."""
        attributes = bytes(self.values) if self.row.kind == "metadata" else None
        return Located(self.row, self.crc32c, self.values_start, self.values.size, attributes)

    @property
    def is_true(self) -> bool:
        """Whether the row without its bytes is the one that was recorded."""
        return self.row.crc32c == self.row_crc32c

    @property
    def is_whole(self) -> bool:
        """Whether the row and its bytes are those that were recorded."""
        return self.is_true and _native.crc32c(self.values) == self.crc32c

    @property
    def array(self) -> NDArray[Any]:
        """The frame, as a read-only view of the file."""
        flat: NDArray[Any] = np.frombuffer(self.values, self.row.dtype)
        order: Any = self.row.order
        return flat[: int(np.prod(self.row.shape))].reshape(self.row.shape, order=order)


def read_rows(path: Path) -> Iterator[RecordedRow]:
    """The rows of a segment in their order; of an open one, those that are whole.

    Raises:
        MalformedMessageError: That is no segment, or a damaged one.
        OSError: It can't be read.
    """
    is_open = path.name.endswith(OPEN)
    with pa.memory_map(str(path), "r") as file:
        if file.size() < len(_MAGIC):
            if is_open:
                return
            raise MalformedMessageError(f"{path} is empty")
        begin = file.read_buffer().address
        file.seek(0)
        try:
            for batch in _open_batches(file) if is_open else _sealed_batches(file):
                yield _row(batch, begin)
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as e:
            raise MalformedMessageError(
                f"{path} is damaged: {e}", hint="`tpool verify` tells what of it can be read"
            ) from None


def _sealed_batches(file: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    reader = pa.ipc.open_file(file)
    _check_schema(reader.schema)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _open_batches(file: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    """Without a footer: message after message, until one is not whole."""
    file.seek(len(_MAGIC))
    try:
        reader = pa.ipc.open_stream(file)
        _check_schema(reader.schema)
        while True:
            yield reader.read_next_batch()
    except (StopIteration, pa.ArrowInvalid, OSError, EOFError):
        return


def _check_schema(schema: pa.Schema) -> None:
    written = (schema.metadata or {}).get(_VERSION_KEY, b"")
    if not written.isdigit():
        raise ValueError("no segment of a recording")
    if int(written) > FORMAT_VERSION:
        raise ValueError(f"format {int(written)}, and this release reads up to {FORMAT_VERSION}")
    if not schema.equals(SCHEMA, check_metadata=False):
        raise ValueError("its columns are not those of a recording")


def _row(batch: pa.RecordBatch, begin: int) -> RecordedRow:
    batch.validate(full=True)  # before anything of it is believed: what it says of lengths may be wrong
    if batch.num_rows != 1:
        raise ValueError(f"{batch.num_rows} rows in one batch")
    fields = {name: batch.column(name)[0].as_py() for name in batch.schema.names if name != VALUES}
    crcs = fields.pop("row_crc32c"), fields.pop("crc32c")
    fields["shape"] = tuple(fields["shape"])
    values = _bytes_of(batch.column(VALUES))
    return RecordedRow(Row(**fields), values, *crcs, values.address - begin if values.size else 0)


def _bytes_of(column: pa.BinaryArray) -> pa.Buffer:
    """The bytes of a column's only row where they lie; asking the column for it would copy them."""
    _, ends, data = column.buffers()
    start, end = (int(at) for at in np.frombuffer(ends, np.int32)[column.offset :][:2])
    if data is None:
        return pa.py_buffer(b"")
    if not 0 <= start <= end <= data.size:
        raise ValueError(f"bytes from {start} to {end} of {data.size}")
    return data.slice(start, end - start)


def describe_segment(path: Path) -> tuple[SegmentInfo, pa.Buffer]:
    """What the catalogue says of a segment, and the table of its rows, both made anew from its rows.

    Rows that are damaged themselves are left out: nothing that they say can be believed.

    Raises:
        MalformedMessageError: It is damaged, or empty.
        OSError: It can't be read.
    """
    rows = [recorded.located for recorded in read_rows(path) if recorded.is_true]
    table = to_bytes(row_table(rows))
    info = describe_rows(
        path.name,
        path.stat().st_size,
        [located.row for located in rows],
        rows_crc32c=_native.crc32c(table),
    )
    return info, table

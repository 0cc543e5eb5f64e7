"""A stream as one Parquet file: a row for each frame and each gap, in row groups of bounded size."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tensor_pool.pipeline.record.formats.metadata_lines import MetadataLines
from tensor_pool.pipeline.record.formats.writer import COLUMNS, StreamWriter, bytes_of, describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.formats.writer import StreamOutput
    from tensor_pool.pipeline.record.recording import RecordedFrame

__all__ = ["ParquetFile"]

_GROUP_BYTES: Final = 32 << 20
_GROUP_ROWS: Final = 10_000
_SCHEMA: Final = COLUMNS.append(pa.field("values", pa.large_binary()))


class ParquetFile(StreamWriter):
    """``camera-1.parquet``; the column ``values`` has the bytes of frames, and nothing for gaps.

    Neither dictionaries nor statistics are made of the bytes: both cost time, and help nobody.

    Args:
        output: Where to.
    """

    def __init__(self, output: StreamOutput) -> None:
        self.name = f"{output.file}.parquet"
        self._stream = output.stream
        self._rows: list[dict[str, Any]] = []
        self._nbytes = 0
        self._resources = contextlib.ExitStack()
        metadata = MetadataLines(output.directory / f"{output.file}.metadata.jsonl")
        self._metadata = self._resources.enter_context(metadata)
        writer = pq.ParquetWriter(
            output.directory / self.name,
            _SCHEMA,
            compression=output.compression,
            use_dictionary=False,
            write_statistics=[name for name in COLUMNS.names if name != "shape"],
        )
        self._writer = self._resources.enter_context(writer)

    def write(self, frame: RecordedFrame, array: NDArray[Any]) -> None:
        """See `StreamWriter`."""
        self._metadata.note(frame)
        values = bytes_of(array)
        if self._rows and self._nbytes + values.nbytes > _GROUP_BYTES:
            self._write_group()
        self._nbytes += values.nbytes
        self._add(describe(self._stream, frame) | {"values": values.data})

    def miss(self, gap: RecordedFrame, status: str) -> None:
        """See `StreamWriter`."""
        self._add(describe(self._stream, gap, status) | {"values": None})

    def finish(self) -> None:
        """See `StreamWriter`."""
        self._write_group()
        self._writer.close()

    def close(self) -> None:
        """Closes the files. May be called again."""
        self._resources.close()

    def _add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, _SCHEMA), row_group_size=_GROUP_ROWS)
        self._rows.clear()
        self._nbytes = 0

"""A stream as one Arrow IPC file, with frames as tensors where Arrow has such."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tensor_pool.pipeline.record.formats.frame_lines import FrameLines
from tensor_pool.pipeline.record.formats.metadata_lines import MetadataLines
from tensor_pool.pipeline.record.formats.writer import COLUMNS, StreamWriter, bytes_of, describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.contents import Layout
    from tensor_pool.pipeline.record.formats.writer import StreamOutput
    from tensor_pool.pipeline.record.recording import RecordedFrame

__all__ = ["ArrowFile"]

_BATCH_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 1024


class ArrowFile(StreamWriter):
    """``camera-1.arrow``, a row for each frame; gaps and damaged frames are in ``camera-1.missing.csv``.

    Frames of one element type and shape are of type ``arrow.fixed_shape_tensor``, others are bytes.

    Args:
        output: Where to.
    """

    def __init__(self, output: StreamOutput) -> None:
        self.name = f"{output.file}.arrow"
        self._stream = output.stream
        self._tensor = _tensor_type(output.contents.layout)
        values = pa.field("values", pa.large_binary() if self._tensor is None else self._tensor)
        self._schema = COLUMNS.append(values)
        self._rows: list[dict[str, Any]] = []
        self._arrays: list[NDArray[Any]] = []
        self._nbytes = 0
        self._resources = contextlib.ExitStack()
        beside = output.directory / output.file
        metadata = MetadataLines(beside.with_name(f"{output.file}.metadata.jsonl"))
        self._metadata = self._resources.enter_context(metadata)
        missing = FrameLines(beside.with_name(f"{output.file}.missing.csv"), output.stream)
        self._missing = self._resources.enter_context(missing)
        options = pa.ipc.IpcWriteOptions(
            compression=None if output.compression == "none" else output.compression
        )
        sink = self._resources.enter_context(pa.OSFile(str(output.directory / self.name), "wb"))
        writer = pa.ipc.new_file(sink, self._schema, options=options)
        self._writer = self._resources.enter_context(writer)

    def write(self, frame: RecordedFrame, array: NDArray[Any]) -> None:
        """See `StreamWriter`."""
        self._metadata.note(frame)
        if self._rows and self._nbytes + array.nbytes > _BATCH_BYTES:
            self._write_batch()
        self._rows.append(describe(self._stream, frame))
        self._arrays.append(array)
        self._nbytes += array.nbytes
        if len(self._rows) >= _BATCH_ROWS:
            self._write_batch()

    def miss(self, gap: RecordedFrame, status: str) -> None:
        """See `StreamWriter`."""
        self._missing.add(gap, status)

    def finish(self) -> None:
        """See `StreamWriter`."""
        self._write_batch()
        self._writer.close()

    def close(self) -> None:
        """Closes the files. May be called again."""
        self._resources.close()

    def _write_batch(self) -> None:
        if self._rows:
            about = pa.RecordBatch.from_pylist(self._rows, COLUMNS)
            columns = [*about.columns, self._values()]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows.clear()
        self._arrays.clear()
        self._nbytes = 0

    def _values(self) -> pa.Array:
        if self._tensor is None:
            return pa.array([bytes_of(array).data for array in self._arrays], pa.large_binary())
        flat = [np.ascontiguousarray(array).reshape(-1) for array in self._arrays]
        joined = pa.array(flat[0] if len(flat) == 1 else np.concatenate(flat))
        storage = pa.FixedSizeListArray.from_arrays(joined, self._tensor.storage_type.list_size)
        return pa.ExtensionArray.from_storage(self._tensor, storage)


def _tensor_type(layout: Layout | None) -> pa.FixedShapeTensorType | None:
    """The type of frames of one layout; Arrow packs booleans into bits, and has no use for empty tensors."""
    if layout is None or layout.dtype == "bool" or 0 in layout.shape:
        return None
    return pa.fixed_shape_tensor(pa.from_numpy_dtype(np.dtype(layout.dtype)), layout.shape)

"""Writes the Parquet files of one task, at least one for each split that it has frames of."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.errors import FrameTooLargeError, RegionError, TensorLayoutError
from tensor_pool.pipeline.dataset.report import FileInfo, Report, add_hashes
from tensor_pool.pipeline.dataset.row_hash import hash_rows
from tensor_pool.pipeline.dataset.schema import VALUES
from tensor_pool.pipeline.dataset.splits import time_us
from tensor_pool.runtime.faults import fault_point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tensor_pool.pipeline.dataset.options import DatasetOptions
    from tensor_pool.pipeline.record.place import Place

__all__ = ["SplitFiles", "stream_of"]

_LARGEST_CELL: Final = (1 << 31) - 64
_REPEATED: Final = ["stream_name", "dtype", "order", "status", "split"]
"""Columns in which the same few words stand again and again."""


def stream_of(row: Mapping[str, Any]) -> str:
    """What a stream is called in splits and reports: its name, or its number when it has none.

    Example:
        >>> stream_of({"stream_name": "", "stream_id": 10_000})
        '10000'
    """
    return row["stream_name"] or str(row["stream_id"])


class SplitFiles(Closing):
    """The files of one task.

    Args:
        place: The training set.
        schema: Its columns.
        options: How.

    Example:
        >>> import tempfile
        >>> from tensor_pool.pipeline.dataset.options import DatasetOptions
        >>> from tensor_pool.pipeline.dataset.schema import dataset_schema
        >>> from tensor_pool.pipeline.dataset.splits import hash_splits
        >>> from tensor_pool.pipeline.record.place import Place
        >>> row = {"stream_id": 1, "stream_name": "camera-1", "epoch": 1, "seq": 5, "timestamp_ns": 0,
        ...     "event_time": None, "recorded_time": None, "meta_version": 0, "trace_id": None}
        >>> options = DatasetOptions(splits=hash_splits({"train": 1.0}))
        >>> with tempfile.TemporaryDirectory() as name:
        ...     with SplitFiles(Place(name), dataset_schema(), options) as files:
        ...         files.add(row, np.zeros((2, 3), "uint8"))
        ...         files.finish().files[0].tensor_bytes
        6
    """

    def __init__(self, place: Place, schema: pa.Schema, options: DatasetOptions) -> None:
        self._place = place
        self._schema = schema
        self._options = options
        self._open: dict[str, _SplitFile] = {}
        self._written: list[FileInfo] = []
        self._is_finished = False
        self.report: Final = Report()
        """What became of the frames of this task so far, without the files."""

    def add(self, row: Mapping[str, Any], array: NDArray[Any], *, crc32c: int | None = None) -> None:
        """Writes a frame.

        Args:
            row: A row of the format ``tensorpool``.
            array: Its tensor, or what became of it.
            crc32c: The checksum of its bytes, if it is known.

        Raises:
            TensorLayoutError: An array of objects has no bytes.
            FrameTooLargeError: Parquet has no cells of 2 GiB and more.
            OSError: It can't be written.
        """
        array = _native_bytes(array, row)
        if array.nbytes > _LARGEST_CELL:
            raise FrameTooLargeError(
                f"frame {row['seq']} of {stream_of(row)} has {array.nbytes} bytes",
                hint="Parquet takes less than 2 GiB; let a transform cut or shrink it",
            )
        stream = stream_of(row)
        time = row["event_time"] or row["recorded_time"]
        moment = None if time is None else time_us(time)
        split = self._options.splits.of_frame(stream, row["epoch"], row["seq"], moment)
        file = self._open.get(split)
        if file is None:
            file = self._open[split] = _SplitFile(self._place, split, self._schema, self._options)
        file.add(row, array, crc32c)
        frames = self.report.counts(stream).frames
        frames[split] = frames.get(split, 0) + 1
        if file.nbytes >= self._options.file_bytes:
            self._written.append(self._open.pop(split).finish())

    def finish(self) -> Report:
        """Closes all files; what was written.

        Raises:
            OSError: It can't be written.
        """
        while self._open:
            self._written.append(self._open.popitem()[1].finish())
        self._is_finished = True
        self.report.files = list(self._written)
        return self.report

    def close(self) -> None:
        """Removes what was written, unless it was finished. May be called again."""
        if self._is_finished:
            return
        for file in self._open.values():
            file.abandon()
        for info in self._written:
            with contextlib.suppress(OSError):
                self._place.filesystem.delete_file(f"{self._place.path}/{info.path}")
        self._open.clear()
        self._written.clear()


class _SplitFile:
    """One Parquet file; rows wait until they are a row group."""

    def __init__(self, place: Place, split: str, schema: pa.Schema, options: DatasetOptions) -> None:
        self._split = split
        self._schema = schema
        self._options = options
        self._name = f"{split}/{uuid.uuid4().hex}.parquet"
        self._filesystem = place.filesystem
        self._path = f"{place.path}/{self._name}"
        if isinstance(self._filesystem, pafs.LocalFileSystem):
            self._filesystem.create_dir(f"{place.path}/{split}")
        try:
            self._sink = self._filesystem.open_output_stream(self._path)
        except OSError as e:
            raise RegionError(
                f"can't write {place.child(self._name)}: {e}",
                hint="every worker writes into the training set",
            ) from None
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=options.compression,
            use_dictionary=_REPEATED,
            write_statistics=[name for name in schema.names if name not in {VALUES, "shape", "strides"}],
        )
        self._rows: list[dict[str, Any]] = []
        self._values: list[pa.Array] = []
        self._waiting = 0
        self._small: list[pa.Table] = []
        """All columns but the values, of what was written."""
        self._tensor_bytes = 0
        self._row_groups: list[int] = []
        self._keys: list[tuple[str, int, int]] = []

    @property
    def nbytes(self) -> int:
        """About how long it is."""
        return self._tensor_bytes

    def add(self, row: Mapping[str, Any], array: NDArray[Any], crc32c: int | None) -> None:
        nbytes, limit = array.nbytes, self._options.row_group_bytes
        if self._rows and self._waiting + nbytes > limit:
            self._flush()
        order: Literal["C", "F"] = "F" if array.flags.fnc else "C"
        array = np.asarray(array, order=order)
        values = pa.py_buffer(array.reshape(-1, order=order).view("u1"))
        self._values.append(_cell(values))
        self._rows.append(
            {
                **{name: row[name] for name in self._schema.names if name in row and name != VALUES},
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "strides": list(array.strides),
                "order": order,
                "nbytes": nbytes,
                "status": "ok",
                "count": 1,
                "split": self._split,
                "crc32c": _native.crc32c(values) if crc32c is None else crc32c,
            }
        )
        self._waiting += nbytes
        self._tensor_bytes += nbytes
        self._keys.append((stream_of(row), row["epoch"], row["seq"]))
        if self._waiting >= limit:
            self._flush()

    def finish(self) -> FileInfo:
        self._flush()
        self._writer.close()
        nbytes = self._sink.tell()
        self._sink.close()
        return FileInfo(
            path=self._name,
            split=self._split,
            rows=len(self._keys),
            nbytes=nbytes,
            tensor_bytes=self._tensor_bytes,
            hash=add_hashes([f"{hash_rows(pa.concat_tables(self._small)):x}"]),
            row_groups=tuple(self._row_groups),
            first=min(self._keys),
            last=max(self._keys),
        )

    def abandon(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
            self._sink.close()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._path)

    def _flush(self) -> None:
        if not self._rows:
            return
        at = self._schema.get_field_index(VALUES)
        small = pa.Table.from_pylist(self._rows, self._schema.remove(at))
        self._small.append(small)
        # One chunk a tensor: the writer copies it from where it lies, and nothing is put together before.
        values = pa.chunked_array(self._values, pa.binary())
        columns = [*small.columns[:at], values, *small.columns[at:]]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        fault_point("dataset.in_file")
        self._writer.write_table(table, row_group_size=len(self._rows))
        self._row_groups.append(len(self._rows))
        self._rows, self._values, self._waiting = [], [], 0


def _native_bytes(array: NDArray[Any], row: Mapping[str, Any]) -> NDArray[Any]:
    """The same numbers in this machine's order of bytes, which the name of a type does not tell."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        is_known = np.dtype(array.dtype.name) == array.dtype and not array.dtype.hasobject
    except TypeError:
        is_known = False
    if not is_known:
        raise TensorLayoutError(
            f"frame {row['seq']} of {stream_of(row)} is an array of {array.dtype}",
            hint="numbers can be written; let the transform return those",
        )
    return array


def _cell(values: pa.Buffer) -> pa.Array:
    """A column of one value, which is not copied."""
    ends = pa.py_buffer(np.array([0, values.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, values])

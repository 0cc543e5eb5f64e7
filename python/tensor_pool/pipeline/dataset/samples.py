"""Samples of a training set by number, read from wherever it lies."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tensor_pool import _native
from tensor_pool.errors import ConfigError, MalformedMessageError, RegionError
from tensor_pool.pipeline.dataset.log import load_manifest
from tensor_pool.pipeline.dataset.schema import COLUMNS, VALUES
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.recording import as_array

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Sample", "Samples"]

_NEEDED: Final = ("stream_name", "stream_id", "epoch", "seq", "dtype", "shape", "order", "split", "crc32c")
_MOST_OPEN: Final = 64


class Sample(dict[str, Any]):
    """The columns of a row, and its tensor."""

    __slots__ = ("array",)

    def __init__(self, columns: Mapping[str, Any], array: NDArray[Any]) -> None:
        super().__init__(columns)
        self.array: Final = array
        """The tensor, read-only."""


class Samples(Sequence[Sample]):
    """All samples of a split, in the order in which they were written.

    Args:
        path: The training set: a directory, or a URI that pyarrow and `deltalake` know.
        split: Its name; None for all splits.
        columns: More columns of each row, such as labels or ``event_time``.
        version: Of the Delta table; by default the newest.
        check: Compare tensors with their checksums.
        cache_bytes: Row groups that are kept in memory: those that are mixed should fit.
        storage_options: Of `deltalake`, beyond what the URI says.

    Raises:
        RegionError: There is no training set.
        ConfigError: It has no such split or column.

    Example:
        >>> samples = Samples("dataset", split="train")  # doctest: +SKIP
        >>> samples[0].array.shape, samples[0]["seq"]  # doctest: +SKIP
        ((480, 640), 17)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        columns: Sequence[str] = (),
        version: int | None = None,
        check: bool = True,
        cache_bytes: int = 256 << 20,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.manifest: Final = load_manifest(path, version=version, storage_options=storage_options)
        if split is not None and split not in self.manifest.frames:
            raise ConfigError(
                f"there is no split {split!r}", hint=f"there are {', '.join(self.manifest.frames)}"
            )
        known = {*COLUMNS, *self.manifest.options.columns} - {VALUES}
        unknown = sorted(set(columns) - known)
        if unknown:
            raise ConfigError(
                f"there is no column {unknown[0]!r}", hint=f"there are {', '.join(sorted(known))}"
            )
        self._place = Place(path)
        self._check = check
        self._columns = [*dict.fromkeys([*_NEEDED, *columns])]
        self._files = [file for file in self.manifest.files if split in (None, file.split)]
        self.row_groups: Final = tuple(rows for file in self._files for rows in file.row_groups)
        """How many samples each row group has."""
        self._file_of_group = np.repeat(
            np.arange(len(self._files)), [len(file.row_groups) for file in self._files]
        )
        self._first_group = np.cumsum([0, *(len(file.row_groups) for file in self._files)])
        self._first_sample = np.cumsum([0, *self.row_groups])
        self._cache_bytes = cache_bytes
        self._start_reading()

    def _start_reading(self) -> None:
        self._open: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self._read: OrderedDict[int, pa.Table] = OrderedDict()
        self._read_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        """For worker processes: without open files."""
        return {key: value for key, value in self.__dict__.items() if key not in {"_open", "_read"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_reading()

    def __len__(self) -> int:
        return int(self._first_sample[-1])

    def __getitem__(self, number: Any) -> Any:
        """A sample by its number.

        Raises:
            IndexError: There is none of that number.
            MalformedMessageError: It is damaged.
            RegionError: Its file is missing.
        """
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        index = number + len(self) if number < 0 else number
        if not 0 <= index < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        group = int(np.searchsorted(self._first_sample, index, side="right")) - 1
        table = self._group(group)
        at = int(index - self._first_sample[group])
        (row,) = table.slice(at, 1).drop_columns(VALUES).to_pylist()
        values = table[VALUES][at].as_buffer()
        if self._check and _native.crc32c(values) != row["crc32c"]:
            raise MalformedMessageError(
                f"frame {row['seq']} in {self._files[self._file_of_group[group]].path} is damaged",
                hint="verify_dataset lists all files that are",
            )
        return Sample(row, as_array(values, row["dtype"], tuple(row["shape"]), row["order"]))

    def _group(self, group: int) -> pa.Table:
        table = self._read.get(group)
        if table is None:
            file = int(self._file_of_group[group])
            table = self._opened(file).read_row_group(
                group - int(self._first_group[file]), columns=[*self._columns, VALUES], use_threads=False
            )
            self._read[group] = table
            self._read_bytes += table.nbytes
            while self._read_bytes > self._cache_bytes and len(self._read) > 1:
                self._read_bytes -= self._read.popitem(last=False)[1].nbytes
        self._read.move_to_end(group)
        return table

    def _opened(self, number: int) -> pq.ParquetFile:
        found = self._open.get(number)
        if found is None:
            place = self._place.child(self._files[number].path)
            try:
                found = pq.ParquetFile(place.path, filesystem=place.filesystem)
            except FileNotFoundError:
                raise RegionError(f"{place} is missing", hint="verify_dataset lists all that are") from None
            self._open[number] = found
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(number)
        return found

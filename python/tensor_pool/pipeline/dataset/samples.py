"""Samples of a training set by number, read from wherever it lies."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tensor_pool import _native
from tensor_pool.errors import ConfigError, MalformedMessageError, RegionError
from tensor_pool.pipeline.dataset.log import load_manifest
from tensor_pool.pipeline.dataset.schema import COLUMNS, VALUES, dataset_schema
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.recording import as_array

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["Sample", "Samples"]

_NEEDED: Final = ("stream_name", "stream_id", "epoch", "seq", "dtype", "shape", "order", "split", "crc32c")
_MOST_OPEN: Final = 64
_LISTED: Final = "verify_dataset lists all files that are; copy them again, or write the training set anew"


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
        RegionError: There is no training set, or its log can't be read.
        MalformedMessageError: Its log is damaged.
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
            RegionError: Its file is missing or can't be read.
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
        where = self._files[self._file_of_group[group]].path
        if self._check and _native.crc32c(values) != row["crc32c"]:
            raise MalformedMessageError(f"frame {row['seq']} in {where} is damaged", hint=_LISTED)
        try:
            return Sample(row, as_array(values, row["dtype"], tuple(row["shape"]), row["order"]))
        except MalformedMessageError as e:
            raise MalformedMessageError(
                f"frame {row['seq']} in {where} is damaged: {e.message}", hint=_LISTED
            ) from None

    def _group(self, group: int) -> pa.Table:
        table = self._read.get(group)
        if table is None:
            table = self._load(group)
            self._read[group] = table
            self._read_bytes += table.nbytes
            while self._read_bytes > self._cache_bytes and len(self._read) > 1:
                self._read_bytes -= self._read.popitem(last=False)[1].nbytes
        self._read.move_to_end(group)
        return table

    def _load(self, group: int) -> pa.Table:
        number = int(self._file_of_group[group])
        file, place = self._opened(number), self._place.child(self._files[number].path)
        at = group - int(self._first_group[number])
        columns = [*self._columns, VALUES]
        with _told_of_damage(place):
            if at >= file.num_row_groups:
                raise pa.ArrowInvalid(f"it has {file.num_row_groups} row groups")
            table = file.read_row_group(at, columns=columns, use_threads=False)
        if table.num_rows != self.row_groups[group] or not _is_as_written(table, columns):
            raise MalformedMessageError(f"{place} is not the file that was written", hint=_LISTED)
        return table

    def _opened(self, number: int) -> pq.ParquetFile:
        found = self._open.get(number)
        if found is None:
            place = self._place.child(self._files[number].path)
            with _told_of_damage(place):
                found = pq.ParquetFile(place.path, filesystem=place.filesystem)
            self._open[number] = found
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(number)
        return found


@contextlib.contextmanager
def _told_of_damage(place: Place) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise RegionError(f"{place} is missing", hint=_LISTED) from None
    except (pa.ArrowException, OSError, EOFError) as e:
        raise RegionError(f"{place} can't be read, it may be damaged: {e}", hint=_LISTED) from None


def _is_as_written(table: pa.Table, columns: Sequence[str]) -> bool:
    """Whether it has all columns, and those that every training set has are of their types."""
    known = dataset_schema()
    return set(columns) <= set(table.column_names) and all(
        table.schema.field(name).type == known.field(name).type
        and (known.field(name).nullable or not table[name].null_count)
        for name in columns
        if name in COLUMNS
    )

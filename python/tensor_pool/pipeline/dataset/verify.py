"""Looks whether a training set is what its log says, and cleans up after crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tensor_pool import _native
from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.dataset.log import DatasetLog
from tensor_pool.pipeline.dataset.manifest import read_manifest
from tensor_pool.pipeline.dataset.report import add_hashes
from tensor_pool.pipeline.dataset.row_hash import hash_rows
from tensor_pool.pipeline.dataset.schema import VALUES
from tensor_pool.pipeline.record.place import Place

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from tensor_pool.pipeline.dataset.manifest import Manifest
    from tensor_pool.pipeline.dataset.report import FileInfo

__all__ = ["DatasetCheck", "vacuum_dataset", "verify_dataset"]


class DatasetCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    files: int
    rows: int
    nbytes: int
    hash: str
    problems: list[str]
    """What is wrong; empty when all is well."""
    unnamed: list[str]
    """Files that no commit names: those of tasks and batches that crashed, or that run just now."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_dataset(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> DatasetCheck:
    """Reads all of a training set and compares it with its manifest, and the manifest with the log.

    Args:
        path: The training set.
        storage_options: Of `deltalake`, beyond what the URI says.
        on_progress: Is told how many files of how many are done.

    Returns:
        What was found; if the log itself can't be read, that is the problem, and nothing else was looked at.

    Raises:
        RegionError: There is none.

    Example:
        >>> verify_dataset("dataset").ok  # doctest: +SKIP
        True
    """
    place = Place(path)
    try:
        manifest = DatasetLog(place, storage_options).manifest(whole_log=True)
    except (MalformedMessageError, RegionError) as e:
        return DatasetCheck(files=0, rows=0, nbytes=0, hash="", problems=[str(e)], unnamed=[])
    if manifest is None:
        raise RegionError(f"there is no training set in {place}")
    problems = _compare_manifest(place, manifest)
    for done, file in enumerate(manifest.files):
        if on_progress is not None:
            on_progress(done, len(manifest.files))
        problem = _check_file(place, file)
        if problem is not None:
            problems.append(f"{file.path}: {problem}")
    return DatasetCheck(
        files=len(manifest.files),
        rows=sum(manifest.frames.values()),
        nbytes=sum(file.nbytes for file in manifest.files),
        hash=manifest.hash,
        problems=problems,
        unnamed=_unnamed(place, manifest),
    )


def vacuum_dataset(
    path: str | os.PathLike[str],
    *,
    older_than_hours: int = 168,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[str]:
    """Removes files that no commit names, which crashed tasks and batches left.

    Args:
        path: The training set.
        older_than_hours: Younger ones stay: they may belong to a batch that runs just now. 0 only when
            nobody writes.
        dry_run: Only say which.
        storage_options: Of `deltalake`, beyond what the URI says.

    Returns:
        The files.

    Raises:
        RegionError: There is no training set.
    """
    place = Place(path)
    log = DatasetLog(place, storage_options)
    table = log.table()
    if table is None:
        raise RegionError(f"there is no training set in {place}")
    return sorted(
        table.vacuum(older_than_hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
    )


def _compare_manifest(place: Place, manifest: Manifest) -> list[str]:
    try:
        written = read_manifest(place)
    except MalformedMessageError as e:
        return [str(e)]
    if written is None:
        return ["_manifest.json is missing; the next commit writes it"]
    if written.table_version < manifest.table_version:
        return []  # a crash came between a commit and its manifest; the log has it
    return [] if written == manifest else ["_manifest.json differs from the log; remove it"]


def _check_file(place: Place, file: FileInfo) -> str | None:
    """What is wrong with a file."""
    where = place.child(file.path)
    total, bad = 0, 0
    try:
        size = where.size()
        if size is None:
            return "is missing"
        if size != file.nbytes:
            return f"has {size} bytes, and not {file.nbytes}"
        with pq.ParquetFile(where.path, filesystem=where.filesystem) as parquet:
            groups = tuple(parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups))
            if groups != file.row_groups:
                return f"has row groups of {groups} rows, and not {file.row_groups}"
            for number in range(parquet.num_row_groups):
                table = parquet.read_row_group(number, use_threads=False)
                total += hash_rows(table)
                for values, crc32c in zip(table[VALUES], table["crc32c"].to_pylist(), strict=True):
                    bad += _native.crc32c(values.as_buffer()) != crc32c
    except (OSError, pa.ArrowException) as e:
        return f"can't be read: {e}"
    if bad:
        return f"{bad} tensors are damaged"
    return None if add_hashes([f"{total:x}"]) == file.hash else "its rows are not those that were written"


def _unnamed(place: Place, manifest: Manifest) -> list[str]:
    known = {file.path for file in manifest.files}
    found: list[str] = []
    for split in manifest.frames:
        directory = place.child(split)
        selector = pafs.FileSelector(directory.path, allow_not_found=True)
        entries = directory.filesystem.get_file_info(selector)
        found += [f"{split}/{entry.base_name}" for entry in entries if entry.type == pafs.FileType.File]
    return sorted(set(found) - known)

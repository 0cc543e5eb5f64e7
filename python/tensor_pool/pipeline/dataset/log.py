"""The Delta log of a training set: what was committed is in it, and nothing else.

A commit is one file of the log that appears whole or not at all. That of a batch of a streaming query also
names the query and the batch, so that a batch that is repeated after a crash finds itself done.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from tensor_pool.errors import ConfigError, MalformedMessageError, RegionError
from tensor_pool.pipeline.dataset.location import delta_location
from tensor_pool.pipeline.dataset.manifest import (
    Commit,
    Manifest,
    manifest_of,
    read_manifest,
    write_manifest,
)
from tensor_pool.pipeline.record.place import Place
from tensor_pool.runtime.faults import fault_point

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pyarrow as pa

    from tensor_pool.pipeline.dataset.report import FileInfo

__all__ = ["DatasetLog", "load_manifest"]

_KEY: Final = "tensorpool"
"""What a commit's own part is called in the log."""
_COPY_AGAIN: Final = "copy the training set again, or write it anew"
_SETTINGS: Final = {
    "delta.appendOnly": "true",
    # Commits carry the manifest, so none is ever forgotten.
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 36500 days",
}


class DatasetLog:
    """The log of a training set.

    Args:
        place: The training set.
        storage_options: Of `deltalake`, beyond what the URI says.
    """

    def __init__(self, place: Place, storage_options: Mapping[str, str] | None = None) -> None:
        self.place: Final = place
        self._uri, self._options = delta_location(place, storage_options)

    def table(self, version: int | None = None) -> DeltaTable | None:
        """The table as it is now, or was; None when there is none.

        Raises:
            RegionError: It can't be read, or never had that version.
        """
        try:
            return DeltaTable(self._uri, version=version, storage_options=self._options)
        except TableNotFoundError:
            return None
        except Exception as e:
            newest = None if version is None else self.table()
            if newest is not None and version is not None and not 0 <= version <= newest.version():
                hint = f"the newest is {newest.version()}"
                raise RegionError(f"{self.place} has no version {version}", hint=hint) from None
            raise RegionError(f"can't read the log of {self.place}: {e}", hint=_COPY_AGAIN) from None

    def last_batch(self, query: str) -> int | None:
        """The newest batch of a streaming query that was committed; None when none was."""
        table = self.table()
        return None if table is None else table.transaction_version(query)

    def manifest(self, version: int | None = None, *, whole_log: bool = False) -> Manifest | None:
        """What was committed; None when nothing was.

        Args:
            version: As it was then; by default as it is now.
            whole_log: Believe nothing but the log; otherwise what ``_manifest.json`` has is not read again.

        Raises:
            RegionError: The log can't be read, or holds commits that others made.
            MalformedMessageError: A commit is damaged.
        """
        table = self.table(version)
        if table is None:
            return None
        manifest = manifest_of(self._commits(table, whole_log=whole_log))
        if manifest is not None:
            known, there = {file.path for file in manifest.files}, set(_paths(table))
            if known != there:
                raise RegionError(
                    f"{len(known ^ there)} files of {self.place} were added or replaced by another program",
                    hint="read it with deltalake, Polars or Spark; or write the training set anew",
                )
        return manifest

    def commit(self, commit: Commit, schema: pa.Schema) -> Manifest | None:
        """Makes files part of the training set, all of them or none.

        Args:
            commit: What was written.
            schema: The columns.

        Returns:
            The manifest from now on; None when this batch of this query was committed before.

        Raises:
            ConfigError: The training set that is there was written in another way.
            RegionError: The log can't be written.
        """
        table = self.table() or self._create(schema)
        # Delta refuses a commit of this query if there was another one since this look at the log.
        if _is_done(table, commit):
            return None
        earlier = manifest_of(self._commits(table))
        if earlier is not None and (clash := commit.options.clashes_with(earlier.options)):
            raise ConfigError(
                f"{self.place} was written with other options: {clash}",
                hint="give the same options, or another path",
            )
        transactions = None
        if commit.query is not None and commit.batch is not None:
            transactions = [Transaction(commit.query, commit.batch)]
        properties = CommitProperties(
            custom_metadata={_KEY: msgspec.json.encode(commit).decode()}, app_transactions=transactions
        )
        fault_point("dataset.before_commit")
        try:
            table.create_write_transaction(
                [_action(file) for file in commit.report.files],
                "append",
                schema,
                commit_properties=properties,
            )
        except CommitFailedError as e:
            if (now := self.table()) is not None and _is_done(now, commit):
                return None
            raise RegionError(f"can't commit to {self.place}: {e}", hint="run it again") from None
        except Exception as e:
            raise RegionError(f"can't commit to {self.place}: {e}") from None
        fault_point("dataset.after_commit")
        manifest = self.manifest()
        assert manifest is not None
        write_manifest(self.place, manifest)
        return manifest

    def _create(self, schema: pa.Schema) -> DeltaTable:
        try:
            return DeltaTable.create(
                self._uri,
                schema,
                mode="ignore",
                name="tensorpool",
                configuration=_SETTINGS,
                storage_options=self._options,
            )
        except Exception as e:
            raise RegionError(f"can't make a training set in {self.place}: {e}") from None

    def _commits(self, table: DeltaTable, *, whole_log: bool = False) -> list[Commit]:
        """Ours, oldest first; those that the manifest has are not read from the log again."""
        version = table.version()
        known: list[Commit] = []
        with contextlib.suppress(MalformedMessageError, OSError):
            kept = None if whole_log else read_manifest(self.place)
            known = [commit for commit in kept.commits if commit.table_version <= version] if kept else []
        newest = known[-1].table_version if known else -1
        for number in range(newest + 1, version + 1):
            commit = _own_part(self.place, number)
            if commit is not None:
                known.append(msgspec.structs.replace(commit, table_version=number))
        return known


def load_manifest(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Manifest:
    """What is in a training set.

    Args:
        path: A directory, or a URI that pyarrow and `deltalake` know.
        version: As it was then; by default as it is now.
        storage_options: Of `deltalake`, beyond what the URI says.

    Raises:
        RegionError: There is none, or it can't be read.
        MalformedMessageError: Its log is damaged.

    Example:
        >>> load_manifest("nowhere")
        Traceback (most recent call last):
        tensor_pool.errors.RegionError: there is no training set in ...
    """
    place = Place(path)
    manifest = DatasetLog(place, storage_options).manifest(version)
    if manifest is None:
        raise RegionError(
            f"there is no training set in {place}",
            hint="tps.write_dataset(df, path) makes one of a recording",
        )
    return manifest


class _CommitInfo(msgspec.Struct):
    tensorpool: str | None = None


class _LogLine(msgspec.Struct):
    commitInfo: _CommitInfo | None = None  # noqa: N815 - Delta's name


def _own_part(place: Place, version: int) -> Commit | None:
    """Our part of a commit; None when another program made it.

    From its file: `DeltaTable.history` gives wrong numbers as soon as there is a newer commit than its table.

    Raises:
        MalformedMessageError: The file is damaged.
    """
    file = place.child(f"_delta_log/{version:020}.json")
    try:
        lines = [msgspec.json.decode(line, type=_LogLine) for line in file.read().splitlines() if line]
        found = next((line.commitInfo for line in lines if line.commitInfo is not None), None)
        if found is None or found.tensorpool is None:
            return None
        return msgspec.json.decode(found.tensorpool, type=Commit)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise MalformedMessageError(f"{file} can't be understood: {e}", hint=_COPY_AGAIN) from None


def _is_done(table: DeltaTable, commit: Commit) -> bool:
    if commit.query is None or commit.batch is None:
        return False
    last = table.transaction_version(commit.query)
    return last is not None and last >= commit.batch


def _paths(table: DeltaTable) -> list[str]:
    import pyarrow as pa  # noqa: PLC0415 - deltalake hands out Arrow tables of another library

    return list(pa.table(table.get_add_actions())["path"].to_pylist())


def _action(file: FileInfo) -> AddAction:
    """What the log says of a file: readers leave out those whose bounds are outside of what they look for."""
    same_stream = file.first[0] == file.last[0]
    least: dict[str, Any] = {"split": file.split}
    most: dict[str, Any] = {"split": file.split}
    if same_stream and file.first[1] == file.last[1]:
        least |= {"epoch": file.first[1], "seq": file.first[2]}
        most |= {"epoch": file.last[1], "seq": file.last[2]}
    nulls = dict.fromkeys(least, 0)
    stats = {"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return AddAction(file.path, file.nbytes, {}, time.time_ns() // 1_000_000, True, json.dumps(stats))

"""The manifest of a training set: what is in it and where it came from.

It lies beside the log as ``_manifest.json``. Every commit of the log carries its own part of it, so it holds
nothing that the log does not, never tells of files that were not committed, and can be made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.dataset.options import DatasetOptions  # noqa: TC001 - msgspec reads it
from tensor_pool.pipeline.dataset.report import Counts, FileInfo, Report, add_hashes, merge_reports
from tensor_pool.pipeline.dataset.schema import FORMAT_VERSION
from tensor_pool.pipeline.record.synced import write_synced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.pipeline.record.place import Place

__all__ = ["MANIFEST", "Commit", "Manifest", "manifest_of", "read_manifest", "write_manifest"]

MANIFEST: Final = "_manifest.json"


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One commit, as the log has it."""

    format: int = FORMAT_VERSION
    table_version: int = 0
    """The version of the Delta table that it made."""
    query: str | None = None
    """The streaming query that wrote it."""
    batch: int | None = None
    """The batch of that query."""
    options: DatasetOptions
    report: Report


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All commits together."""

    format: int
    table_version: int
    """The newest commit that is counted."""
    hash: str
    """Of all rows; the same rows have the same, in whatever files they are."""
    frames: dict[str, int]
    """By split."""
    streams: dict[str, Counts]
    """By stream: frames by split, and what is missing."""
    sources: list[str]
    options: DatasetOptions
    commits: list[Commit]

    @property
    def files(self) -> list[FileInfo]:
        """All files, in the order in which samples are numbered."""
        return [file for commit in self.commits for file in commit.report.files]

    @property
    def missing(self) -> int:
        """How many frames are no rows because they were lost, damaged, or not to be found."""
        return sum(number for counts in self.streams.values() for number in counts.missing.values())

    @property
    def tensor_bytes(self) -> int:
        """Of all tensors."""
        return sum(file.tensor_bytes for file in self.files)


def manifest_of(commits: Iterable[Commit]) -> Manifest | None:
    """The manifest of some commits, oldest first; None when there are none.

    Raises:
        MalformedMessageError: A newer release wrote one of them.
    """
    found = list(commits)
    if not found:
        return None
    newest = max(commit.format for commit in found)
    if newest > FORMAT_VERSION:
        raise MalformedMessageError(
            f"the training set has format {newest}; this release reads up to {FORMAT_VERSION}",
            hint="use a newer release",
        )
    whole = merge_reports(commit.report for commit in found)
    frames: dict[str, int] = dict.fromkeys(found[0].options.splits.names, 0)
    for file in whole.files:
        frames[file.split] = frames.get(file.split, 0) + file.rows
    return Manifest(
        format=newest,
        table_version=found[-1].table_version,
        hash=add_hashes(file.hash for file in whole.files),
        frames=frames,
        streams=whole.streams,
        sources=whole.sources,
        options=found[-1].options,
        commits=found,
    )


def read_manifest(place: Place) -> Manifest | None:
    """What the file says; None when there is none.

    Raises:
        MalformedMessageError: It can't be understood.
        OSError: It can't be read.
    """
    try:
        return msgspec.json.decode(place.child(MANIFEST).read(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as e:
        raise MalformedMessageError(
            f"{place.child(MANIFEST)} can't be understood: {e}", hint="remove it: the log has all of it too"
        ) from None


def write_manifest(place: Place, manifest: Manifest) -> None:
    """Replaces the file.

    Raises:
        OSError: It can't be written.
    """
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    if place.local is not None:
        write_synced(place.local / MANIFEST, content)
    else:
        place.child(MANIFEST).write(content)

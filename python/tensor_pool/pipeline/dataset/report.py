"""What was written, as small numbers: by a task, and by all tasks of a commit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Counts", "FileInfo", "Report", "add_hashes", "merge_reports"]

_ALL_HASHES: Final = 1 << 256
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,64}$")]


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a training set."""

    path: str
    """Below the training set."""
    split: str
    rows: _Count
    nbytes: _Count
    tensor_bytes: _Count
    hash: _Hash
    """Of its rows, whatever their order; those of files add up (`add_hashes`)."""
    row_groups: tuple[_Count, ...]
    """How many rows each has."""
    first: tuple[str, int, int]
    """Stream, epoch and number of its smallest row."""
    last: tuple[str, int, int]


class Counts(msgspec.Struct, kw_only=True):
    """How many frames of a stream went where."""

    frames: dict[str, int] = {}
    """By split."""
    missing: dict[str, int] = {}
    """By status: frames that are no rows, because they were lost, damaged, or not to be found."""
    left_out: int = 0
    """Frames for which the transform returned None."""

    def add(self, other: Counts) -> None:
        """Adds others."""
        for mine, theirs in ((self.frames, other.frames), (self.missing, other.missing)):
            for key, number in theirs.items():
                mine[key] = mine.get(key, 0) + number
        self.left_out += other.left_out


class Report(msgspec.Struct, kw_only=True):
    """What was written."""

    files: list[FileInfo] = []
    streams: dict[str, Counts] = {}
    sources: list[str] = []
    """Directories of the streams of recordings that tensors came from."""

    def counts(self, stream: str) -> Counts:
        """Those of a stream, to add to."""
        return self.streams.setdefault(stream, Counts())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was there: no frame, and none that is missing."""
        return not self.files and not self.streams


def merge_reports(reports: Iterable[Report]) -> Report:
    """Several as one; their order does not matter.

    Example:
        >>> one, other = Report(), Report()
        >>> one.counts("camera-1").frames["train"] = 2
        >>> other.counts("camera-1").frames["train"] = 3
        >>> merge_reports([one, other]).streams["camera-1"].frames
        {'train': 5}
    """
    whole, sources = Report(), set()
    for report in reports:
        whole.files.extend(report.files)
        for stream, counts in report.streams.items():
            whole.counts(stream).add(counts)
        sources.update(report.sources)
    whole.files.sort(key=lambda file: (file.split, file.first, file.path))
    whole.streams = dict(sorted(whole.streams.items()))
    whole.sources = sorted(sources)
    return whole


def add_hashes(hashes: Iterable[str]) -> str:
    """Hashes of parts as the one of the whole: the sum, without what is above 256 bits.

    So the same rows have the same hash, in whatever files and in whatever order they are.

    Example:
        >>> add_hashes(["ff", "01"])[-4:]
        '0100'
    """
    return f"{sum(int(each, 16) for each in hashes) % _ALL_HASHES:064x}"

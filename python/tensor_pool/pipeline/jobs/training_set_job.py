"""The job *training-set*: writes the frames of a recording as a training set, and tells what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import functions as f

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.dataset.manifest import MANIFEST
from tensor_pool.pipeline.dataset.splits import By  # noqa: TC001 - msgspec reads it
from tensor_pool.pipeline.jobs.report.files import output_directory
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.spark.dataset import write_dataset
from tensor_pool.pipeline.spark.recording_reader import MISSING
from tensor_pool.pipeline.spark.rows import DAMAGED

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from tensor_pool.pipeline.dataset.manifest import Manifest
    from tensor_pool.pipeline.jobs.report.model import Report

__all__ = ["SplitContent", "SplitSlice", "StreamContent", "TrainingSetResult", "training_set"]

_SLICES: Final = 60
_US: Final = 1e6
_UNREADABLE: Final = {DAMAGED, MISSING, "unreadable"}
"""Reasons for which a frame is missing here though it was recorded."""


class SplitSlice(msgspec.Struct, frozen=True, kw_only=True):
    """How many frames of a split are of one part of the time."""

    start_s: float
    """Since the first frame of all splits."""
    frames: int


class SplitContent(msgspec.Struct, kw_only=True):
    """What is in a split."""

    split: str
    frames: int = 0
    nbytes: int = 0
    """Of its tensors."""
    files: int = 0
    slices: list[SplitSlice] = []


class StreamContent(msgspec.Struct, kw_only=True):
    """What became of one stream."""

    stream: str
    frames: dict[str, int] = {}
    """By split."""
    missing_frames: int = 0
    missing: dict[str, int] = {}
    """By reason: frames that are not in the training set because they were lost or can't be read."""


class TrainingSetResult(msgspec.Struct, kw_only=True):
    """What was written."""

    dataset: str
    manifest: str
    """The file that tells all of it, with hashes."""
    hash: str
    """Of all rows; the same frames in the same splits have the same."""
    by: By
    splits: list[SplitContent]
    streams: list[StreamContent]

    @property
    def frames(self) -> int:
        """Of all splits."""
        return sum(split.frames for split in self.splits)

    @property
    def unreadable(self) -> int:
        """Frames that were recorded, and can't be read now."""
        return sum(n for stream in self.streams for why, n in stream.missing.items() if why in _UNREADABLE)

    @property
    def has_problems(self) -> bool:
        """Whether there is nothing to train with, or recorded frames could not be read."""
        return not self.frames or bool(self.unreadable)

    def report(self) -> Report:
        """What to show of it."""
        from tensor_pool.pipeline.jobs.training_set_report import training_set_report  # noqa: PLC0415 - needs this file

        return training_set_report(self)


def training_set(
    df: DataFrame,
    out: str | os.PathLike[str],
    *,
    splits: Mapping[str, Any] | None = None,
    by: By = "hash",
    dataset: str | os.PathLike[str] | None = None,
    every: int = 1,
    streams: Sequence[str] = (),
) -> TrainingSetResult:
    """Writes frames as a training set that was not there before; `write_dataset` can do more.

    Args:
        df: Rows of the format ``tensorpool``.
        out: A directory, the training set goes to ``dataset`` in it.
        splits: Fractions by name, or moments; see `write_dataset`. By default 0.8 ``train`` and 0.2 ``val``.
        by: ``hash`` or ``time``.
        dataset: Another place for it: a directory that every worker finds, or a URI.
        every: Only frames whose number can be divided by this.
        streams: Streams that ought to be there.

    Raises:
        ConfigError: Something is there already, or something is wrong with what was asked for.
        RegionError: It can't be written.

    Example:
        >>> training_set(df, "report", splits={"train": 0.9, "val": 0.1}).frames  # doctest: +SKIP
        1000
    """
    if every < 1:
        raise ConfigError(f"every={every}", hint="1 for all frames, 10 for each tenth")
    place = Place(output_directory(out) / "dataset" if dataset is None else dataset)
    if place.files() or place.directories():
        raise ConfigError(
            f"{place} is not empty: a training set is not written over",
            hint="remove it, or name another place (--dataset); tps.write_dataset(..., mode='append') adds",
        )
    where = None
    if every > 1:
        # Of a gap, only frames that would have been taken are missing: multiples up to its end, less those
        # before it.
        taken = f.expr(f"(seq + count + {every - 1}) div {every} - (seq + {every - 1}) div {every}")
        df = df.withColumn("count", taken).filter("count > 0")
        where = f"seq % {every} = 0 or status <> 'ok'"  # so that the manifest says so
    manifest = write_dataset(df, place.uri, splits=splits or {"train": 0.8, "val": 0.2}, by=by, where=where)
    found = {split: SplitContent(split=split) for split in manifest.frames}
    for file in manifest.files:
        split = found[file.split]
        split.frames += file.rows
        split.nbytes += file.tensor_bytes
        split.files += 1
    _add_slices(place, manifest, found)
    return TrainingSetResult(
        dataset=str(place),
        manifest=str(place.child(MANIFEST)),
        hash=manifest.hash,
        by=by,
        splits=list(found.values()),
        streams=_streams(manifest, streams),
    )


def _streams(manifest: Manifest, wanted: Sequence[str]) -> list[StreamContent]:
    found = []
    for name in sorted({*manifest.streams, *wanted}):
        counts = manifest.streams.get(name)
        frames, missing = ({}, {}) if counts is None else (counts.frames, counts.missing)
        found.append(
            StreamContent(stream=name, frames=frames, missing_frames=sum(missing.values()), missing=missing)
        )
    return found


def _add_slices(place: Place, manifest: Manifest, found: Mapping[str, SplitContent]) -> None:
    """Frames over time. Reads two small columns twice, so that any number of frames fits into memory."""
    low, high = None, None
    for _, times in _times(place, manifest):
        least, most = int(times.min()), int(times.max())
        low, high = least if low is None else min(low, least), most if high is None else max(high, most)
    if low is None or high is None or high == low:
        return
    counts = {split: np.zeros(_SLICES, np.int64) for split in found}
    for split, times in _times(place, manifest):
        numbers = np.minimum((times - low) * (_SLICES / (high - low)), _SLICES - 1).astype(np.int64)
        counts[split] += np.bincount(numbers, minlength=_SLICES)
    for split, content in found.items():
        content.slices = [
            SplitSlice(start_s=number * (high - low) / _US / _SLICES, frames=int(frames))
            for number, frames in enumerate(counts[split])
        ]


def _times(place: Place, manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """Splits, and times of some of their frames in microseconds."""
    for file in manifest.files:
        where = place.child(file.path)
        table = ds.dataset(where.path, filesystem=where.filesystem, format="parquet")
        for batch in table.to_batches(columns=["event_time", "recorded_time"]):
            known = pc.coalesce(batch["event_time"], batch["recorded_time"]).drop_null()
            if len(known):
                yield file.split, known.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()

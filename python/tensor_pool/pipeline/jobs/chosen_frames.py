"""What jobs do with exactly some frames: Spark opens the segments that they are in, and no others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.jobs.absent_frames import absence, gap_reason
from tensor_pool.pipeline.jobs.columns import iso, stream_name
from tensor_pool.pipeline.jobs.frames_result import FrameOutcome, FramesResult
from tensor_pool.pipeline.jobs.registry import job
from tensor_pool.pipeline.jobs.report.files import output_directory
from tensor_pool.pipeline.jobs.statistics_job import FRAME_COLUMNS, describe
from tensor_pool.pipeline.jobs.thumbnails_job import PICTURE_COLUMNS, draw, picture_path, write_picture
from tensor_pool.pipeline.record.named_frames import NamedFrames
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.spark.functions import map_tensors
from tensor_pool.pipeline.spark.options import MOST_FRAMES
from tensor_pool.pipeline.spark.schema import OK
from tensor_pool.pipeline.spark.source import FORMAT

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from tensor_pool.control.values import FrameRef

__all__ = ["work_on_frames"]

_KEPT: Final = ("stream_id", "stream", "epoch", "seq", "event_time", "status", "count", "dtype", "shape")
_NUMBERS: Final = ("size", "finite", "minimum", "maximum", "mean", "std", "nan_share", "inf_share")
_LINES: Final = ("dead_rows", "dead_columns")
_SIZE: Final = 512
"""Somebody asked for this very picture: it is larger than those on a sheet."""


class _Work(NamedTuple):
    """What is done with a frame: by a worker, then here with what it returned."""

    columns: str
    by_worker: Callable[..., Any]
    here: Callable[[Row, Path], dict[str, Any]]


def work_on_frames(
    spark: SparkSession,
    name: str,
    recording: str | os.PathLike[str] | Recording,
    frames: Sequence[FrameRef],
    out: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
) -> FramesResult:
    """Draws exactly these frames (``thumbnails``), or tells their numbers (``statistics``).

    Args:
        spark: The session.
        name: The job.
        recording: A directory, a URI, or what was found there.
        frames: Which ones.
        out: The directory of pictures: ``thumbnails/STREAM/EPOCH-SEQ.png``.
        options: Of the job: ``size`` of pictures.

    Returns:
        What became of each frame, in their order; one that is not there has a reason.

    Raises:
        ConfigError: The job takes no frames, or an option makes no sense.
        RegionError: There is no recording.

    Example:
        >>> frame = FrameRef(10_000, 3, 42)  # doctest: +SKIP
        >>> work_on_frames(spark, "statistics", "recordings", [frame], "report").frames[0].values["mean"]
        ... # doctest: +SKIP
        118.2
    """
    work = _work(name, options or {})
    if not 1 <= len(frames) <= MOST_FRAMES:
        raise ConfigError(f"{len(frames):,} frames", hint=f"1 to {MOST_FRAMES:,}")
    known = recording if isinstance(recording, Recording) else Recording(recording)
    directory = output_directory(out).resolve()
    rows = _query(spark, known, frames, work) if _may_have(known, frames) else []
    outcomes = []
    for frame, row in zip(frames, _rows_of(frames, rows), strict=True):
        if row is None:
            outcomes.append(FrameOutcome(frame=str(frame), reason=absence(known, frame).text))
        else:
            outcomes.append(_outcome(frame, row, work, directory))
    done = sum(outcome.is_done for outcome in outcomes)
    return FramesResult(job=name, frames=outcomes, done=done, failed=len(outcomes) - done)


def _may_have(recording: Recording, frames: Sequence[FrameRef]) -> bool:
    """Whether Spark has anything to look for, by what catalogues say."""
    named = NamedFrames(frames)
    return any(
        named.in_segment(stream.catalogue, segment)
        for stream in recording.values()
        for segment in stream.segments()
    )


def _query(spark: SparkSession, recording: Recording, frames: Sequence[FrameRef], work: _Work) -> list[Row]:
    """What workers tell of the frames, and of gaps that they are in."""
    df = (
        spark.read.format(FORMAT)
        .option("frames", ",".join(map(str, frames)))
        .option("failOnDataLoss", "false")
        .load(recording.place.uri)
        .withColumn("stream", stream_name())
    )
    return map_tensors(df, work.by_worker, work.columns, keep=_KEPT, check=True).collect()


def _work(name: str, options: Mapping[str, Any]) -> _Work:
    job(name).check_options(options, of_frames=True)
    if name == "thumbnails":
        return _Work(PICTURE_COLUMNS, partial(draw, options.get("size", _SIZE), {}), _save)
    return _Work(FRAME_COLUMNS, partial(describe, {}), _numbers)


def _rows_of(frames: Sequence[FrameRef], rows: Iterable[Row]) -> list[Row | None]:
    """The row of each frame; of a gap, if that is all there is."""
    found: dict[tuple[int, int, int], Row] = {}
    gaps: list[Row] = []
    for row in rows:
        if row["count"] > 1:
            gaps.append(row)
        elif row["status"] == OK:
            found[row["stream_id"], row["epoch"], row["seq"]] = row
        else:
            found.setdefault((row["stream_id"], row["epoch"], row["seq"]), row)
    return [found.get(frame) or next((gap for gap in gaps if _covers(gap, frame)), None) for frame in frames]


def _covers(gap: Row, frame: FrameRef) -> bool:
    is_same = (gap["stream_id"], gap["epoch"]) == (frame.stream_id, frame.epoch)
    return is_same and gap["seq"] <= frame.seq < gap["seq"] + gap["count"]


def _outcome(frame: FrameRef, row: Row, work: _Work, directory: Path) -> FrameOutcome:
    outcome = FrameOutcome(frame=str(frame), stream=row["stream"], time=iso(row["event_time"]))
    if row["status"] != OK:
        outcome.reason = gap_reason(row["status"])
        return outcome
    outcome.dtype, outcome.shape = row["dtype"], list(row["shape"])
    outcome.reason = row.asDict().get("reason") or ""
    if outcome.is_done:
        outcome.values = work.here(row, directory)
    return outcome


def _save(row: Row, directory: Path) -> dict[str, Any]:
    path = picture_path(directory, row["stream"], row["epoch"], row["seq"])
    write_picture(path, bytes(row["png"]))
    return {"file": str(path)}


def _numbers(row: Row, _: Path) -> dict[str, Any]:
    # How many lines are dead, not which: a tensor may have a million, and the row travels as an event.
    return {name: row[name] for name in _NUMBERS} | {name: len(row[name]) for name in _LINES}

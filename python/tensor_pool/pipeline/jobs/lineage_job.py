"""The job *lineage*: which frames of which streams belong together, by their trace ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as f

from tensor_pool.pipeline.jobs.columns import is_frame, iso, kept, percentiles, require, stream_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tensor_pool.pipeline.jobs.report.model import Report

__all__ = ["LineageResult", "Stage", "StreamTraces", "Trace", "TracePath", "TracedFrame", "lineage"]

_US: Final = 1e6
_MOST_PATHS: Final = 100


class StreamTraces(msgspec.Struct, kw_only=True):
    """The trace ids of one stream."""

    stream: str
    frames: int = 0
    traced: int = 0
    """Frames with a trace id."""
    traces: int = 0
    """Different ones."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """From the frame of one stream to the frame of another one with the same trace id."""

    source: str
    target: str
    traces: int
    without_clock: int
    """Pairs of which one frame's time is not known; they have no latency."""
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


class TracePath(msgspec.Struct, frozen=True, kw_only=True):
    """Streams that traces went through, in the order of time."""

    streams: list[str]
    traces: int


class TracedFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of a trace."""

    stream: str
    epoch: int
    seq: int
    time: str | None


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Frames with the same trace id."""

    trace_id: int
    """As producers know it, without a sign."""
    frames: list[TracedFrame]


class LineageResult(msgspec.Struct, kw_only=True):
    """Which frames belong together."""

    streams: list[StreamTraces]
    stages: list[Stage] = []
    paths: list[TracePath] = []
    """The most common ones."""
    traces: int = 0
    joined: int = 0
    """Traces that are in more than one stream."""
    examples: list[Trace] = []
    """The first ones that are in most streams."""

    @property
    def has_problems(self) -> bool:
        """Nothing that it finds is a problem by itself."""
        return False

    def report(self) -> Report:
        """What to show of it."""
        from tensor_pool.pipeline.jobs.lineage_report import lineage_report  # noqa: PLC0415 - needs this file

        return lineage_report(self)


def lineage(df: DataFrame, *, examples: int = 50, streams: Sequence[str] = ()) -> LineageResult:
    """Joins streams by the trace ids of their frames.

    A trace id travels with a frame's descriptor and may get lost: frames without one are counted. Where a
    stream has several frames with one id, the first one stands for them.

    Args:
        df: Rows of the format ``tensorpool``, of several streams.
        examples: How many traces to tell in full.
        streams: Streams that ought to be there.

    Example:
        >>> [(stage.source, stage.target, stage.p50_s) for stage in lineage(df).stages]  # doctest: +SKIP
        [('camera', 'detector', 0.012)]
    """
    require(df, "stream_id", "stream_name", "epoch", "seq", "event_time", "status", "trace_id")
    found = {name: StreamTraces(stream=name) for name in streams}
    frames = df.filter(is_frame()).select(stream_name(), "epoch", "seq", "event_time", "trace_id")
    with kept(frames) as rows:
        counts = rows.groupBy("stream").agg(
            f.count(f.lit(1)).alias("frames"),
            f.count("trace_id").alias("traced"),
            f.count_distinct("trace_id").alias("traces"),
        )
        for row in counts.collect():
            found[row["stream"]] = StreamTraces(**row.asDict())
        result = LineageResult(streams=[found[name] for name in sorted(found)])
        if any(stream.traced for stream in result.streams):
            _join(rows, result, examples)
    return result


def _join(rows: DataFrame, result: LineageResult, examples: int) -> None:
    first = f.min(f.struct("event_time", "epoch", "seq")).alias("at")
    hops = rows.filter("trace_id is not null").groupBy("trace_id", "stream").agg(first)
    with kept(hops) as once:
        result.stages = _stages(once)
        # In the order of time; where times are not known, by name.
        hop = f.struct("at.event_time", "stream", "at.epoch", "at.seq")
        traces = once.groupBy("trace_id").agg(f.sort_array(f.collect_list(hop)).alias("hops"))
        with kept(traces) as whole:
            result.traces = whole.count()
            result.joined = whole.filter(f.size("hops") > 1).count()
            paths = whole.groupBy(f.col("hops.stream").alias("streams")).count()
            for row in paths.orderBy(f.desc("count"), "streams").limit(_MOST_PATHS).collect():
                result.paths.append(TracePath(streams=row["streams"], traces=row["count"]))
            best = whole.orderBy(f.desc(f.size("hops")), f.col("hops")[0]["event_time"], "trace_id")
            result.examples = [_trace(row) for row in best.limit(examples).collect()]


def _stages(once: DataFrame) -> list[Stage]:
    """Latencies of all pairs of streams, from the one that is earlier in the middle."""
    left, right = once.alias("a"), once.alias("b")
    us = f.unix_micros(f.col("b.at.event_time")) - f.unix_micros(f.col("a.at.event_time"))
    pairs = left.join(
        right, (f.col("a.trace_id") == f.col("b.trace_id")) & (f.col("a.stream") < f.col("b.stream"))
    ).select(f.col("a.stream").alias("source"), f.col("b.stream").alias("target"), us.alias("us"))
    # Both directions at once: which one is right is known when the median is.
    table = pairs.groupBy("source", "target").agg(
        f.count(f.lit(1)).alias("traces"),
        f.count_if(f.col("us").isNull()).alias("without_clock"),
        percentiles(f.col("us"), [0.5, 0.99]).alias("there"),
        percentiles(-f.col("us"), [0.5, 0.99]).alias("back"),
        f.max("us").alias("most"),
        f.max(-f.col("us")).alias("most_back"),
    )
    return [_stage(row) for row in table.orderBy("source", "target").collect()]


def _stage(row: Any) -> Stage:
    source, target, points, most = row["source"], row["target"], row["there"], row["most"]
    if points and points[0] < 0:
        source, target, points, most = target, source, row["back"], row["most_back"]
    return Stage(
        source=source,
        target=target,
        traces=row["traces"],
        without_clock=row["without_clock"],
        p50_s=points[0] / _US if points else None,
        p99_s=points[1] / _US if points else None,
        max_s=None if most is None else most / _US,
    )


def _trace(row: Any) -> Trace:
    frames = [
        TracedFrame(stream=hop["stream"], epoch=hop["epoch"], seq=hop["seq"], time=iso(hop["event_time"]))
        for hop in row["hops"]
    ]
    return Trace(trace_id=row["trace_id"] % 2**64, frames=frames)

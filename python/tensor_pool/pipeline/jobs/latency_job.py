"""The job *latency*: how long after they were taken frames were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as f

from tensor_pool.pipeline.jobs.columns import is_frame, iso, kept, percentiles, require, stream_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tensor_pool.pipeline.jobs.report.model import Report

__all__ = ["LatencyBin", "LatencyResult", "LatencyWindow", "StreamLatency", "latency"]

_POINTS: Final = (0.5, 0.9, 0.99, 0.999)
_EDGES_US: Final = tuple(step * 10**power for power in range(9) for step in (1, 2, 5))
"""Between bins of the histogram: from a microsecond to 500 s."""
_US: Final = 1e6


class LatencyBin(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of a histogram."""

    from_s: float
    to_s: float | None
    """None for the last one, which has no end."""
    frames: int


class LatencyWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the time."""

    start: str
    start_s: float
    """Since the first frame."""
    frames: int
    p50_s: float
    p99_s: float
    max_s: float


class StreamLatency(msgspec.Struct, kw_only=True):
    """The latency of one stream, in seconds; None where no frame has both clocks."""

    stream: str
    frames: int = 0
    """Frames whose latency is known."""
    without_clock: int = 0
    """Frames of which it is not known when they were taken, or when they were recorded."""
    negative: int = 0
    """Frames that were recorded before they were taken: their clock is wrong."""
    min_s: float | None = None
    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    p999_s: float | None = None
    max_s: float | None = None
    histogram: list[LatencyBin] = []
    windows: list[LatencyWindow] = []


class LatencyResult(msgspec.Struct, kw_only=True):
    """The latency of all streams."""

    streams: list[StreamLatency]

    @property
    def has_problems(self) -> bool:
        """Whether a clock is wrong."""
        return any(stream.negative for stream in self.streams)

    def report(self) -> Report:
        """What to show of it."""
        from tensor_pool.pipeline.jobs.latency_report import latency_report  # noqa: PLC0415 - needs this file

        return latency_report(self)


def latency(df: DataFrame, *, windows: int = 20, streams: Sequence[str] = ()) -> LatencyResult:
    """Percentiles of the time between taking and recording.

    Args:
        df: Rows of the format ``tensorpool``.
        windows: Into how many parts of equal length the time is cut.
        streams: Streams that ought to be there.

    Example:
        >>> latency(df).streams[0].p99_s  # doctest: +SKIP
        0.0021
    """
    require(df, "stream_id", "stream_name", "event_time", "recorded_time", "status")
    age_us = f.unix_micros("recorded_time") - f.unix_micros("event_time")
    frames = df.filter(is_frame()).select(stream_name(), "event_time", age_us.alias("us"))
    found = {name: StreamLatency(stream=name) for name in streams}
    with kept(frames) as rows:
        totals = rows.groupBy("stream").agg(
            f.count("us").alias("frames"),
            f.count_if(f.col("us").isNull()).alias("without_clock"),
            f.count_if(f.col("us") < 0).alias("negative"),
            f.min("us").alias("min"),
            f.avg("us").alias("mean"),
            f.max("us").alias("max"),
            percentiles(f.col("us"), _POINTS).alias("points"),
        )
        for row in totals.collect():
            found[row["stream"]] = _stream(row.asDict())
        timed = rows.filter("us is not null")
        _add_histograms(timed, found)
        _add_windows(timed, found, max(1, windows))
    return LatencyResult(streams=[found[name] for name in sorted(found)])


def _stream(row: dict[str, Any]) -> StreamLatency:
    seconds = {name: None if row[name] is None else row[name] / _US for name in ("min", "mean", "max")}
    p50, p90, p99, p999 = (us / _US for us in row["points"]) if row["points"] else (None,) * 4
    return StreamLatency(
        stream=row["stream"],
        frames=row["frames"],
        without_clock=row["without_clock"],
        negative=row["negative"],
        min_s=seconds["min"],
        mean_s=seconds["mean"],
        max_s=seconds["max"],
        p50_s=p50,
        p90_s=p90,
        p99_s=p99,
        p999_s=p999,
    )


def _add_histograms(timed: DataFrame, found: dict[str, StreamLatency]) -> None:
    """Bins between 1, 2, 5, 10 and so on microseconds; the first one also has what is below."""
    edges = f.array(*(f.lit(edge) for edge in _EDGES_US))
    number = f.size(f.filter(edges, lambda edge: edge <= f.col("us"))).alias("bin")
    counted = timed.select("stream", number).groupBy("stream", "bin").count()
    for row in counted.orderBy("stream", "bin").collect():
        at = row["bin"]
        one = LatencyBin(
            from_s=_EDGES_US[at - 1] / _US if at else 0.0,
            to_s=_EDGES_US[at] / _US if at < len(_EDGES_US) else None,
            frames=row["count"],
        )
        found[row["stream"]].histogram.append(one)


def _add_windows(timed: DataFrame, found: dict[str, StreamLatency], windows: int) -> None:
    at = f.unix_micros("event_time")
    ends = timed.groupBy("stream").agg(f.min(at).alias("begin"), f.max(at).alias("end"))
    span = f.greatest(f.lit(1), f.col("end") - f.col("begin"))
    number = f.least(f.lit(windows - 1), f.floor((at - f.col("begin")) * windows / span))
    table = (
        timed.join(f.broadcast(ends), "stream")
        .withColumn("window", number)
        .groupBy("stream", "window")
        .agg(
            f.count(f.lit(1)).alias("frames"),
            f.min("event_time").alias("start"),
            f.first(f.col("window") * span / windows).alias("start_us"),
            percentiles(f.col("us"), [0.5, 0.99]).alias("points"),
            f.max("us").alias("max"),
        )
    )
    for row in table.orderBy("stream", "window").collect():
        one = LatencyWindow(
            start=iso(row["start"]) or "",
            start_s=row["start_us"] / _US,
            frames=row["frames"],
            p50_s=row["points"][0] / _US,
            p99_s=row["points"][1] / _US,
            max_s=row["max"] / _US,
        )
        found[row["stream"]].windows.append(one)

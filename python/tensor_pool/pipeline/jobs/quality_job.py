"""The job *quality*: what is missing, late, repeated or damaged, stream by stream.

Needs no tensor unless told to read every byte: everything else is in the rows.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from tensor_pool.errors import TensorPoolError
from tensor_pool.pipeline.jobs.columns import is_frame, iso, kept, percentiles, require, stream_name
from tensor_pool.pipeline.jobs.verdicts import Finding, QualityLimits, Verdict, judge, worst
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.spark.functions import map_tensors
from tensor_pool.pipeline.spark.schema import OK

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tensor_pool.pipeline.jobs.report.model import Report
    from tensor_pool.pipeline.record.consumers import RecordedConsumer

__all__ = ["ConsumerQuality", "QualityResult", "QualitySlice", "StreamQuality", "quality"]

UNEXPLAINED: Final = "unexplained"
"""The reason of missing numbers of which the recording says nothing."""
_LATE: Final = 1.5
"""A frame is late when it comes more than so many median periods after the one before."""
_SLICES: Final = 60
_NS: Final = 1e9


class QualitySlice(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream was like in one part of the time."""

    start_s: float
    """Since the first frame."""
    frames: int
    missing: int


class ConsumerQuality(msgspec.Struct, frozen=True, kw_only=True):
    """What one consumer of a stream said of itself while it was recorded."""

    consumer_id: int
    is_recorder: bool
    """Whether it is the recorder itself."""
    mode: str
    first_seen: str
    last_seen: str
    epoch: int
    last_seq_seen: int | None
    """Of that epoch."""
    drops_gap: int
    """Frames that it never found."""
    drops_late: int
    """Frames that were overwritten before or while it read them."""
    drops_before: int
    """What it had lost already when it was first heard."""
    lost_share: float | None
    """Lost frames of all that it went past while it was heard; None when it went past none."""


class StreamQuality(msgspec.Struct, kw_only=True):
    """What one stream is like."""

    stream: str
    verdict: Verdict = "bad"
    findings: list[Finding] = []
    frames: int = 0
    """Frames that are there, each once."""
    nbytes: int = 0
    missing_frames: int = 0
    missing: dict[str, int] = {}
    """By reason: the ``status`` of rows, and ``unexplained`` for numbers that no row tells of."""
    missing_share: float | None = None
    longest_gap: int = 0
    """Missing frames in a row."""
    longest_silence_s: float | None = None
    """Between two frames that are there."""
    duplicates: int = 0
    backwards_stamps: int = 0
    repeated_stamps: int = 0
    late: int = 0
    """Frames that came more than 1.5 median periods after the one before, with none missing between."""
    frozen: int | None = None
    """Frames with the same bytes as the one before; None where checksums are not known."""
    epochs: int = 0
    restarts: int = 0
    first_time: str | None = None
    """Real time of the first frame; None when its clock is not known."""
    last_time: str | None = None
    duration_s: float = 0.0
    """From the first to the last frame of each epoch, added up."""
    rate_hz: float | None = None
    """Frames that are there in a second."""
    median_period_s: float | None = None
    jitter_p50_s: float | None = None
    """Of the difference between a period and the median one."""
    jitter_p95_s: float | None = None
    jitter_p99_s: float | None = None
    damaged: dict[str, int] | None = None
    """Frames whose bytes are not good, by reason; None unless bytes were read."""
    slices: list[QualitySlice] = []
    consumers: list[ConsumerQuality] = []
    """Those who lost the largest share first; of the whole recording, whatever part of it was looked at."""
    consumers_error: str | None = None
    """Why nothing is known of them, though the recording has something."""


class QualityResult(msgspec.Struct, kw_only=True):
    """What all streams are like."""

    streams: list[StreamQuality]
    limits: QualityLimits
    bytes_read: bool

    @property
    def verdict(self) -> Verdict:
        """The worst one; bad when there is no stream."""
        return worst(stream.verdict for stream in self.streams) if self.streams else "bad"

    @property
    def has_problems(self) -> bool:
        """Whether something is bad."""
        return self.verdict == "bad"

    def report(self) -> Report:
        """What to show of it."""
        from tensor_pool.pipeline.jobs.quality_report import quality_report  # noqa: PLC0415 - needs this file

        return quality_report(self)


def quality(
    df: DataFrame,
    *,
    limits: QualityLimits | None = None,
    read_bytes: bool = False,
    streams: Sequence[str] = (),
    recording: str | os.PathLike[str] | Recording | None = None,
) -> QualityResult:
    """What is missing, late, repeated or damaged.

    Args:
        df: Rows of the format ``tensorpool``.
        limits: What is good enough.
        read_bytes: Read every tensor and compare it with its checksum.
        streams: Streams that ought to be there; those without a row are bad.
        recording: Where the rows come from, to tell also what the consumers of the streams lost.

    Example:
        >>> df = spark.read.format("tensorpool").load("recordings/")  # doctest: +SKIP
        >>> quality(df).streams[0].missing  # doctest: +SKIP
        {'lost': 3}
    """
    require(df, "stream_id", "stream_name", "epoch", "seq", "timestamp_ns", "event_time", "status", "count")
    limits = QualityLimits() if limits is None else limits
    with kept(_with_before(df)) as rows:
        found = {name: StreamQuality(stream=name) for name in streams}
        for total in rows.groupBy("stream").agg(*_totals()).collect():
            found[total["stream"]] = _stream(total.asDict())
        for stream in found.values():
            stream.missing = {}
        _add_missing(rows, found)
        _add_jitter(rows, found)
        _add_slices(rows, found)
    if read_bytes:
        _add_damage(df, found)
    if recording is not None:
        _add_consumers(recording if isinstance(recording, Recording) else Recording(recording), found)
    for stream in found.values():
        _conclude(stream, limits)
    ordered = [found[name] for name in sorted(found)]
    return QualityResult(streams=ordered, limits=limits, bytes_read=read_bytes)


def _with_before(df: DataFrame) -> DataFrame:
    """Each row with what came before it in its epoch."""
    crc = f.col("ref.crc32c") if "ref" in df.columns else f.lit(None).cast("long")
    nbytes = f.col("nbytes") if "nbytes" in df.columns else f.lit(0)
    narrow = df.select(
        *(stream_name(), "epoch", "seq", "timestamp_ns", "event_time", "count", "status"),
        *(is_frame().alias("ok"), crc.alias("crc"), nbytes.alias("nbytes")),
    )
    life = Window.partitionBy("stream", "epoch").orderBy("seq", "timestamp_ns")
    before = life.rowsBetween(Window.unboundedPreceding, -1)

    def last_frame(name: str) -> Any:
        return f.last(f.when(f.col("ok"), f.col(name)), ignorenulls=True).over(before)

    rows = narrow.withColumns(
        {
            "seq_before": last_frame("seq"),
            "ns_before": last_frame("timestamp_ns"),
            "crc_before": last_frame("crc"),
            "expected": f.max(f.col("seq") + f.col("count")).over(before),
            # The number of frames before: the same for all gaps between two frames.
            "island": f.sum(f.col("ok").cast("long")).over(
                life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
            ),
        }
    )
    since = f.when(
        f.col("ok") & (f.col("seq") > f.col("seq_before")), f.col("timestamp_ns") - f.col("ns_before")
    )
    follows = f.col("seq") == f.col("seq_before") + 1
    return rows.withColumns(
        {
            "again": f.col("ok") & (f.col("seq") == f.col("seq_before")),
            "hole": f.greatest(f.lit(0), f.coalesce(f.col("seq") - f.col("expected"), f.lit(0))),
            "since_ns": since,
            "period_ns": f.when(follows, since),
            "same": f.col("ok") & follows & (f.col("crc") == f.col("crc_before")) & (f.col("nbytes") > 0),
        }
    )


def _count(condition: Any) -> Any:
    return f.coalesce(f.sum(condition.cast("long")), f.lit(0))


def _totals() -> list[Any]:
    frame = f.col("ok") & ~f.col("again").eqNullSafe(other=True)
    return [
        _count(frame).alias("frames"),
        f.sum(f.when(frame, f.col("nbytes")).otherwise(0)).alias("nbytes"),
        _count(f.col("again")).alias("duplicates"),
        f.sum("hole").alias("holes"),
        f.max(f.when(f.col("ok"), f.col("seq") - f.col("seq_before") - 1)).alias("longest_between"),
        f.max("since_ns").alias("longest_ns"),
        _count(f.col("since_ns") < 0).alias("backwards_stamps"),
        _count(f.col("since_ns") == 0).alias("repeated_stamps"),
        f.when(f.count("crc") > 0, _count(f.col("same"))).alias("frozen"),
        f.count_distinct("epoch").alias("epochs"),
        f.min(f.when(f.col("ok"), f.col("event_time"))).alias("first_time"),
        f.max(f.when(f.col("ok"), f.col("event_time"))).alias("last_time"),
        percentiles(f.col("period_ns"), [0.5])[0].alias("median_ns"),
    ]


def _stream(total: dict[str, Any]) -> StreamQuality:
    median = total["median_ns"]
    return StreamQuality(
        stream=total["stream"],
        frames=total["frames"],
        nbytes=total["nbytes"],
        missing_frames=total["holes"],
        longest_gap=max(total["longest_between"] or 0, 0),
        longest_silence_s=None if total["longest_ns"] is None else total["longest_ns"] / _NS,
        duplicates=total["duplicates"],
        backwards_stamps=total["backwards_stamps"],
        repeated_stamps=total["repeated_stamps"],
        frozen=total["frozen"],
        epochs=total["epochs"],
        restarts=max(total["epochs"] - 1, 0),
        first_time=iso(total["first_time"]),
        last_time=iso(total["last_time"]),
        median_period_s=median / _NS if median is not None and median > 0 else None,
    )


def _add_missing(rows: DataFrame, found: dict[str, StreamQuality]) -> None:
    """Missing frames by reason, and the longest run of them, which may have several reasons."""
    gaps = rows.filter(~f.col("ok"))
    for row in gaps.groupBy("stream", "status").agg(f.sum("count").alias("n")).orderBy("status").collect():
        if row["n"]:
            found[row["stream"]].missing[row["status"]] = row["n"]
    for stream in found.values():
        if stream.missing_frames:
            stream.missing[UNEXPLAINED] = stream.missing_frames
        stream.missing_frames = sum(stream.missing.values())
    runs = gaps.groupBy("stream", "epoch", "island").agg(f.sum(f.col("count") + f.col("hole")).alias("n"))
    for row in runs.groupBy("stream").agg(f.max("n").alias("n")).collect():
        stream = found[row["stream"]]
        stream.longest_gap = max(stream.longest_gap, row["n"])


def _add_jitter(rows: DataFrame, found: dict[str, StreamQuality]) -> None:
    """How far periods are from the median one; needs that one first."""
    lives = rows.filter("ok").groupBy("stream", "epoch")
    spans = lives.agg(
        (f.max("timestamp_ns") - f.min("timestamp_ns")).alias("ns"), (f.count_distinct("seq") - 1).alias("n")
    )
    for row in spans.groupBy("stream").agg(f.sum("ns").alias("ns"), f.sum("n").alias("n")).collect():
        stream = found[row["stream"]]
        stream.duration_s = row["ns"] / _NS
        stream.rate_hz = row["n"] * _NS / row["ns"] if row["ns"] > 0 else None
    medians = [(s.stream, round(s.median_period_s * _NS)) for s in found.values() if s.median_period_s]
    if not medians:
        return
    session = rows.sparkSession
    table = f.broadcast(session.createDataFrame(medians, "stream string, median_ns long"))
    periods = rows.filter("period_ns is not null").join(table, "stream")
    jitter = percentiles(f.abs(f.col("period_ns") - f.col("median_ns")), [0.5, 0.95, 0.99])
    late = _count(f.col("period_ns") > f.col("median_ns") * _LATE)
    for row in periods.groupBy("stream").agg(jitter.alias("jitter"), late.alias("late")).collect():
        stream = found[row["stream"]]
        stream.late = row["late"]
        stream.jitter_p50_s, stream.jitter_p95_s, stream.jitter_p99_s = (ns / _NS for ns in row["jitter"])


def _add_slices(rows: DataFrame, found: dict[str, StreamQuality]) -> None:
    """Frames and missing ones over time, by the clock of the frames."""
    ends = rows.filter("ok").groupBy("stream").agg(
        f.min("timestamp_ns").alias("begin"), f.max("timestamp_ns").alias("end")
    )  # fmt: skip
    span = f.col("end") - f.col("begin")
    number = f.floor((f.col("timestamp_ns") - f.col("begin")) * _SLICES / span)
    sliced = rows.join(f.broadcast(ends.filter("end > begin")), "stream").withColumn(
        "slice", f.least(f.lit(_SLICES - 1), f.greatest(f.lit(0), number))
    )
    missing = f.sum(f.when(f.col("ok"), f.lit(0)).otherwise(f.col("count")) + f.col("hole"))
    table = sliced.groupBy("stream", "slice").agg(
        _count(f.col("ok")).alias("frames"), missing.alias("missing"), f.first(span).alias("span")
    )
    for row in table.orderBy("stream", "slice").collect():
        start_s = row["slice"] * row["span"] / _NS / _SLICES
        found[row["stream"]].slices.append(
            QualitySlice(start_s=start_s, frames=row["frames"], missing=row["missing"])
        )


def _add_damage(df: DataFrame, found: dict[str, StreamQuality]) -> None:
    """Reads every tensor; workers tell only what is wrong."""
    for stream in found.values():
        stream.damaged = {}
    named = df.filter(is_frame()).withColumn("stream", stream_name())
    read = map_tensors(named, lambda _: 1, "readable int", keep=("stream", "status"), check=True)
    for row in read.filter(f.col("status") != OK).groupBy("stream", "status").count().collect():
        damaged = found[row["stream"]].damaged
        assert damaged is not None
        damaged[row["status"]] = row["count"]


def _add_consumers(recording: Recording, found: dict[str, StreamQuality]) -> None:
    """What is in no row: what others who read the stream lost."""
    for name in recording.keys() & found.keys():
        stream = found[name]
        try:
            consumers = [_consumer(each) for each in recording[name].consumers()]
        except TensorPoolError as e:
            stream.consumers_error = e.message
        except OSError as e:
            stream.consumers_error = str(e)
        else:
            stream.consumers = sorted(consumers, key=_by_loss)


def _consumer(each: RecordedConsumer) -> ConsumerQuality:
    return ConsumerQuality(
        consumer_id=each.consumer_id,
        is_recorder=each.is_recorder,
        mode=each.mode,
        first_seen=_iso_of(each.first_seen_ns),
        last_seen=_iso_of(each.last_seen_ns),
        epoch=each.epoch,
        last_seq_seen=each.last_seq_seen,
        drops_gap=each.drops_gap,
        drops_late=each.drops_late,
        drops_before=each.drops_before,
        lost_share=each.lost_share,
    )


def _by_loss(consumer: ConsumerQuality) -> tuple[int, int]:
    """By frames, not by share: one that came for a moment and lost it is not the worst."""
    return -(consumer.drops_gap + consumer.drops_late), consumer.consumer_id


def _iso_of(ns: int) -> str:
    moment = dt.datetime.fromtimestamp(ns // 1_000_000 / 1_000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _conclude(stream: StreamQuality, limits: QualityLimits) -> None:
    frames = stream.frames
    if frames + stream.missing_frames:
        stream.missing_share = stream.missing_frames / (frames + stream.missing_frames)
    share = 1 / frames if frames else None
    values: dict[str, float | None] = {
        "missing_share": stream.missing_share,
        "duplicates": stream.duplicates,
        "backwards_stamps": stream.backwards_stamps,
        "repeated_stamps": stream.repeated_stamps,
        "restarts": stream.restarts,
    }
    if share is not None:
        values["late_share"] = stream.late * share
        values["frozen_share"] = None if stream.frozen is None else stream.frozen * share
        values["damaged_share"] = None if stream.damaged is None else sum(stream.damaged.values()) * share
    if stream.median_period_s is not None and stream.jitter_p99_s is not None:
        values["jitter_share"] = stream.jitter_p99_s / stream.median_period_s
    verdict, stream.findings = judge(values, limits)
    stream.verdict = verdict if frames else "bad"

"""The job *statistics*: numbers of every frame, and whether they drift.

Every byte is read once, where it lies; what travels is one row of numbers for each frame.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.jobs.columns import in_order, is_frame, iso, kept, require, stream_name
from tensor_pool.pipeline.jobs.drift import (
    DriftLimits,
    bands,
    bin_edges,
    change_point,
    count_bins,
    mean_shift,
    stability_index,
)
from tensor_pool.pipeline.jobs.frame_statistics import dead_lines, frame_statistics, sample
from tensor_pool.pipeline.jobs.statistics_result import (
    DeadBand,
    StatisticsResult,
    StatisticsWindow,
    StreamStatistics,
    TimelinePoint,
)
from tensor_pool.pipeline.spark.functions import map_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

__all__ = ["FRAME_COLUMNS", "describe", "frame_table", "statistics"]

FRAME_COLUMNS: Final = (
    "size long, finite long, minimum double, maximum double, mean double, std double, nan_share double, "
    "inf_share double, dead_rows array<int>, dead_columns array<int>, histogram array<long>"
)
_KEPT: Final = ("stream", "epoch", "seq", "event_time", "status", "dtype", "shape")
_REFERENCE_FRAMES: Final = 32
_REFERENCE_VALUES: Final = 2_048
_SAMPLED_VALUES: Final = 1 << 16
"""So many values of a frame go into its histogram; all go into its other numbers."""
_POINTS: Final = 200
_MOST_KINDS: Final = 20


def frame_table(df: DataFrame, edges: Mapping[str, Sequence[float]] | None = None) -> DataFrame:
    """Numbers of each frame as a table: one row each, also for those that can't be read.

    Args:
        df: Rows of the format ``tensorpool``.
        edges: Between bins of histograms, by stream; without, histograms are null.

    Example:
        >>> frame_table(df).select("stream", "seq", "mean", "std").show()  # doctest: +SKIP
    """
    frames = df.filter(is_frame()).withColumn("stream", stream_name())
    return map_tensors(frames, partial(describe, edges or {}), FRAME_COLUMNS, keep=_KEPT, check=True)


def statistics(
    df: DataFrame, *, windows: int = 10, limits: DriftLimits | None = None, streams: Sequence[str] = ()
) -> StatisticsResult:
    """Numbers of all frames, and which parts of a stream are not like its first one.

    Args:
        df: Rows of the format ``tensorpool``.
        windows: Into how many parts with equally many frames a stream is cut.
        limits: What counts as drift.
        streams: Streams that ought to be there.

    Raises:
        ConfigError: There are less than two windows.

    Example:
        >>> found = statistics(df).streams[0]  # doctest: +SKIP
        >>> found.mean, found.drifts, found.changed_at_seq  # doctest: +SKIP
        (118.2, True, 600)
    """
    require(df, "stream_id", "stream_name", "epoch", "seq", "event_time", "status", "dtype", "shape")
    if windows < 2:
        raise ConfigError(f"windows={windows}", hint="2 or more: later ones are compared with the first one")
    limits = DriftLimits() if limits is None else limits
    found = {name: StreamStatistics(stream=name) for name in streams}
    edges = _reference_edges(df, windows)
    with kept(frame_table(df, edges)) as every:
        for row in every.groupBy("stream").agg(f.count_if(is_frame()).alias("frames")).collect():
            found[row["stream"]] = StreamStatistics(stream=row["stream"], frames=row["frames"])
        _add_unreadable_and_kinds(every, found)
        rows = in_order(every.filter(is_frame())).withColumns(
            {"window": _part("place", "total", windows), "point": _part("place", "total", _POINTS)}
        )
        with kept(rows) as frames:
            _add_totals(frames, found)
            _add_windows(frames, found, limits, {name: len(e) + 1 for name, e in edges.items()})
            _add_timeline(frames, found)
            _add_dead_lines(frames, found, limits)
    for stream in found.values():
        stream.drifts = any(window.drifts for window in stream.windows)
        if stream.drifts:
            place = change_point([point.mean for point in stream.timeline])
            stream.changed_at_seq = None if place is None else stream.timeline[place].seq
    return StatisticsResult(streams=[found[name] for name in sorted(found)], limits=limits)


def describe(
    edges: Mapping[str, Sequence[float]], array: NDArray[Any], row: Mapping[str, Any]
) -> tuple[Any, ...]:
    """What workers tell of a tensor, as `FRAME_COLUMNS`.

    Args:
        edges: As for `frame_table`.
        array: The tensor.
        row: Its row, with ``stream``.
    """
    borders = edges.get(row["stream"])
    histogram = None if not borders else count_bins(sample(array, _SAMPLED_VALUES), borders)
    return (*frame_statistics(array), *dead_lines(array), histogram)


def _part(place: str, total: str, parts: int) -> Column:
    """Which of some parts a row is in; as many parts as rows where rows are few."""
    count = f.least(f.lit(parts), f.col(total))
    return f.floor(f.col(place) * count / f.col(total)).cast("int")


def _reference_edges(df: DataFrame, windows: int) -> dict[str, list[float]]:
    """Edges between bins that suit the values of the first window, from some of its frames."""
    frames = in_order(df.filter(is_frame()).withColumn("stream", stream_name()))
    of_first = f.ceil(f.col("total") / windows)
    step = f.greatest(f.lit(1), f.ceil(of_first / _REFERENCE_FRAMES))
    chosen = frames.filter((f.col("place") < of_first) & (f.col("place") % step == 0))
    table = map_tensors(
        chosen,
        lambda array: sample(array, _REFERENCE_VALUES).tolist(),
        "found array<double>",
        keep=("stream",),
    )
    values: dict[str, list[float]] = {}
    for row in table.collect():
        values.setdefault(row["stream"], []).extend(row["found"] or ())
    return {stream: edges for stream, found in values.items() if (edges := bin_edges(found))}


def _add_unreadable_and_kinds(every: DataFrame, found: dict[str, StreamStatistics]) -> None:
    for row in every.filter(~is_frame()).groupBy("stream", "status").count().collect():
        found[row["stream"]].unreadable[row["status"]] = row["count"]
    kinds = every.groupBy("stream", "dtype", "shape").count()
    rank = f.row_number().over(Window.partitionBy("stream").orderBy(f.desc("count"), "dtype"))
    for row in kinds.withColumn("rank", rank).filter(f.col("rank") <= _MOST_KINDS).orderBy("rank").collect():
        shape = " x ".join(map(str, row["shape"])) or "one value"
        found[row["stream"]].kinds[f"{row['dtype']} {shape}"] = row["count"]


def _pooled(rows: DataFrame, *keys: str) -> DataFrame:
    """Numbers over all values of all frames of each group."""
    group = Window.partitionBy(*keys)
    n, center = f.col("finite"), f.col("center")
    centered = rows.withColumn("center", f.sum(n * f.col("mean")).over(group) / f.sum(n).over(group))
    spread = f.sum(n * (f.pow("std", f.lit(2)) + f.pow(f.col("mean") - center, f.lit(2))))
    return centered.groupBy(*keys).agg(
        f.count(f.lit(1)).alias("frames"),
        f.sum("size").alias("values"),
        f.min("minimum").alias("minimum"),
        f.max("maximum").alias("maximum"),
        f.first("center").alias("mean"),
        # No number divided by 0 of them is null, not an error.
        f.sqrt(f.try_divide(spread, f.sum(n))).alias("std"),
        f.try_divide(f.sum(f.col("nan_share") * f.col("size")), f.sum("size")).alias("nan_share"),
        f.try_divide(f.sum(f.col("inf_share") * f.col("size")), f.sum("size")).alias("inf_share"),
        f.count_if(f.col("minimum") == f.col("maximum")).alias("constant"),
        f.min_by("epoch", "place").alias("first_epoch"),
        f.min_by("seq", "place").alias("first_seq"),
        f.max_by("seq", "place").alias("last_seq"),
        f.min_by("event_time", "place").alias("start"),
    )


def _add_totals(frames: DataFrame, found: dict[str, StreamStatistics]) -> None:
    for row in _pooled(frames, "stream").collect():
        stream = found[row["stream"]]
        stream.values, stream.constant_frames = row["values"], row["constant"]
        for name in ("minimum", "maximum", "mean", "std", "nan_share", "inf_share"):
            setattr(stream, name, row[name])


def _add_windows(
    frames: DataFrame, found: dict[str, StreamStatistics], limits: DriftLimits, bins: Mapping[str, int]
) -> None:
    histograms = _histograms(frames, max(bins.values(), default=0))
    for row in _pooled(frames, "stream", "window").orderBy("stream", "window").collect():
        stream = found[row["stream"]]
        one = StatisticsWindow(
            window=row["window"],
            first_epoch=row["first_epoch"],
            first_seq=row["first_seq"],
            last_seq=row["last_seq"],
            start=iso(row["start"]),
            frames=row["frames"],
            **{name: row[name] for name in ("mean", "std", "minimum", "maximum", "nan_share")},
        )
        if stream.windows:
            width = bins.get(stream.stream, 0)
            before, after = (
                histograms.get((stream.stream, w.window), ())[:width] for w in (stream.windows[0], one)
            )
            one.psi = stability_index(before, after)
            _compare(stream.windows[0], one, limits)
        stream.windows.append(one)


def _compare(reference: StatisticsWindow, one: StatisticsWindow, limits: DriftLimits) -> None:
    one.mean_shift = mean_shift((reference.mean, reference.std), one.mean)
    if one.mean_shift is not None and abs(one.mean_shift) > limits.mean_shift:
        one.why.append(f"the mean moved by {one.mean_shift:+.2g} standard deviations")
    if one.psi is not None and one.psi > limits.psi:
        one.why.append(f"values are distributed otherwise (PSI {one.psi:.2g})")
    more = (one.nan_share or 0.0) - (reference.nan_share or 0.0)
    if more > limits.nan_share:
        one.why.append(f"{more:.1%} more values are no numbers")
    one.drifts = bool(one.why)


def _histograms(frames: DataFrame, bins: int) -> dict[tuple[str, int], list[int]]:
    if not bins:
        return {}
    sums = [f.coalesce(f.sum(f.get("histogram", f.lit(at))), f.lit(0)) for at in range(bins)]
    table = frames.groupBy("stream", "window").agg(f.array(*sums).alias("histogram"))
    return {(row["stream"], row["window"]): row["histogram"] for row in table.collect()}


def _add_timeline(frames: DataFrame, found: dict[str, StreamStatistics]) -> None:
    points = frames.groupBy("stream", "point").agg(
        f.min("place").alias("place"),
        f.min_by("seq", "place").alias("seq"),
        f.avg("mean").alias("mean"),
        f.min("minimum").alias("minimum"),
        f.max("maximum").alias("maximum"),
    )
    for row in points.orderBy("stream", "point").collect():
        values = row.asDict()
        stream = found[values.pop("stream")]
        values.pop("point")
        stream.timeline.append(TimelinePoint(**values))


def _add_dead_lines(frames: DataFrame, found: dict[str, StreamStatistics], limits: DriftLimits) -> None:
    """Lines that are dead in many frames of a window, and were not in the first one."""
    for axis in ("rows", "columns"):
        lines = frames.select(
            "stream", "window", "place", "epoch", "seq", f.explode(f"dead_{axis}").alias("line")
        )
        table = lines.groupBy("stream", "window", "line").agg(
            f.count(f.lit(1)).alias("n"), f.min_by(f.struct("epoch", "seq"), "place").alias("since")
        )
        dead: dict[str, dict[int, list[Any]]] = {}
        for row in table.orderBy("stream", "line", "window").collect():
            dead.setdefault(row["stream"], {}).setdefault(row["line"], []).append(row)
        for name, by_line in dead.items():
            _name_bands(axis, found[name], by_line, limits)


def _name_bands(
    axis: Any, stream: StreamStatistics, by_line: Mapping[int, list[Any]], limits: DriftLimits
) -> None:
    frames = [window.frames for window in stream.windows]
    shares: dict[int, dict[int, float]] = {}
    for line, rows in by_line.items():
        share = {row["window"]: row["n"] / frames[row["window"]] for row in rows}
        if max(share.values()) - share.get(0, 0.0) > limits.line_share:
            shares[line] = share
    for first, last in bands(shares):
        rows = [row for row in by_line[first] if row["window"] > 0 or len(frames) == 1]
        since = rows[0]["since"]
        most = max(max(shares[line].values()) for line in range(first, last + 1))
        stream.dead_bands.append(
            DeadBand(
                axis=axis,
                first=first,
                last=last,
                since_epoch=since["epoch"],
                since_seq=since["seq"],
                share=most,
            )
        )
        for window in stream.windows[1:]:
            if shares[first].get(window.window, 0.0) - shares[first].get(0, 0.0) > limits.line_share:
                window.drifts = True
                window.why.append(f"{axis} {first} to {last} are dead")

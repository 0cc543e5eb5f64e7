"""What the report of the job *latency* shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.pipeline.jobs.report.model import BarPlot, KeyFigure, LinePlot, Report, Series, Table

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.latency_job import LatencyResult, StreamLatency
    from tensor_pool.pipeline.jobs.report.model import Figure

__all__ = ["COLUMNS", "latency_report", "seconds_text"]

COLUMNS: Final = (
    "stream",
    "frames",
    "without_clock",
    "negative",
    "p50_s",
    "p90_s",
    "p99_s",
    "p999_s",
    "max_s",
)
_WINDOWS: Final = ("stream", "start", "frames", "p50_s", "p99_s", "max_s")
_MOST_PLOTS: Final = 12


def latency_report(result: LatencyResult) -> Report:
    """Percentiles first, then histograms and how they change, then all numbers."""
    streams = result.streams
    known, unknown = (sum(getattr(s, name) for s in streams) for name in ("frames", "without_clock"))
    slowest = max((s for s in streams if s.p99_s is not None), key=lambda s: s.p99_s or 0.0, default=None)
    notes = []
    if unknown:
        notes.append(
            f"{unknown:,} frames have no known clock (event_time or recorded_time is null) and are left out. "
            "Producers name their clock in the metadata, as clock.domain."
        )
    if not known:
        notes.append("There is no frame with both times, so there is no latency to tell.")
    if result.has_problems:
        notes.append("Some frames were recorded before they were taken: a clock is wrong, or clocks differ.")
    rows = [msgspec.to_builtins(stream) for stream in streams]
    return Report(
        job="latency",
        title="Latency of a recording",
        summary="From the time stamp of a frame to its recording.",
        figures=[
            KeyFigure("frames", f"{known:,}"),
            KeyFigure("without clock", f"{unknown:,}", tone="warn" if unknown else "ok"),
            KeyFigure(
                "slowest p99",
                seconds_text(slowest.p99_s if slowest else None),
                slowest.stream if slowest else "",
            ),
            KeyFigure(
                "largest", seconds_text(max((s.max_s for s in streams if s.max_s is not None), default=None))
            ),
        ],
        plots=[plot for stream in streams[:_MOST_PLOTS] if stream.frames for plot in _plots(stream)],
        tables=[
            Table(title="Streams", columns=COLUMNS, rows=rows, note="Seconds." if rows else "no stream"),
            Table(
                title="Over time",
                columns=_WINDOWS,
                rows=[{"stream": row["stream"], **window} for row in rows for window in row["windows"]],
            ),
        ],
        notes=notes,
    )


def seconds_text(seconds: float | None) -> str:
    """A duration in the unit that suits it.

    Example:
        >>> seconds_text(0.00213), seconds_text(3.5), seconds_text(0.0000005), seconds_text(None)
        ('2.13 ms', '3.5 s', '0.5 µs', '-')
    """
    if seconds is None:
        return "-"
    for limit, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms")):
        if abs(seconds) >= limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _plots(stream: StreamLatency) -> list[Figure]:
    windows = stream.windows
    return [
        BarPlot(
            title=f"{stream.stream}: histogram",
            x_label="latency from",
            y_label="frames",
            bars=[(seconds_text(each.from_s), each.frames) for each in stream.histogram],
        ),
        LinePlot(
            title=f"{stream.stream}: latency over time",
            x_label="seconds since the first frame",
            y_label="ms",
            series=[
                Series(name, [(w.start_s, getattr(w, field) * 1e3) for w in windows])
                for name, field in (("p50", "p50_s"), ("p99", "p99_s"), ("max", "max_s"))
            ],
        ),
    ]

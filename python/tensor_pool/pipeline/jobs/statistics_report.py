"""What the report of the job *statistics* shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.pipeline.jobs.report.model import KeyFigure, LinePlot, Report, Series, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.pipeline.jobs.statistics_result import StatisticsResult, StreamStatistics

__all__ = ["COLUMNS", "statistics_report"]

COLUMNS: Final = ("stream", "drifts", "found", "frames", "kinds", "minimum", "maximum", "mean", "std",
                  "nan_share", "changed_at_seq")  # fmt: skip
_MORE: Final = ("stream", "values", "inf_share", "constant_frames", "unreadable")
_WINDOWS: Final = ("stream", "window", "first_seq", "last_seq", "start", "frames", "mean", "std",
                   "mean_shift", "psi", "drifts", "why")  # fmt: skip
_BANDS: Final = ("stream", "axis", "first", "last", "since_seq", "since_epoch", "share")
_MOST_PLOTS: Final = 12


def statistics_report(result: StatisticsResult) -> Report:
    """What drifts first, then values over time, then all numbers."""
    streams = result.streams
    rows = [msgspec.to_builtins(stream) | {"found": found_text(stream)} for stream in streams]
    frames = sum(stream.frames for stream in streams)
    drifting = [stream.stream for stream in streams if stream.drifts]
    unreadable = sum(sum(stream.unreadable.values()) for stream in streams)
    dead = sum(len(stream.dead_bands) for stream in streams)
    notes = [
        f"{name} drifts: {found_text(stream)}" for stream in streams if (name := stream.stream) in drifting
    ]
    if not frames:
        notes.append("There is no frame that can be read, so there are no numbers.")
    if any(stream.frames == 1 for stream in streams):
        notes.append("A stream with one frame has nothing that it could be compared with.")
    if any(len(stream.kinds) > 1 for stream in streams):
        notes.append("A stream has frames of several types or shapes; its numbers are over all of them.")
    return Report(
        job="statistics",
        title="Statistics of a recording",
        summary=f"{frames:,} frames of {len(streams)} streams; "
        + (f"drift in {len(drifting)}." if drifting else "no drift."),
        figures=[
            KeyFigure("streams that drift", f"{len(drifting):,}", tone="bad" if drifting else "ok"),
            KeyFigure("frames", f"{frames:,}"),
            KeyFigure("values", f"{sum(stream.values for stream in streams):,}"),
            KeyFigure("unreadable", f"{unreadable:,}", tone="bad" if unreadable else "ok"),
            KeyFigure(
                "largest PSI",
                _largest(abs(w.psi) for s in streams for w in s.windows if w.psi is not None),
                "against the first window",
            ),
            KeyFigure("dead bands", f"{dead:,}", tone="bad" if dead else "ok"),
        ],
        plots=[_plot(stream) for stream in streams[:_MOST_PLOTS] if stream.timeline],
        tables=[
            Table(title="Streams", columns=COLUMNS, rows=rows, note="" if rows else "no stream"),
            Table(
                title="Windows",
                columns=_WINDOWS,
                rows=[{"stream": row["stream"], **window} for row in rows for window in row["windows"]],
                note="The first window of a stream is what its others are compared with. Drift is "
                + ", ".join(
                    f"{name} above {value:g}" for name, value in msgspec.to_builtins(result.limits).items()
                )
                + ".",
            ),
            Table(
                title="Dead rows and columns",
                columns=_BANDS,
                rows=[{"stream": row["stream"], **band} for row in rows for band in row["dead_bands"]],
                note="Lines of pictures with one value throughout, and not so in the first window.",
            ),
            Table(title="More", columns=_MORE, rows=rows),
        ],
        notes=notes,
    )


def found_text(stream: StreamStatistics) -> str:
    """What was found in one stream, in words."""
    if not stream.frames:
        return "no frame"
    said = [
        f"{band.axis} {band.first} to {band.last} are dead since frame {band.since_seq}"
        for band in stream.dead_bands
    ]
    reasons = {why.partition(" by ")[0].partition(" (")[0] for window in stream.windows for why in window.why}
    said += sorted(reason for reason in reasons if "are dead" not in reason)
    if stream.drifts and stream.changed_at_seq is not None:
        said.append(f"the largest change of the mean is at frame {stream.changed_at_seq}")
    return "; ".join(said)


def _largest(values: Iterable[float]) -> str:
    found = max(values, default=None)
    return "-" if found is None else f"{found:.3g}"


def _plot(stream: StreamStatistics) -> LinePlot:
    line = stream.timeline
    marks: list[tuple[float, str]] = []
    if stream.changed_at_seq is not None:
        place = next(point.place for point in line if point.seq == stream.changed_at_seq)
        marks.append((place, f"change at {stream.changed_at_seq}"))
    return LinePlot(
        title=f"{stream.stream}: values over time",
        x_label="frames since the first one",
        y_label="value",
        series=[
            Series(name, [(point.place, getattr(point, field)) for point in line])
            for name, field in (("mean", "mean"), ("minimum", "minimum"), ("maximum", "maximum"))
        ],
        marks=marks,
    )

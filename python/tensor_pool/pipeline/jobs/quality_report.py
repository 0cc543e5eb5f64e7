"""What the report of the job *quality* shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.pipeline.jobs.report.model import KeyFigure, LinePlot, Report, Series, Table

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.quality_job import QualityResult, StreamQuality

__all__ = ["COLUMNS", "quality_report"]

COLUMNS: Final = ("stream", "verdict", "why", "frames", "missing_frames", "missing", "longest_gap", "rate_hz",
                  "median_period_s", "jitter_p99_s", "restarts")  # fmt: skip
_TIMES: Final = ("stream", "duration_s", "rate_hz", "median_period_s", "jitter_p50_s", "jitter_p95_s",
                 "jitter_p99_s", "longest_silence_s", "late", "backwards_stamps", "repeated_stamps",
                 "first_time", "last_time")  # fmt: skip
_CONTENT: Final = ("stream", "frames", "nbytes", "duplicates", "frozen", "damaged", "epochs")
_CONSUMERS: Final = ("stream", "consumer", "recorder", "mode", "lost_share", "drops_gap", "drops_late",
                     "drops_before", "last_seq_seen", "first_seen", "last_seen")  # fmt: skip
_MOST_PLOTS: Final = 12


def quality_report(result: QualityResult) -> Report:
    """Verdicts first, then frames and gaps over time, then all numbers."""
    streams = result.streams
    frames = sum(stream.frames for stream in streams)
    missing = sum(stream.missing_frames for stream in streams)
    rows = [msgspec.to_builtins(stream) | {"why": why(stream)} for stream in streams]
    notes = []
    if not frames:
        notes.append("There is no frame to judge: the recording is empty, or options left nothing of it.")
    if not result.bytes_read:
        notes.append("Bytes were not read: damaged tensors are not known. Reading every byte finds them.")
    unknown = {stream.stream: stream.consumers_error for stream in streams if stream.consumers_error}
    if unknown:
        why_not = "; ".join(sorted(set(unknown.values())))
        notes.append(f"What consumers of {len(unknown)} streams lost is not known: {why_not}")
    if any(stream.frames and stream.median_period_s is None for stream in streams):
        notes.append("A stream without two successive frames, or without time stamps, has no rate or jitter.")
    return Report(
        job="quality",
        title="Quality of a recording",
        summary=f"{frames:,} frames of {len(streams)} streams, {missing:,} missing: {result.verdict}.",
        figures=_figures(result, frames, missing),
        plots=[_plot(stream) for stream in streams[:_MOST_PLOTS] if stream.slices],
        tables=[
            Table(title="Streams", columns=COLUMNS, rows=rows, note="no stream" if not rows else ""),
            _consumers(result),
            Table(title="Times", columns=_TIMES, rows=rows, note="Seconds, by the time stamps of frames."),
            Table(title="Content", columns=_CONTENT, rows=rows),
            Table(
                title="Limits",
                columns=("measure", "warn", "bad"),
                rows=[
                    {"measure": name, **msgspec.to_builtins(getattr(result.limits, name))}
                    for name in result.limits.__struct_fields__
                ],
                note="A number above a limit leads to its verdict; a stream without frames is bad.",
            ),
        ],
        notes=notes,
    )


def why(stream: StreamQuality) -> str:
    """What led to a verdict."""
    if not stream.frames:
        return "no frame"
    return "; ".join(map(str, stream.findings))


def _figures(result: QualityResult, frames: int, missing: int) -> list[KeyFigure]:
    streams = result.streams
    bad = sum(stream.verdict == "bad" for stream in streams)
    warned = sum(stream.verdict == "warn" for stream in streams)
    total = frames + missing
    figures = [
        KeyFigure("verdict", result.verdict, f"{bad} bad, {warned} to look at", result.verdict),
        KeyFigure("streams", f"{len(streams):,}"),
        KeyFigure("frames", f"{frames:,}"),
        KeyFigure(
            "missing",
            f"{missing:,}",
            f"{missing / total:.3%}" if total else "",
            "warn" if missing else "ok",
        ),
        KeyFigure("longest gap", f"{max((s.longest_gap for s in streams), default=0):,}", "frames in a row"),
        KeyFigure("restarts", f"{sum(stream.restarts for stream in streams):,}"),
    ]
    if result.bytes_read:
        damaged = sum(sum((stream.damaged or {}).values()) for stream in streams)
        figures.append(KeyFigure("damaged tensors", f"{damaged:,}", tone="bad" if damaged else "ok"))
    return figures


def _consumers(result: QualityResult) -> Table:
    rows = [
        msgspec.to_builtins(each)
        | {"stream": stream.stream, "consumer": str(each.consumer_id), "recorder": each.is_recorder}
        for stream in result.streams
        for each in stream.consumers
    ]
    note = (
        "What consumers said while it was recorded, worst first, of the whole recording. What they had lost "
        "when they were first heard stands under 'drops before' and is in no other number."
    )
    return Table(
        title="Consumers",
        columns=_CONSUMERS,
        rows=rows,
        note=note if rows else "the recording does not tell of consumers",
        is_printed=True,
    )


def _plot(stream: StreamQuality) -> LinePlot:
    return LinePlot(
        title=f"{stream.stream}: frames over time",
        x_label="seconds since the first frame",
        y_label="frames",
        series=[
            Series("there", [(part.start_s, part.frames) for part in stream.slices]),
            Series("missing", [(part.start_s, part.missing) for part in stream.slices]),
        ],
    )

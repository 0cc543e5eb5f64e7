"""What the report of the job *lineage* shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.pipeline.jobs.latency_report import seconds_text
from tensor_pool.pipeline.jobs.report.model import BarPlot, KeyFigure, Report, Table

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.lineage_job import LineageResult

__all__ = ["COLUMNS", "NO_TRACES", "lineage_report"]

COLUMNS: Final = ("stream", "frames", "traced", "traces")
_STAGES: Final = ("source", "target", "traces", "without_clock", "p50_s", "p99_s", "max_s")
NO_TRACES: Final = (
    "No frame has a trace id, so nothing says which frames belong together. Producers give one with "
    "publish(..., trace_id=...) and pass on the one of the frame that they worked on."
)


def lineage_report(result: LineageResult) -> Report:
    """How much is joined first, then latencies between stages, then traces."""
    streams = result.streams
    frames, traced = (sum(getattr(s, name) for s in streams) for name in ("frames", "traced"))
    notes = []
    if not traced:
        notes.append(NO_TRACES if frames else "There is no frame.")
    elif not result.joined:
        notes.append("No trace id is in more than one stream, so there are no stages to compare.")
    slowest = max((s for s in result.stages if s.p50_s is not None), key=lambda s: s.p50_s or 0, default=None)
    return Report(
        job="lineage",
        title="Lineage of a recording",
        summary=f"{result.traces:,} traces, {result.joined:,} of them in more than one stream.",
        figures=[
            KeyFigure("traces", f"{result.traces:,}"),
            KeyFigure("in several streams", f"{result.joined:,}"),
            KeyFigure(
                "frames with a trace id",
                f"{traced:,}",
                f"of {frames:,}",
                "ok" if traced == frames and frames else "warn",
            ),
            KeyFigure(
                "slowest stage",
                seconds_text(slowest.p50_s if slowest else None),
                f"{slowest.source} to {slowest.target}" if slowest else "",
            ),
        ],
        plots=[
            BarPlot(
                title="Median latency between streams",
                x_label="from, to",
                y_label="ms",
                bars=[
                    (f"{s.source} → {s.target}", s.p50_s * 1e3) for s in result.stages if s.p50_s is not None
                ],
            )
        ]
        if slowest
        else [],
        tables=[
            Table(
                title="Stages",
                columns=_STAGES,
                rows=[msgspec.to_builtins(stage) for stage in result.stages],
                note="Between the frames of two streams with the same trace id, the earlier one first.",
            ),
            Table(
                title="Streams",
                columns=COLUMNS,
                rows=[msgspec.to_builtins(stream) for stream in streams],
                note="" if streams else "no stream",
            ),
            Table(
                title="Paths",
                columns=("path", "traces"),
                rows=[{"path": " → ".join(p.streams), "traces": p.traces} for p in result.paths],
                note="Through which streams traces went, by time. A short path ends where a frame is not.",
            ),
            Table(
                title="Traces",
                columns=("trace_id", "frames"),
                rows=[
                    {"trace_id": f"{t.trace_id:016x}", "frames": [f"{g.stream} #{g.seq}" for g in t.frames]}
                    for t in result.examples
                ],
                note="Some that are in most streams: stream and number of each frame.",
            ),
        ],
        notes=notes,
    )

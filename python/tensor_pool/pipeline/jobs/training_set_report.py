"""What the report of the job *training-set* shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.pipeline.jobs.report.model import BarPlot, KeyFigure, LinePlot, Report, Series, Table

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.report.model import Figure
    from tensor_pool.pipeline.jobs.training_set_job import TrainingSetResult

__all__ = ["COLUMNS", "training_set_report"]

COLUMNS: Final = ("split", "frames", "share", "nbytes", "files")
_STREAMS: Final = ("stream", "frames", "missing_frames", "missing")


def training_set_report(result: TrainingSetResult) -> Report:
    """The splits first, then their frames over time, then what became of each stream."""
    splits, frames = result.splits, result.frames
    missing = sum(stream.missing_frames for stream in result.streams)
    rows = [
        msgspec.to_builtins(split) | {"share": split.frames / frames if frames else None} for split in splits
    ]
    notes = [f"The training set is in {result.dataset}; {result.manifest} says what is in it, with hashes."]
    if not frames:
        notes.append(
            "There is no frame to train with: the recording is empty, or options left nothing of it."
        )
    empty = [split.split for split in splits if frames and not split.frames]
    if empty:
        notes.append(f"There is no frame in {', '.join(empty)}: too few frames for such a small part.")
    if result.unreadable:
        notes.append(
            f"{result.unreadable:,} frames were recorded and can't be read; `tpool verify` names them."
        )
    return Report(
        job="training-set",
        title="A training set of a recording",
        summary=f"{frames:,} frames in {len(splits)} splits by {result.by}, in {result.dataset}.",
        figures=[
            KeyFigure("frames", f"{frames:,}", tone="plain" if frames else "bad"),
            *(KeyFigure(split.split, f"{split.frames:,}", f"{split.nbytes:,} bytes") for split in splits),
            KeyFigure("missing", f"{missing:,}", "lost, or not readable", "warn" if missing else "ok"),
        ],
        plots=_plots(result),
        tables=[
            Table(
                title="Splits",
                columns=COLUMNS,
                rows=rows,
                note=f"{result.manifest}, hash {result.hash[:16]}…",
            ),
            Table(
                title="Streams",
                columns=_STREAMS,
                rows=[msgspec.to_builtins(stream) for stream in result.streams],
                note="" if result.streams else "no stream",
            ),
        ],
        notes=notes,
    )


def _plots(result: TrainingSetResult) -> list[Figure]:
    bars = [(split.split, float(split.frames)) for split in result.splits]
    lines = [
        Series(split.split, [(part.start_s, part.frames) for part in split.slices]) for split in result.splits
    ]
    plots: list[Figure] = [
        BarPlot(title="Frames by split", x_label="split", y_label="frames", bars=bars),
        LinePlot(
            title="Frames over time",
            x_label="seconds since the first frame",
            y_label="frames",
            series=[line for line in lines if line.points],
        ),
    ]
    return plots if result.frames else []

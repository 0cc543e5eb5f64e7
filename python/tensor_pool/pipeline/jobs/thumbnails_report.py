"""What the report of the job *thumbnails* shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.pipeline.jobs.report.model import KeyFigure, Picture, Report, Table

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.thumbnails_job import ThumbnailsResult

__all__ = ["COLUMNS", "thumbnails_report"]

COLUMNS: Final = ("stream", "frames", "drawn", "refused", "sheet", "reasons")
_MOST_SHEETS: Final = 24


def thumbnails_report(result: ThumbnailsResult) -> Report:
    """The sheets themselves, then what could not be drawn."""
    streams = result.streams
    rows = []
    for stream in streams:
        reasons = sorted({one.reason for one in stream.thumbnails if one.reason})
        rows.append(
            msgspec.to_builtins(stream) | {"reasons": reasons or ([] if stream.frames else ["no frame"])}
        )
    sheets = [(stream.stream, stream.sheet) for stream in streams if stream.sheet is not None]
    notes = [] if sheets else ["There is no frame to draw."]
    if len(sheets) > _MOST_SHEETS:
        notes.append(f"The page shows {_MOST_SHEETS} of {len(sheets)} sheets; all are files beside it.")
    return Report(
        job="thumbnails",
        title="Pictures of a recording",
        summary=f"{sum(stream.drawn for stream in streams):,} frames of {len(streams)} streams.",
        figures=[
            KeyFigure("streams", f"{len(streams):,}"),
            KeyFigure("drawn", f"{sum(stream.drawn for stream in streams):,}"),
            KeyFigure("refused", f"{sum(stream.refused for stream in streams):,}", "named on the sheets"),
        ],
        plots=[Picture(title=name, png=Path(sheet).read_bytes()) for name, sheet in sheets[:_MOST_SHEETS]],
        tables=[Table(title="Streams", columns=COLUMNS, rows=rows, note="" if rows else "no stream")],
        notes=notes,
    )

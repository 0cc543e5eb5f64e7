"""What a report says, whatever it looks like: key figures, then plots, then tables."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["BarPlot", "KeyFigure", "LinePlot", "Picture", "Report", "Series", "Table", "Tone"]

Tone = Literal["plain", "ok", "warn", "bad"]
"""How a figure is to be taken."""


class KeyFigure(msgspec.Struct, frozen=True):
    """One number that matters.

    Example:
        >>> KeyFigure("missing frames", "3 of 120", tone="warn").tone
        'warn'
    """

    name: str
    value: str
    note: str = ""
    tone: Tone = "plain"


class Series(msgspec.Struct, frozen=True):
    """A line of a plot; a point without a value interrupts it."""

    name: str
    points: list[tuple[float, float | None]]


class LinePlot(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over a common axis."""

    title: str
    x_label: str
    y_label: str
    series: list[Series]
    marks: list[tuple[float, str]] = []
    """Places on the x axis that are named: where something begins."""


class BarPlot(msgspec.Struct, frozen=True, kw_only=True):
    """Bars side by side, such as a histogram."""

    title: str
    x_label: str
    y_label: str
    bars: list[tuple[str, float]]


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A PNG file, which becomes part of the page."""

    title: str
    png: bytes


Figure: TypeAlias = LinePlot | BarPlot | Picture


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with named columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    note: str = ""
    """What to know of it; for a table without rows, why it has none."""
    is_printed: bool = False
    """Whether the command prints it too, if it has rows; the first table is always printed."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that a job has to say."""

    job: str
    title: str
    summary: str
    """One sentence."""
    figures: list[KeyFigure]
    plots: list[Figure]
    tables: list[Table]
    notes: list[str] = []
    """What a reader has to know to take the numbers right."""

"""Plots as SVG that is part of a page: its colours are the page's, in the light and in the dark."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensor_pool.pipeline.jobs.report.model import BarPlot, LinePlot

__all__ = ["bar_svg", "line_svg", "short", "ticks"]

_WIDTH: Final = 640
_HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 44
_INNER_WIDTH: Final = _WIDTH - _LEFT - _RIGHT
_INNER_HEIGHT: Final = _HEIGHT - _TOP - _BOTTOM
_COLOURS: Final = 6
_MOST_POINTS: Final = 1_000
_MOST_LABELS: Final = 10
_LETTER: Final = 6.5
"""The width of a letter."""


def short(value: float) -> str:
    """A number as short as it can be read on an axis.

    Example:
        >>> short(0.00025), short(1_500_000), short(12), short(0)
        ('0.00025', '1.5M', '12', '0')
    """
    size = abs(value)
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (limit if letter != 'k' else 1e3):.4g}{letter}"
    return f"{value:.4g}"


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between two numbers.

    Example:
        >>> ticks(0, 9.3)
        [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / wanted))
    step = next((step * factor for factor in (1, 2, 5) if span / (step * factor) <= wanted), step * 10)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def line_svg(plot: LinePlot) -> str:
    """Lines over a common axis; points that are not finite interrupt them."""
    drawn = [_thinned(series.points) for series in plot.series]
    points = [(x, y) for line in drawn for x, y in line if y is not None and math.isfinite(y)]
    if not points:
        return _nothing(plot.title)
    low_x, high_x = _range(x for x, _ in points)
    low_y, high_y = _range((y for _, y in points), padded=True)

    def at(x: float, y: float) -> str:
        across = _LEFT + (x - low_x) / (high_x - low_x) * _INNER_WIDTH
        return f"{across:.1f},{_TOP + (high_y - y) / (high_y - low_y) * _INNER_HEIGHT:.1f}"

    parts = [_y_axis(low_y, high_y, plot.y_label)]
    for tick in ticks(low_x, high_x, 6):
        across = float(at(tick, low_y).partition(",")[0])
        parts.append(_x_text(across, short(tick)))
    for x, name in plot.marks:
        across = float(at(min(max(x, low_x), high_x), low_y).partition(",")[0])
        parts.append(
            f'<line class="mark" x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
            f'<text class="mark" x="{across + (4 if across < _WIDTH / 2 else -4):.1f}" y="{_TOP + 10}" '
            f'text-anchor="{"start" if across < _WIDTH / 2 else "end"}">{escape(name)}</text>'
        )
    for number, line in enumerate(drawn):
        for piece in _pieces(line):
            colour = f"line c{number % _COLOURS}"
            if len(piece) == 1:
                left, top = at(*piece[0]).split(",")
                parts.append(f'<circle class="{colour} dot" cx="{left}" cy="{top}" r="3"/>')
            else:
                parts.append(f'<polyline class="{colour}" points="{" ".join(at(*p) for p in piece)}"/>')
    return _svg(plot.title, [*parts, _x_label(plot.x_label)]) + _legend([s.name for s in plot.series])


def bar_svg(plot: BarPlot) -> str:
    """Bars side by side; labels that would not fit are cut or left out, and stand in full in their tips."""
    finite = [(label, value) for label, value in plot.bars if math.isfinite(value)]
    if not finite or not any(value for _, value in finite):
        return _nothing(plot.title)
    high = max(value for _, value in finite)
    width = _INNER_WIDTH / len(finite)
    every = math.ceil(len(finite) / _MOST_LABELS)
    parts = [_y_axis(0.0, high, plot.y_label)]
    for number, (label, value) in enumerate(finite):
        left, tall = _LEFT + number * width, value / high * _INNER_HEIGHT
        parts.append(
            f'<rect class="bar c0" x="{left + width * 0.08:.1f}" y="{_HEIGHT - _BOTTOM - tall:.1f}" '
            f'width="{width * 0.84:.1f}" height="{tall:.1f}">'
            f"<title>{escape(label)}: {short(value)}</title></rect>"
        )
        if number % every == 0:
            room = max(3, int(width * every / _LETTER))
            parts.append(_x_text(left + width / 2, label if len(label) <= room else f"{label[: room - 1]}…"))
    return _svg(plot.title, [*parts, _x_label(plot.x_label)])


def _range(values: Iterable[float], *, padded: bool = False) -> tuple[float, float]:
    found = list(values)
    low, high = min(found), max(found)
    if low == high:
        # One value: an axis around it.
        room = abs(low) * 0.1 or 1.0
        return low - room, high + room
    room = (high - low) * 0.05 if padded else 0.0
    return low - room, high + room


def _thinned(points: Sequence[tuple[float, float | None]]) -> Sequence[tuple[float, float | None]]:
    """No more points than can be seen."""
    return points[:: max(1, math.ceil(len(points) / _MOST_POINTS))]


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Runs of points that have values."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is not None and math.isfinite(y):
            pieces[-1].append((x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _svg(title: str, parts: Sequence[str]) -> str:
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _nothing(title: str) -> str:
    return f'<p class="empty" role="img" aria-label="{escape(title)}">nothing to draw</p>'


def _y_axis(low: float, high: float, label: str) -> str:
    parts = []
    for tick in ticks(low, high):
        down = _TOP + (high - tick) / (high - low) * _INNER_HEIGHT
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down:.1f}" y2="{down:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{short(tick)}</text>'
        )
    middle = _TOP + _INNER_HEIGHT / 2
    parts.append(
        f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(label)}</text>"
    )
    return "".join(parts)


def _x_text(across: float, text: str) -> str:
    return f'<text x="{across:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(text)}</text>'


def _x_label(label: str) -> str:
    middle = _LEFT + _INNER_WIDTH / 2
    return f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(label)}</text>'


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = (
        f'<span><i class="c{number % _COLOURS}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'

"""A line chart as SVG, by hand: nothing to install, and small enough to live in the documentation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH: Final = 560
_HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 36, 48
_COLOURS: Final = ["#1f6feb", "#d9730d", "#2da44e", "#8250df"]
_TICKS: Final = 5
_QUOTES: Final = {'"': "&quot;"}


@dataclass(frozen=True)
class LineChart:
    """Lines over a logarithmic x axis, or one of even steps: how something changes with a number.

    Example:
        >>> chart = LineChart("cost", "consumers", "us", {"publish": [(1, 10.0), (2, 11.0)]})
        >>> chart.svg().startswith("<svg")
        True
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    goal: float | None = None
    """A dashed line that should not be crossed."""
    even: bool = False
    """Whether values of x are as far apart as their neighbours: those with a zero have no logarithm."""

    def svg(self) -> str:
        """The picture."""
        points = [point for line in self.series.values() for point in line]
        xs = sorted({x for x, _ in points})
        top = _round_up(max([y for _, y in points] + ([] if self.goal is None else [self.goal])))
        # Lines that begin high have their names below them.
        falls = any(line[0][1] > top / 2 for line in self.series.values())
        legend = _HEIGHT - _BOTTOM - 15 * len(self.series) if falls else _TOP + 12
        parts = [_text(_WIDTH / 2, 18, self.title, size=14, bold=True)]
        for n in range(_TICKS + 1):
            value = top * n / _TICKS
            y = self._y(value, top)
            parts.append(_line([(_LEFT, y), (_WIDTH - _RIGHT, y)], "#8884", 1))
            parts.append(_text(_LEFT - 6, y + 4, f"{value:g}", anchor="end"))
        parts += [_text(self._x(x, xs), _HEIGHT - _BOTTOM + 16, f"{x:g}") for x in xs]
        if self.goal is not None:
            y = self._y(self.goal, top)
            parts.append(_line([(_LEFT, y), (_WIDTH - _RIGHT, y)], "#cf222e", 1, dashed=True))
            parts.append(_text(_WIDTH - _RIGHT, y - 4, "goal", anchor="end", colour="#cf222e"))
        for (name, line), colour, n in zip(self.series.items(), _COLOURS, range(len(_COLOURS)), strict=False):
            places = [(self._x(x, xs), self._y(y, top)) for x, y in line]
            parts.append(_line(places, colour, 2))
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
            parts.append(_text(_LEFT + 8, legend + 15 * n, name, anchor="start", colour=colour))
        parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, self.x_label))
        parts.append(_text(8, _TOP - 10, self.y_label, anchor="start"))
        body = "\n".join(parts)
        label = f"{self.title}, {self.y_label}, over {self.x_label}"
        shape = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-family="sans-serif"'
        meaning = f'role="img" aria-label="{escape(label, _QUOTES)}"'
        ground = '<rect width="100%" height="100%" fill="white"/>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {shape} {meaning}>\n{ground}\n{body}\n</svg>\n'

    def _x(self, x: float, xs: Sequence[float]) -> float:
        low, high, here = (self._step(value, xs) for value in (xs[0], xs[-1], x))
        part = (here - low) / (high - low) if high > low else 0.5
        return _LEFT + 12 + part * (_WIDTH - _LEFT - _RIGHT - 24)

    def _step(self, x: float, xs: Sequence[float]) -> float:
        return xs.index(x) if self.even else math.log(x)

    @staticmethod
    def _y(y: float, top: float) -> float:
        return _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM)


def _round_up(value: float) -> float:
    """To 1, 2, 2.5 or 5 times a power of ten, so that ticks are numbers that people read."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value)


def _line(points: Sequence[tuple[float, float]], colour: str, width: int, *, dashed: bool = False) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "middle",
    size: int = 11,
    bold: bool = False,
    colour: str = "#333",
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour}"{weight}>{escape(text)}</text>'

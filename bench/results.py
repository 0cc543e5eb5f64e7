"""Results of a benchmark: tables on the terminal and a JSON file, each figure beside its goal."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTORY: Final = Path(__file__).parent.parent / "bench-results"

KIB: Final = 1 << 10
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Result:
    """One figure. `goal` is ``None`` for figures that are only informative."""

    name: str
    value: float
    unit: str
    goal: str | None
    meets: bool | None


@dataclass(frozen=True)
class Table:
    """Figures that say more side by side; none of them has a goal."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """The table as text: names to the left, numbers to the right."""
        cells = [list(self.columns), *(list(row) for row in self.rows)]
        widths = [max(len(row[n]) for row in cells) for n in range(len(self.columns))]
        aligned = [
            "  ".join(
                cell.ljust(width) if n == 0 else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        return [self.title, *(f"  {line}" for line in aligned)]


@dataclass
class Results:
    """The figures of one benchmark run.

    Example:
        >>> results = Results("example")
        >>> results.add("empty poll", 0.09, "us", at_most=0.3)
        >>> results.all_met
        True
    """

    name: str
    figures: list[Result] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Adds a figure, judged by at most one of the two bounds."""
        goal, meets = None, None
        if at_most is not None:
            goal, meets = f"<= {at_most:g}", value <= at_most
        elif at_least is not None:
            goal, meets = f">= {at_least:g}", value >= at_least
        self.figures.append(Result(name, value, unit, goal, meets))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Adds figures without goals, side by side."""
        self.tables.append(Table(title, columns, rows))

    @property
    def all_met(self) -> bool:
        """Does every figure that has a goal meet it?"""
        return all(figure.meets is not False for figure in self.figures)

    def finish(self) -> int:
        """Prints everything, saves the file; the exit code: 0 when every goal is met."""
        print(f"\n{self.name}\n{'-' * len(self.name)}")
        for table in self.tables:
            print("\n".join(table.lines()), end="\n\n")
        width = max((len(figure.name) for figure in self.figures), default=0)
        for figure in self.figures:
            mark = {None: "", True: "ok", False: "MISSED"}[figure.meets]
            goal = figure.goal or ""
            print(f"{figure.name:<{width}}  {figure.value:>12,.3f} {figure.unit:<9} {goal:<12} {mark}")
        path = save(f"{self.name}.json", json.dumps(self._document(), indent=1) + "\n")
        print(f"saved as {path}")
        return 0 if self.all_met else 1

    def _document(self) -> dict[str, object]:
        return {
            "machine": {
                "cores": os.cpu_count(),
                "kernel": platform.release(),
                "python": platform.python_version(),
            },
            "figures": [asdict(figure) for figure in self.figures],
            "tables": [asdict(table) for table in self.tables],
        }


def save(name: str, text: str) -> str:
    """Writes a file beside the other results; where it is, as people see it."""
    DIRECTORY.mkdir(exist_ok=True)
    (DIRECTORY / name).write_text(text)
    return f"{DIRECTORY.name}/{name}"


def label(size: int) -> str:
    """A size as people write it."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def progress(text: str) -> None:
    """Says on stderr what is being measured now."""
    print(f"  measuring {text} ...", file=sys.stderr, flush=True)

"""Results of a benchmark: a table on the terminal and a JSON file, each figure beside its goal."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

DIRECTORY = Path(__file__).parent.parent / "bench-results"


@dataclass(frozen=True)
class Result:
    """One figure. `goal` is ``None`` for figures that are only informative."""

    name: str
    value: float
    unit: str
    goal: str | None
    meets: bool | None


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

    @property
    def all_met(self) -> bool:
        """Does every figure that has a goal meet it?"""
        return all(figure.meets is not False for figure in self.figures)

    def finish(self) -> int:
        """Prints the table, saves the file; the exit code: 0 when every goal is met."""
        width = max(len(figure.name) for figure in self.figures)
        print(f"\n{self.name}\n{'-' * len(self.name)}")
        for figure in self.figures:
            mark = {None: "", True: "ok", False: "MISSED"}[figure.meets]
            goal = figure.goal or ""
            print(f"{figure.name:<{width}}  {figure.value:>12,.3f} {figure.unit:<9} {goal:<12} {mark}")
        DIRECTORY.mkdir(exist_ok=True)
        path = DIRECTORY / f"{self.name}.json"
        path.write_text(json.dumps([asdict(figure) for figure in self.figures], indent=1) + "\n")
        print(f"saved as {path.parent.name}/{path.name}")
        return 0 if self.all_met else 1


def progress(text: str) -> None:
    """Says on stderr what is being measured now."""
    print(f"  measuring {text} ...", file=sys.stderr, flush=True)

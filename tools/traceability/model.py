"""Rows, areas and exceptions of a repository, joined with the evidence of its tests."""

from __future__ import annotations

import csv
import re
import textwrap
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from traceability.evidence import Evidence, collect_evidence

if TYPE_CHECKING:
    from pathlib import Path

LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY")
DECISION = re.compile(r"[BMLDRK]\d+")


@dataclass(frozen=True)
class Requirement:
    """One row of `requirements.csv`."""

    id: str
    level: str
    requirement: str
    verify: str

    @property
    def binding(self) -> bool:
        """Whether the row must be shown once its area is declared done."""
        return self.level in {"MUST", "MUST NOT"}

    @property
    def short(self) -> str:
        """The requirement without remarks on its sources, cut to one line."""
        text = re.sub(r"\s*(\([^()]*layouts\.md[^()]*\)|\[also sections? [^\]]*\])", "", self.requirement)
        return textwrap.shorten(text, 140, placeholder=" ...")


@dataclass(frozen=True)
class Exemption:
    """Why a row is not, or with `partial` only in one half, met as it is worded."""

    reason: str
    decisions: tuple[str, ...]
    partial: bool

    def __str__(self) -> str:
        by = f" (decision {', '.join(self.decisions)})" if self.decisions else ""
        return f"{'In part: ' if self.partial else ''}{self.reason}{by}"


@dataclass
class Area:
    """A part of the product whose rows are declared done together."""

    name: str
    title: str
    done: bool
    rows: list[Requirement] = field(default_factory=list)


@dataclass
class Trace:
    """Rows, areas, exceptions and evidence of a repository, and every mistake found in them."""

    rows: dict[str, Requirement]
    areas: dict[str, Area]
    exemptions: dict[str, Exemption]
    evidence: Evidence
    errors: list[str]

    def excepted(self, row: Requirement) -> bool:
        """Whether an exception covers the whole row, so that no test is asked for."""
        exemption = self.exemptions.get(row.id)
        return exemption is not None and not exemption.partial

    def gaps(self, area: Area) -> list[Requirement]:
        """The binding rows of an area that neither a test nor an exception covers."""
        return [
            r for r in area.rows if r.binding and r.id not in self.evidence.tests and not self.excepted(r)
        ]

    def counts(self, area: Area) -> dict[str, int]:
        """MUST rows of an area: all, shown by tests, excepted, open."""
        binding = [row for row in area.rows if row.binding]
        excepted = sum(map(self.excepted, binding))
        gaps = len(self.gaps(area))
        return {
            "must": len(binding),
            "tested": len(binding) - excepted - gaps,
            "excepted": excepted,
            "open": gaps,
        }


def read_rows(path: Path, errors: list[str]) -> dict[str, Requirement]:
    """Read the requirements; ids are unique and levels known.

    Raises:
        ValueError: A column is missing, so that nothing can be checked.
    """
    rows: dict[str, Requirement] = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if absent := {"id", "level", "requirement", "verify"} - set(reader.fieldnames or ()):
            raise ValueError(f"{path.name} has no column {', '.join(sorted(absent))}")
        for record in reader:
            row = Requirement(record["id"], record["level"], record["requirement"], record["verify"])
            if row.id in rows:
                errors.append(f"{path.name}: {row.id} occurs twice")
            if row.level not in LEVELS:
                errors.append(f"{path.name}: {row.id} has the unknown level {row.level!r}")
            rows[row.id] = row
    return rows


def expand(pattern: str, rows: dict[str, Requirement]) -> list[str]:
    """Turn an id, a pattern or a range into ids; empty when it names anything that isn't there.

    Example:
        >>> expand("WIRE-9-1..2", dict.fromkeys(["WIRE-9-1", "WIRE-9-2", "WIRE-9-3"]))
        ['WIRE-9-1', 'WIRE-9-2']
    """
    if bounds := re.fullmatch(r"(.+-)(\d+)\.\.(\d+)", pattern):
        section, numbers = bounds[1], range(int(bounds[2]), int(bounds[3]) + 1)
        complete = all(f"{section}{number}" in rows for number in numbers)
        return [f"{section}{number}" for number in numbers] if complete else []
    return [id_ for id_ in rows if fnmatchcase(id_, pattern)]


def check_keys(table: dict[str, Any], known: dict[str, type], where: str, errors: list[str]) -> None:
    """A misspelt key, or `done = "false"`, must not silently change what is checked."""
    for key, value in table.items():
        if key not in known:
            errors.append(f"{where}: unknown key {key!r}")
        elif not isinstance(value, known[key]):
            errors.append(f"{where}: {key} must be of type {known[key].__name__}")


def read_areas(document: dict[str, Any], rows: dict[str, Requirement], errors: list[str]) -> dict[str, Area]:
    """Read the areas; together they hold each row exactly once."""
    areas: dict[str, Area] = {}
    holder: dict[str, str] = {}
    for name, table in document.get("areas", {}).items():
        check_keys(table, {"title": str, "done": bool, "ids": list}, f"area {name}", errors)
        areas[name] = Area(name, table.get("title", name), table.get("done", False) is True)
        for pattern in table.get("ids", []):
            ids = expand(pattern, rows)
            if not ids:
                errors.append(f"area {name}: no row matches {pattern!r}")
            for id_ in ids:
                if id_ in holder:
                    errors.append(f"area {name}: {id_} already belongs to area {holder[id_]}")
                else:
                    holder[id_] = name
    for id_, row in rows.items():
        if id_ in holder:
            areas[holder[id_]].rows.append(row)
        else:
            errors.append(f"{id_} belongs to no area")
    return areas


def read_exemptions(
    document: dict[str, Any], rows: dict[str, Requirement], errors: list[str]
) -> dict[str, Exemption]:
    """Read the exceptions; each has a reason, and no row has two."""
    exemptions: dict[str, Exemption] = {}
    for table in document.get("exceptions", []):
        patterns: list[str] = table.get("ids", [])
        where = f"exception for {', '.join(patterns) or 'nothing'}"
        check_keys(table, {"ids": list, "decisions": list, "partial": bool, "reason": str}, where, errors)
        exemption = Exemption(
            str(table.get("reason", "")).strip(),
            tuple(map(str, table.get("decisions", []))),
            table.get("partial", False) is True,
        )
        if not exemption.reason:
            errors.append(f"{where}: the reason is missing")
        errors.extend(
            f"{where}: {number!r} is not a decision"
            for number in exemption.decisions
            if not DECISION.fullmatch(number)
        )
        for pattern in patterns:
            ids = expand(pattern, rows)
            if not ids:
                errors.append(f"{where}: no row matches {pattern!r}")
            errors.extend(f"{where}: {id_} is excepted twice" for id_ in ids if id_ in exemptions)
            exemptions |= dict.fromkeys(ids, exemption)
    return exemptions


def read_trace(root: Path) -> Trace:
    """Read a repository and note everything that is wrong in it, gaps aside.

    Raises:
        OSError: The requirements or the areas can't be read.
        ValueError: They aren't CSV with the right columns, or TOML.
    """
    errors: list[str] = []
    rows = read_rows(root / "requirements.csv", errors)
    document = tomllib.loads((root / "traceability.toml").read_text(encoding="utf-8"))
    check_keys(document, {"areas": dict, "exceptions": list}, "traceability.toml", errors)
    areas = read_areas(document, rows, errors)
    exemptions = read_exemptions(document, rows, errors)
    evidence = collect_evidence(root, prefixes={id_.partition("-")[0] for id_ in rows})
    errors += evidence.errors
    for named in (evidence.tests, evidence.citations):
        for id_ in sorted(named.keys() - rows.keys()):
            errors += [f"{place}: {id_} is not in requirements.csv" for place in named[id_]]
    for id_, exemption in exemptions.items():
        if id_ in evidence.tests and not exemption.partial:
            errors.append(f"exception for {id_} is stale: {evidence.tests[id_][0]} shows the row")
    return Trace(rows, areas, exemptions, evidence, errors)

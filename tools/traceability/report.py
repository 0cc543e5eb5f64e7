"""What is shown and what is missing: for people, for programs, and as a page of the docs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceability.model import Area, Trace


def summary_text(trace: Trace, areas: list[Area]) -> str:
    """One line an area, then errors and the gaps of what is declared done, then the verdict."""
    lines = [f"{'area':<12}{'declared':<10}{'MUST':>6}{'tested':>8}{'excepted':>10}{'open':>6}"]
    shown = gaps = 0
    gap_lines: list[str] = []
    for area in areas:
        counts = trace.counts(area)
        numbers = f"{counts['must']:>6}{counts['tested']:>8}{counts['excepted']:>10}{counts['open']:>6}"
        lines.append(f"{area.name:<12}{'done' if area.done else 'later':<10}{numbers}")
        if area.done:
            shown += counts["tested"]
            gaps += counts["open"]
            gap_lines += [f"gap: {row.id} ({area.name}): {row.short}" for row in trace.gaps(area)]
    errors = f", {len(trace.errors)} errors" if trace.errors else ""
    verdict = f"{shown} of {shown + gaps} MUST rows declared done are shown; {gaps} gaps{errors}"
    return "\n".join([*lines, "", *(f"error: {error}" for error in trace.errors), *gap_lines, verdict])


def missing_text(trace: Trace, areas: list[Area]) -> str:
    """Each open row with its full wording and how to verify it, for whoever writes the tests."""
    return "\n".join(
        f"{row.id} {row.level} ({area.name})\n  {row.requirement}\n  verify: {row.verify}"
        for area in areas
        for row in trace.gaps(area)
    )


def missing_data(trace: Trace, areas: list[Area]) -> list[dict[str, str]]:
    """The same rows as `missing_text`, for programs."""
    return [
        {
            "id": row.id,
            "area": area.name,
            "level": row.level,
            "requirement": row.requirement,
            "verify": row.verify,
        }
        for area in areas
        for row in trace.gaps(area)
    ]


def summary_data(trace: Trace, areas: list[Area]) -> dict[str, Any]:
    """Everything that is known, for programs."""
    return {
        "areas": [{"name": area.name, "done": area.done, **trace.counts(area)} for area in areas],
        "gaps": missing_data(trace, [area for area in areas if area.done]),
        "errors": trace.errors,
        "rows": [
            {
                "id": row.id,
                "area": area.name,
                "level": row.level,
                "tests": trace.evidence.tests.get(row.id, []),
                "citations": trace.evidence.citations.get(row.id, []),
                "exception": str(trace.exemptions[row.id]) if row.id in trace.exemptions else None,
            }
            for area in areas
            for row in area.rows
        ],
    }


def conformance_page(trace: Trace) -> str:
    """The conformance page of the docs: one table an area."""
    lines = [
        "# Conformance",
        "",
        "Written by `tools/trace.py` from `requirements.csv`, `traceability.toml` and the tests.",
        "",
        "| area | declared | MUST rows | tested | excepted | open |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for area in trace.areas.values():
        numbers = " | ".join(str(number) for number in trace.counts(area).values())
        lines.append(f"| {area.title} | {'done' if area.done else 'later'} | {numbers} |")
    for area in trace.areas.values():
        lines += ["", f"## {area.title}", "", "| id | level | requirement | shown by |", "|---|---|---|---|"]
        gaps = trace.gaps(area)
        for row in area.rows:
            proof = [f"`{test}`" for test in trace.evidence.tests.get(row.id, [])]
            proof += ["open"] if row in gaps else []
            if row.id in trace.exemptions:
                proof.append(escape(str(trace.exemptions[row.id]), quote=False))
            cells = (row.id, row.level, escape(row.short, quote=False), "<br>".join(proof))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"

# ruff: noqa: A005 (a script: nothing imports it, so it cannot stand in the way of the standard module)
"""Trace requirements to the tests that show them, and fail where a declared one is not shown.

`requirements.csv` has the rows, `traceability.toml` the areas and the reasoned exceptions; tests name the
rows that they show: `@pytest.mark.req("WIRE-16-17")` in Python, `// req: WIRE-8.3-5` above a test in Rust.
An area that is declared done must have a test or an exception for each MUST and MUST NOT.

    python tools/trace.py                              check everything, summary and gaps
    python tools/trace.py --missing --area pool        what is left to show there, with how to verify it
    python tools/trace.py --write docs/reference/conformance.md
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from traceability.model import read_trace
from traceability.report import conformance_page, missing_data, missing_text, summary_data, summary_text


def main(argv: list[str] | None = None) -> int:
    """Run the tool.

    Returns:
        0 when everything declared done is shown and nothing is wrong, else 1. It exits with 2 where it
        can't run at all.
    """
    parser = argparse.ArgumentParser(description="Trace requirements to the tests that show them.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the repository")
    parser.add_argument("--area", help="only this area, declared done or not")
    parser.add_argument("--missing", action="store_true", help="only the open rows, with how to verify them")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the docs' conformance page")
    arguments = parser.parse_args(argv)

    try:
        trace = read_trace(arguments.root)
    except (OSError, ValueError) as error:
        parser.error(f"cannot read the requirements: {error}")
    areas = list(trace.areas.values())
    if arguments.area is not None:
        if arguments.area not in trace.areas:
            parser.error(f"no area {arguments.area!r}; there are {', '.join(trace.areas)}")
        areas = [trace.areas[arguments.area]]
    if arguments.write is not None:
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        arguments.write.write_text(conformance_page(trace), encoding="utf-8")

    if arguments.missing:
        for mistake in trace.errors:
            print(f"error: {mistake}", file=sys.stderr)
        wanted = areas if arguments.area is not None else [area for area in areas if area.done]
        report: Any = (
            missing_data(trace, wanted) if arguments.format == "json" else missing_text(trace, wanted)
        )
    else:
        report = summary_data(trace, areas) if arguments.format == "json" else summary_text(trace, areas)
    print(json.dumps(report, indent=2) if arguments.format == "json" else report)
    return 1 if trace.errors or any(trace.gaps(area) for area in areas if area.done) else 0


if __name__ == "__main__":
    sys.exit(main())

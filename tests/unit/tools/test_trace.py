"""`tools/trace.py` on small made-up repositories, and on the real requirements of this one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SHOWS_BASE = """\
import pytest

@pytest.mark.req("AB-1-1", "AB-1-2")
def test_base(): ...
"""


# --- verdict ------------------------------------------------------------------------------------


def test_declared_and_shown_passes(repository):
    repository.write("tests/test_base.py", SHOWS_BASE)
    status, printed = repository.trace()
    assert status == 0
    assert printed.splitlines()[-1] == "2 of 2 MUST rows declared done are shown; 0 gaps"
    assert "gap:" not in printed
    assert "error:" not in printed


def test_must_without_test_in_a_declared_area_is_a_gap(repository):
    repository.write("tests/test_base.py", SHOWS_BASE.replace(', "AB-1-2"', ""))
    status, printed = repository.trace()
    assert status == 1
    assert "gap: AB-1-2 (base): Second rule a|b of <path>." in printed
    assert "AB-1-3" not in printed, "a SHOULD is no gap"
    assert "AB-2-1" not in printed, "its area is not declared done"
    assert printed.splitlines()[-1] == "1 of 2 MUST rows declared done are shown; 1 gaps"


def test_summary_counts_each_area(repository):
    repository.write("tests/test_base.py", SHOWS_BASE)
    _, printed = repository.trace()
    table = [line.split() for line in printed.splitlines()[:3]]
    assert table == [
        ["area", "declared", "MUST", "tested", "excepted", "open"],
        ["base", "done", "2", "2", "0", "0"],
        ["rest", "later", "2", "0", "0", "2"],
    ]


# --- exceptions ---------------------------------------------------------------------------------


def exception(ids, reason="Because.", more=""):
    return f"[[exceptions]]\nids = {json.dumps(ids)}\nreason = {json.dumps(reason)}\n{more}\n"


def test_an_exception_closes_a_gap_and_leaves_the_count(repository):
    repository.write("tests/test_base.py", SHOWS_BASE.replace(', "AB-1-2"', ""))
    repository.append("traceability.toml", exception(["AB-1-2"], more='decisions = ["L1", "D6"]'))
    status, printed = repository.trace()
    assert status == 0
    assert printed.splitlines()[1].split() == ["base", "done", "2", "1", "1", "0"]
    assert printed.splitlines()[-1] == "1 of 1 MUST rows declared done are shown; 0 gaps"
    _, data = repository.data()
    assert data["rows"][1]["exception"] == "Because. (decision L1, D6)"


@pytest.mark.parametrize("pattern", ["AB-1-1..2", "AB-1-*"])
def test_an_exception_covers_ranges_and_patterns(repository, pattern):
    repository.append("traceability.toml", exception([pattern]))
    status, data = repository.data()
    assert (status, data["gaps"], data["areas"][0]["excepted"]) == (0, [], 2)


def test_an_exception_for_a_tested_row_is_stale(repository):
    repository.write("tests/test_base.py", SHOWS_BASE)
    repository.append("traceability.toml", exception(["AB-1-1"]))
    assert repository.errors() == [
        "exception for AB-1-1 is stale: tests/test_base.py::test_base shows the row"
    ]


def test_a_partial_exception_still_needs_a_test(repository):
    repository.append("traceability.toml", exception(["AB-1-1..2"], more="partial = true"))
    status, data = repository.data()
    assert status == 1
    assert [gap["id"] for gap in data["gaps"]] == ["AB-1-1", "AB-1-2"]
    repository.write("tests/test_base.py", SHOWS_BASE)
    status, data = repository.data()
    assert (status, data["errors"], data["areas"][0]["tested"]) == (0, [], 2)
    assert data["rows"][0]["exception"] == "In part: Because."


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (exception(["AB-1-1"], reason="  "), "exception for AB-1-1: the reason is missing"),
        (exception(["AB-9-9"]), "exception for AB-9-9: no row matches 'AB-9-9'"),
        (exception(["AB-1-2..4"]), "exception for AB-1-2..4: no row matches 'AB-1-2..4'"),
        (exception(["AB-1-1", "AB-1-*"]), "exception for AB-1-1, AB-1-*: AB-1-1 is excepted twice"),
        (
            exception(["AB-1-1"], more='decisions = ["Z9"]'),
            "exception for AB-1-1: 'Z9' is not a decision",
        ),
        (exception(["AB-1-1"], more="partially = true"), "exception for AB-1-1: unknown key 'partially'"),
        (exception(["AB-1-1"], more='partial = "no"'), "exception for AB-1-1: partial must be of type bool"),
    ],
)
def test_bad_exceptions(repository, document, error):
    repository.append("traceability.toml", document)
    assert repository.errors() == [error]


# --- areas and ids ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ('"AB-2-1", ', "", "AB-2-1 belongs to no area"),
        ('"AB-2-1"', '"AB-2-1", "AB-1-3"', "area rest: AB-1-3 already belongs to area base"),
        ('"AB-2-1"', '"AB-2-1", "AB-7-*"', "area rest: no row matches 'AB-7-*'"),
        ('"AB-2-1"', '"AB-2-1", "AB-2-3..2"', "area rest: no row matches 'AB-2-3..2'"),
        ("done = false", "finished = false", "area rest: unknown key 'finished'"),
        ("done = false", 'done = "false"', "area rest: done must be of type bool"),
    ],
)
def test_bad_areas(repository, before, after, error):
    repository.write("tests/test_base.py", SHOWS_BASE)
    repository.write("traceability.toml", repository.areas.replace(before, after))
    assert repository.errors() == [error]


def test_a_pattern_of_one_section_leaves_its_subsections_alone(repository):
    repository.append("requirements.csv", "AB-1.1-1,ab,1.1,MUST,all,Sixth rule.,Look.\n")
    assert repository.errors() == ["AB-1.1-1 belongs to no area"]


@pytest.mark.parametrize(
    ("file", "source", "place"),
    [
        ("tests/test_x.py", '@pytest.mark.req("AB-1-9")\ndef test_f(): ...', "tests/test_x.py::test_f"),
        ("crates/c/r.rs", "// req: AB-1-9\n#[test]\nfn shows() {}", "crates/c/r.rs::shows"),
        ("python/p/m.py", "# [AB-1-9]", "python/p/m.py:1"),
    ],
)
def test_unknown_ids_are_errors(repository, file, source, place):
    repository.write(file, source)
    assert repository.errors() == [f"{place}: AB-1-9 is not in requirements.csv"]
    assert (
        repository.trace()[1].splitlines()[-1] == "0 of 2 MUST rows declared done are shown; 2 gaps, 1 errors"
    )


def test_bad_rows(repository):
    repository.write("tests/test_base.py", SHOWS_BASE)
    repository.append("requirements.csv", "AB-1-3,ab,1,OUGHT,all,Third rule again.,Look.\n")
    assert repository.errors() == [
        "requirements.csv: AB-1-3 occurs twice",
        "requirements.csv: AB-1-3 has the unknown level 'OUGHT'",
    ]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("requirements.csv", "id,level\nAB-1-1,MUST\n", "requirements.csv has no column requirement, verify"),
        ("traceability.toml", "[areas", "cannot read the requirements"),
    ],
)
def test_unreadable_data_stops_the_tool(repository, file, text, message):
    repository.write(file, text)
    with pytest.raises(SystemExit, match="2"):
        repository.trace()
    assert message in repository.capsys.readouterr().err


# --- options ------------------------------------------------------------------------------------


def test_one_area(repository):
    status, printed = repository.trace("--area", "rest")
    assert status == 0, "it is not declared done, so its open rows do not fail"
    assert "base" not in printed
    status, data = repository.data("--area", "base")
    assert status == 1
    assert [area["name"] for area in data["areas"]] == ["base"]


def test_unknown_area(repository):
    with pytest.raises(SystemExit, match="2"):
        repository.trace("--area", "nowhere")
    assert "there are base, rest" in repository.capsys.readouterr().err


def test_missing_says_how_to_verify(repository):
    status, printed = repository.trace("--missing")
    assert status == 1
    assert printed.startswith(
        "AB-1-1 MUST (base)\n  First rule (see also; layouts.md C1) [also section 2].\n"
    )
    assert "  verify: Look at second." in printed
    assert "AB-2-1" not in printed


def test_missing_of_an_area_that_is_not_declared(repository):
    status, missing = repository.data("--missing", "--area", "rest")
    assert status == 0
    assert [row["id"] for row in missing] == ["AB-2-1", "CD-1a.1-1"]
    assert missing[0] == {
        "id": "AB-2-1",
        "area": "rest",
        "level": "MUST",
        "requirement": "Fourth rule.",
        "verify": "Look at fourth.",
    }


def test_missing_tells_errors_apart_from_rows(repository):
    repository.write("tests/test_base.py", SHOWS_BASE.replace("AB-1-2", "AB-1-9"))
    status = repository.main(["--root", str(repository.root), "--missing", "--format", "json"])
    out, err = repository.capsys.readouterr()
    assert status == 1
    assert [row["id"] for row in json.loads(out)] == ["AB-1-2"]
    assert err == "error: tests/test_base.py::test_base: AB-1-9 is not in requirements.csv\n"


def test_page(repository):
    repository.write("tests/test_base.py", SHOWS_BASE.replace(', "AB-1-2"', ""))
    repository.append(
        "traceability.toml", exception(["AB-1-2"], reason="Never < now.", more='decisions = ["M1"]')
    )
    page = repository.root / "docs" / "reference" / "conformance.md"
    status, printed = repository.trace("--write", str(page))
    assert status == 0
    assert printed.endswith("; 0 gaps\n")
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Conformance"
    assert "| The base | done | 2 | 1 | 1 | 0 |" in lines
    assert lines[lines.index("## The base") + 4 :][:3] == [
        "| AB-1-1 | MUST | First rule. | `tests/test_base.py::test_base` |",
        "| AB-1-2 | MUST NOT | Second rule a\\|b of &lt;path&gt;. | Never &lt; now. (decision M1) |",
        "| AB-1-3 | SHOULD | Third rule. |  |",
    ]
    assert "| AB-2-1 | MUST | Fourth rule. | open |" in lines[lines.index("## rest") :]


# --- this repository ----------------------------------------------------------------------------


def test_real_data_is_sound():
    """Every id is known and every row stands in one area; gaps are the business of `make trace`."""
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "trace.py", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    data = json.loads(run.stdout)
    assert data["errors"] == []
    assert run.returncode == (1 if data["gaps"] else 0)
    areas = {area["name"]: area for area in data["areas"]}
    assert list(areas) == ["foundation", "pool", "driver", "bridge", "discovery", "control"]
    assert areas["foundation"]["done"]
    assert len(data["rows"]) == 793
    assert sum(area["must"] for area in areas.values()) == 641
    levels = [row["level"] for row in data["rows"]]
    assert levels.count("MUST") + levels.count("MUST NOT") == 641

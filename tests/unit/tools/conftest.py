"""A made-up repository for the tests of `tools/trace.py`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[3]

ROWS = """\
id,spec,section,level,role,requirement,verify
AB-1-1,ab,1,MUST,all,First rule (see also; layouts.md C1) [also section 2].,Look at first.
AB-1-2,ab,1,MUST NOT,all,Second rule a|b of <path>.,Look at second.
AB-1-3,ab,1,SHOULD,all,Third rule.,Look at third.
AB-2-1,ab,2,MUST,all,Fourth rule.,Look at fourth.
CD-1a.1-1,cd,1a.1,MUST,all,Fifth rule.,Look at fifth.
"""

AREAS = """\
[areas.base]
title = "The base"
done = true
ids = ["AB-1-*"]
[areas.rest]
done = false
ids = ["AB-2-1", "CD-*"]
"""


@pytest.fixture(scope="session")
def trace_main():
    """The command's `main`; `tools` leaves the path again, for its `trace.py` hides a standard module."""
    spec = importlib.util.spec_from_file_location("trace_command", ROOT / "tools" / "trace.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        spec.loader.exec_module(module)
    return module.main


class Repository:
    """A made-up repository that the tool is run on."""

    areas = AREAS

    def __init__(self, root, main, capsys):
        self.root, self.main, self.capsys = root, main, capsys
        self.write("requirements.csv", ROWS)
        self.write("traceability.toml", AREAS)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")

    def append(self, name, text):
        self.write(name, (self.root / name).read_text(encoding="utf-8") + text)

    def trace(self, *arguments):
        """Run the tool; returns its status and what it printed."""
        status = self.main(["--root", str(self.root), *arguments])
        return status, self.capsys.readouterr().out

    def data(self, *arguments):
        status, printed = self.trace("--format", "json", *arguments)
        return status, json.loads(printed)

    def tests_of(self, id_):
        _, data = self.data()
        return next(row["tests"] for row in data["rows"] if row["id"] == id_)

    def errors(self):
        status, data = self.data()
        assert (status == 0) == (not data["errors"] and not data["gaps"])
        return data["errors"]


@pytest.fixture
def repository(tmp_path, trace_main, capsys):
    return Repository(tmp_path, trace_main, capsys)

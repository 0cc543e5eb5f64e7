"""What the documentation shows runs, and prints what it says; `doc_pages` has the rules."""

from __future__ import annotations

import contextlib
import doctest
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from doc_pages import ROOT, Page, docs_pages

PAGES = docs_pages()
SEPARATOR = "--- end of block ---\n"
LONGEST_S = 180
"""Pages about Spark start sessions."""


def named(pages: list[Page]) -> list[object]:
    return [pytest.param(page, id=page.name) for page in pages]


@pytest.fixture
def shared_memory():
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-docs-") as directory:
        yield directory


def run(command: list[str], place: Path, **environment: str) -> tuple[int, str, str]:
    """Runs a command, with this interpreter's programs in front, and ends everything that it started."""
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONWARNINGS": "error"}
    process = subprocess.Popen(
        command,
        cwd=place,
        env={**os.environ, **paths, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            printed, complaints = process.communicate(timeout=LONGEST_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the usual case: nothing is left
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, complaints


@pytest.mark.timeout(LONGEST_S + 20)
@pytest.mark.parametrize("page", named([page for page in PAGES if page.examples]))
def test_python_blocks_run_in_order_and_print_what_is_shown(page, tmp_path):
    steps = page.examples
    script = "".join(f"{step.code}\nprint({SEPARATOR.strip()!r})\n" for step in steps)
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    status, printed, complaints = run([sys.executable, "page.py"], tmp_path)
    assert status == 0, complaints
    parts = printed.split(SEPARATOR)[: len(steps)]
    checker = doctest.OutputChecker()
    for step, got in zip(steps, parts, strict=True):
        if step.prints is not None:
            assert checker.check_output(step.prints, got, doctest.ELLIPSIS), f"printed:\n{got}"


@pytest.mark.timeout(LONGEST_S + 20)
@pytest.mark.parametrize("page", named([page for page in PAGES if page.shell_lines]))
def test_shown_programs_do_what_the_page_says(page, tmp_path, shared_memory):
    for name, body in page.files.items():
        (tmp_path / name).write_text(body, encoding="utf-8")
    for line in page.shell_lines:
        status, printed, complaints = run(
            ["bash", "-e", "-o", "pipefail", "-c", line], tmp_path, DIR=shared_memory, ROOT=str(ROOT)
        )
        assert status == 0, f"{line}\n{printed}{complaints}"


def test_every_shown_program_is_used():
    for page in PAGES:
        for name in page.files:
            assert any(name in line for line in page.shell_lines), f"{page.name}: nothing runs {name}"

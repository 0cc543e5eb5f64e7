"""Runs what a page of the documentation shows; `doc_pages` has the rules."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from doc_pages import ROOT, Page
from quick_spark import quick_spark

__all__ = ["LONGEST_S", "named", "run", "run_shell_lines"]

LONGEST_S = 180
"""Pages about Spark start sessions."""


def named(pages: list[Page]) -> list[object]:
    """Pages as parameters of a test, which show their names."""
    return [pytest.param(page, id=page.name) for page in pages]


def run(command: list[str], place: Path, **environment: str) -> tuple[int, str, str]:
    """Runs a command, with this interpreter's programs in front, and ends everything that it started."""
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONWARNINGS": "error"}
    with tempfile.TemporaryDirectory() as spark:
        process = subprocess.Popen(
            command,
            cwd=place,
            env={**os.environ, **paths, **quick_spark(Path(spark)), **environment},
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


def run_shell_lines(page: Page, place: Path) -> None:
    """Runs what a page wants to be run, with the files that it shows.

    Raises:
        AssertionError: A line failed; shows what it printed.
    """
    for name, body in page.files.items():
        (place / name).write_text(body, encoding="utf-8")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-docs-") as shared_memory:
        for line in page.shell_lines:
            command = ["bash", "-e", "-o", "pipefail", "-c", line]
            status, printed, complaints = run(command, place, DIR=shared_memory, ROOT=str(ROOT))
            assert status == 0, f"{line}\n{printed}{complaints}"

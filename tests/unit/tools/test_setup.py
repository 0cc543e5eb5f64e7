"""The set-up says clearly what is missing or too old, before it builds anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# What the scripts themselves need; everything else on the PATH is a stand-in.
TOOLS = ["bash", "cut", "dirname", "env", "head", "id", "printf", "sed", "sort"]


@pytest.fixture
def machine(tmp_path):
    """A machine with just the tools given: ``machine(rustc="echo ...")`` runs the set-up on it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))

    def run(python: str, **stand_ins: str) -> subprocess.CompletedProcess[str]:
        for name, body in stand_ins.items():
            path = programs / name
            path.unlink(missing_ok=True)
            path.write_text(f"#!/usr/bin/env bash\n{body}\n")
            path.chmod(0o755)
        return subprocess.run(
            [programs / "bash", ROOT / "tools" / "setup-system", python],
            env={"PATH": str(programs), "HOME": os.environ.get("HOME", "/")},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    return run


@pytest.mark.parametrize(
    ("stand_ins", "what", "hint"),
    [
        ({}, "no python-here on the PATH; Python 3.11 or newer is needed", "make PYTHON="),
        ({"python-here": "echo 3.10.14"}, "is Python 3.10.14; 3.11 or newer is needed", "make PYTHON="),
        ({"python-here": "echo 3.11.2"}, "no cargo on the PATH; Rust 1.85 or newer is needed", "rustup"),
        (
            {"python-here": "echo 3.14.0", "cargo": "true", "rustc": "echo rustc 1.84.1"},
            "rustc is 1.84.1; 1.85 or newer is needed",
            "rustup update",
        ),
        (
            {"python-here": "echo 3.11.2", "cargo": "true", "rustc": "echo rustc 1.85.0", "java": "true"},
            "missing: gcc",
            "package manager",
        ),
        (
            {
                "python-here": "echo 3.11.2",
                "cargo": "true",
                "rustc": "echo rustc 1.100.0",
                "id": "echo 1000",
                "sudo": "exit 1",
                "apt-get": "exit 9",
                "apt-cache": "exit 1",
            },
            "neither root nor sudo",
            "apt-get install gcc",
        ),
    ],
    ids=["no python", "old python", "no rust", "old rust", "no apt", "no root"],
)
def test_what_is_missing_is_said_in_two_lines(machine, stand_ins, what, hint):
    result = machine("python-here", **stand_ins)
    assert result.returncode == 1
    first, second = result.stderr.splitlines()[-2:]
    assert first.startswith("error: ")
    assert what in first
    assert second.startswith("  try: ")
    assert hint in second

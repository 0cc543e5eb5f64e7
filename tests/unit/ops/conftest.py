"""Running ``tpool`` inside the test process, in an empty directory with a clean environment."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tensor_pool.ops.cli.root import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TENSOR_POOL__") or name == "XDG_CONFIG_HOME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tpool(empty_directory: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def call(*arguments: str) -> Outcome:
        code = run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call

"""Real media drivers in directories of their own, and ``tpool`` run inside the test process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tensor_pool.ops.cli.root import run
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def media() -> Iterator[EmbeddedMediaDriver]:
    with EmbeddedMediaDriver.temporary() as driver:
        yield driver


@pytest.fixture
def client(media: EmbeddedMediaDriver) -> Iterator[AeronClient]:
    with AeronClient.connect(media.aeron_dir) as connected:
        yield connected


@pytest.fixture
def tpool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    for name in list(os.environ):
        if name.startswith("TENSOR_POOL__") or name == "XDG_CONFIG_HOME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Outcome:
        code = run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call

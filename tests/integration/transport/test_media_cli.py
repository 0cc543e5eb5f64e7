"""``tpool media run`` and ``tpool media status``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tensor_pool.ops.cli.media import media
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-c", "from tensor_pool.ops.cli.media import media; media()"]


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*COMMAND, "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_run_serves_until_it_is_told_to_end(aeron_dir: str, ending: signal.Signals) -> None:
    with running("--aeron-dir", aeron_dir, "--idle-max-sleep-ms", "2") as (process, line):
        assert line == f"aeron-dir={aeron_dir} pid={process.pid}\n"
        with AeronClient.connect(aeron_dir) as client:
            client.add_publication("aeron:ipc", 1)
        process.send_signal(ending)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")
    assert not Path(aeron_dir).exists()


def test_run_finds_its_directory_in_the_environment(aeron_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_POOL__AERON_DIR", aeron_dir)
    with running() as (_, line):
        assert line.startswith(f"aeron-dir={aeron_dir} ")
        assert is_alive()


def test_run_twice_fails_with_one_line_what_and_one_line_what_to_try(
    media_driver: EmbeddedMediaDriver,
) -> None:
    with running("--aeron-dir", media_driver.aeron_dir) as (process, line):
        _, err = process.communicate(timeout=20)
        assert (process.returncode, line) == (1, "")
    what, to_try = err.splitlines()
    assert what == f"error: a media driver (pid {os.getpid()}) already serves {media_driver.aeron_dir}"
    assert to_try.startswith("  try: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "--threading", "many"], 2),
        (["run", "--no-such-option"], 2),
        (["run", "--aeron-dir", "relative"], 1),
        (["run", "--timer-interval-ms", "0"], 1),
    ],
)
def test_wrong_arguments_have_their_exit_codes(arguments: list[str], code: int) -> None:
    result = CliRunner().invoke(media, arguments)
    assert result.exit_code == code
    assert result.output.strip()


def test_status_of_a_live_one(media_driver: EmbeddedMediaDriver) -> None:
    result = CliRunner().invoke(media, ["status", "--aeron-dir", media_driver.aeron_dir, "--format", "json"])
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert (facts["alive"], facts["pid"], facts["aeron_dir"]) == (True, os.getpid(), media_driver.aeron_dir)
    assert 0 <= facts["heartbeat_age_s"] < 10
    table = CliRunner().invoke(media, ["status", "--aeron-dir", media_driver.aeron_dir])
    assert table.exit_code == 0
    assert "alive            True" in table.stdout


def test_status_of_none(aeron_dir: str) -> None:
    result = CliRunner().invoke(media, ["status", "--aeron-dir", aeron_dir, "--format", "json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["alive"] is False
    table = CliRunner().invoke(media, ["status", "--aeron-dir", aeron_dir])
    assert table.exit_code == 3
    assert f"try: tpool media run --aeron-dir {aeron_dir}" in table.stderr

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

from tensor_pool.ops.cli import root
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [Path(sys.executable).with_name("tpool"), "media"]


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
        (["--threading", "many"], 2),
        (["--no-such-option"], 2),
        (["--set", "aeron.dir=relative"], 2),
        (["--set", "aeron.timer_interval_ms=0"], 2),
        (["--set", "aeron.timer_interval_ms=50"], 2),
        (["--set", "aeron.timer_interval_ms=90"], 2),
        (["--set", "aeron.timer_interval_ms=2", "--idle-max-sleep-ms", "4"], 2),
        (["--idle-max-sleep-ms", "1000"], 2),
        (["--config", "/nonexistent.toml"], 2),
    ],
)
def test_wrong_arguments_and_configuration_have_exit_code_2(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert root.run(["media", "run", *arguments]) == code
    assert capsys.readouterr().err.startswith("error: ")


def test_run_takes_its_settings_from_the_configuration(aeron_dir: str, tmp_path: Path) -> None:
    file = tmp_path / "tensor-pool.toml"
    file.write_text(f'[aeron]\ndir = "{aeron_dir}"\nterm_length = "64k"\n')
    with running("--config", str(file)) as (_, line):
        assert line.startswith(f"aeron-dir={aeron_dir} ")
        # Aeron's own client, with a channel that says nothing: the driver's length applies.
        with AeronClient.connect(aeron_dir) as client:
            native = client.native.add_publication("aeron:ipc", 1, 5_000_000_000)
            assert native.max_message_bytes == (64 << 10) // 8


def test_run_with_a_quick_timer_needs_no_further_option(aeron_dir: str) -> None:
    with running("--aeron-dir", aeron_dir, "--set", "aeron.timer_interval_ms=2", "--dense-terms") as (
        _,
        line,
    ):
        assert line.startswith(f"aeron-dir={aeron_dir} ")


def test_status_of_a_live_one(media_driver: EmbeddedMediaDriver, capsys: pytest.CaptureFixture[str]) -> None:
    status = ["media", "status", "--aeron-dir", media_driver.aeron_dir]
    assert root.run([*status, "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["alive"], facts["pid"], facts["aeron_dir"]) == (True, os.getpid(), media_driver.aeron_dir)
    assert 0 <= facts["heartbeat_age_s"] < 10
    assert root.run(status) == 0
    assert "alive            " in capsys.readouterr().out


def test_status_of_none(aeron_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = ["media", "status", "--aeron-dir", aeron_dir]
    assert root.run([*status, "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["alive"] is False
    assert root.run(status) == 3
    assert f"try: start one with `tpool up --aeron-dir {aeron_dir}`" in capsys.readouterr().err

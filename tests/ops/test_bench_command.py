"""``tpool bench``: two processes on drivers of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from bridges import end_of_bridge
from tensor_pool.ops.cli.exit_codes import INTERRUPTED, OK, PROBLEMS, USAGE
from tensor_pool.testing import Process, wait_until


@pytest.mark.quiet
@pytest.mark.parametrize("mode", ["latency", "throughput"])
def test_bench(tpool: Callable, mode: str) -> None:
    arguments = ("--bytes", "65536", "--seconds", "0.5", "--slots", "32", "--rate", "200", "--format", "json")
    outcome = tpool("bench", mode, *arguments)
    assert outcome.code == OK, outcome.err
    row = json.loads(outcome.out)

    assert row["mode"] == mode
    assert row["published"] == pytest.approx(100, abs=40)
    assert row["received"] + row["missed"] >= row["published"] - 1
    assert 0 < row["min_us"] <= row["p50_us"] <= row["p99_us"] <= row["p999_us"]
    assert row["gb_per_s"] == pytest.approx(row["frames_per_s"] * 65536 / 1e9, rel=0.1)
    assert row["memcpy_gb_per_s"] > 0.1
    assert 0 < row["producer_cpu_s"] < 5
    assert outcome.err.splitlines()[0].startswith(f"{mode}: 65536 bytes, 32 slots, 200 Hz")


def test_bench_for_people_and_its_mistakes(tpool: Callable) -> None:
    outcome = tpool("bench", "throughput", "--bytes", "65536", "--seconds", "0.3", "--loan", "--slots", "8")
    assert outcome.code == OK, outcome.err
    assert [line.split()[0] for line in outcome.out.splitlines()] == [
        "latency",
        "throughput",
        "frames",
        "CPU",
    ]
    assert "no copy" in outcome.out
    assert tpool("bench", "latency", "--slots", "3").code == USAGE


def test_a_bench_that_asks_for_too_much_is_told_why(tpool: Callable) -> None:
    limit = "--set=driver.max_stream_bytes=1048576"
    outcome = tpool("bench", "latency", "--seconds", "0.3", limit)
    assert outcome.code == PROBLEMS
    assert "error: the producer failed: " in outcome.err
    assert "max_stream_bytes" in outcome.err


def test_a_bridge_is_measured_on_loopback(tpool: Callable) -> None:
    arguments = ("--bytes", "65536", "--seconds", "0.3", "--rate", "40", "--mtu", "1408")
    outcome = tpool("bench", "bridge", *arguments, "--format", "jsonl")
    assert outcome.code == OK, outcome.err
    (line,) = outcome.out.splitlines()
    row = json.loads(line)

    assert (row["frame_bytes"], row["mtu"], row["rate_hz"]) == (65536, 1408, 40)
    assert row["published"] - row["received"] == sum(row["lost"].values())
    assert row["loss"] == pytest.approx(1 - row["received"] / row["published"], abs=1e-6)
    assert row["mib_per_s"] == pytest.approx(row["frames_per_s"] / 16, rel=0.02)
    assert 0 < row["p50_us"] <= row["p99_us"] <= row["max_us"]
    assert row["sender_cpu_s"] > 0 < row["receiver_cpu_s"]
    assert outcome.err.startswith("65536 bytes over a bridge")


def test_a_bridge_is_measured_for_people_whatever_is_configured(tpool: Callable, tmp_path: Path) -> None:
    file = tmp_path / "tensor-pool.toml"
    file.write_text(textwrap.dedent(end_of_bridge("sender", "10.0.0.2:1", "10.0.0.2:2", "10.0.0.2:3")))
    outcome = tpool("bench", "bridge", "--bytes", "4096", "--seconds", "0.1", "--config", str(file))
    assert outcome.code == OK, outcome.err
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["throughput", "latency", "loss", "CPU"]
    assert " of 4096 bytes in packets of 8192" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--slots", "12"), "--slots 12 is not a power of two"),
        (("--mtu", "1400"), "--mtu 1400 is not a multiple of 32"),
        (("--seconds", "nan"), "not a finite number"),
    ],
)
def test_mistakes_about_a_bridge(tpool: Callable, arguments: tuple[str, ...], told: str) -> None:
    outcome = tpool("bench", "bridge", *arguments)
    assert outcome.code == USAGE
    assert told in outcome.err


def test_a_frame_that_no_bridge_could_carry_is_told(tpool: Callable) -> None:
    outcome = tpool("bench", "bridge", "--bytes", "100000000", "--mtu", "1408", "--slots", "4")
    assert outcome.code == USAGE
    assert "100000000" in outcome.err
    assert "--mtu" in outcome.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_bench_and_both_its_processes(tmp_path: Path, number: int, code: int) -> None:
    command = [sys.executable, "-c", "from tensor_pool.ops.cli import main; main()", "bench", "latency"]
    place = f"--set=shm.shm_base_dir={tmp_path}"
    with Process([*command, "--seconds", "60", "--bytes", "4096", place], environ=os.environ) as process:
        wait_until(lambda: " frames, p50 " in process.errors(), what="progress", timeout_s=30)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()
        os.kill(process.pid, number)
        assert process.wait() == code
        assert "Traceback" not in process.errors()
        assert len(children) == 2
        assert not any(Path("/proc", child).exists() for child in children)
    assert not list(tmp_path.rglob("*.ring")), "its memory is gone"
    assert not list(Path("/dev/shm").glob(f"tensor-pool-{process.pid}-*"))

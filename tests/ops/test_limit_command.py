"""``tpool limit`` as people type it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pool_hosts import quick_host
from tensor_pool.ops.cli.exit_codes import NO_DRIVER, OK, USAGE
from tensor_pool.testing import Cluster
from tensor_pool.testing.cluster import Process


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def limit(tpool: Callable, host: Cluster) -> Callable:
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    return lambda *arguments: tpool("limit", *arguments, *settings)


def said_by(process: Process, output_format: str) -> str:
    lines = [process.read_line()]
    while output_format == "json" and lines[-1] != "}":
        lines.append(process.read_line())
    return "".join(lines)


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl"])
def test_it_says_where_it_is_and_runs_until_it_is_stopped(host: Cluster, output_format: str) -> None:
    with host.start("limit", "10007", "slow", "--max-rate-hz", "2.5", "--format", output_format) as running:
        said = said_by(running, output_format)
        if output_format == "table":
            assert said == (
                f"aeron-dir={host.aeron_dir} source=10007 dest=slow max-rate-hz=2.5 service=service:limiter"
            )
        else:
            assert json.loads(said) == {
                "aeron_dir": host.aeron_dir,
                "source": "10007",
                "dest": "slow",
                "max_rate_hz": 2.5,
                "service": "service:limiter",
            }
        assert running.terminate() == OK, running.errors()


def test_ctrl_c_ends_it_without_a_word_and_gives_the_stream_back(host: Cluster) -> None:
    with (
        host.connect() as pool,
        pool.producer(10_008, dtype="uint8", shape=(9,), slots=16) as out,
        host.start(
            "limit", "10008", "50008", "--max-rate-hz", "0", "--instance", "b", "--slots", "4"
        ) as running,
    ):
        assert running.read_line().endswith("service=service:limiter:b")
        inp = pool.consumer(50_008, wait_s=10)
        out.publish(np.full(9, 3, np.uint8))
        frame = inp.poll(timeout=10)
        assert frame is not None
        assert (frame.seq, frame.copy()[0]) == (0, 3)
        (limited,) = (stream for stream in pool.streams() if stream.stream_id == 50_008)
        assert limited.slots == 4
        os.kill(running.pid, signal.SIGINT)
        assert running.wait() == OK
        assert running.errors() == ""
        pool.producer(50_008, dtype="uint8", shape=(9,)).close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a", "a", "--max-rate-hz", "1"], "into itself"),
        (["a", "b", "--max-rate-hz", "-1"], "--max-rate-hz"),
        (["a", "b", "--max-rate-hz", "nan"], "--max-rate-hz"),
        (["a", "b"], "--max-rate-hz"),
        (["a", "--max-rate-hz", "1"], "DEST"),
        (["a", "0", "--max-rate-hz", "1"], "can't be a stream"),
        (["a", "b", "--max-rate-hz", "1", "--instance", "no good"], "names no service"),
    ],
)
def test_wrong_use_is_said_at_once(limit: Callable, arguments: list[str], told: str) -> None:
    outcome = limit(*arguments)
    assert outcome.code == USAGE, outcome
    assert told in outcome.err
    assert "try:" in outcome.err
    assert "Traceback" not in outcome.err


def test_without_drivers_there_is_nothing_to_do(tpool: Callable, tmp_path: Path) -> None:
    outcome = tpool("limit", "a", "b", "--max-rate-hz", "1", "--aeron-dir", str(tmp_path / "none"))
    assert outcome.code == NO_DRIVER
    assert "try:" in outcome.err


def test_help_has_examples(tpool: Callable) -> None:
    outcome = tpool("limit", "--help")
    assert outcome.code == OK
    assert "tpool limit camera preview --max-rate-hz 10" in outcome.out
    assert "tpool send limiter:camera max_rate_hz=5" in outcome.out

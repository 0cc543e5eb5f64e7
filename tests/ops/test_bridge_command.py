"""``tpool bridge run|status`` as people type them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bridges import DEST, SOURCE, end_of_bridge, free_endpoints
from pool_hosts import quick_host
from tensor_pool.ops.cli.exit_codes import OK, PROBLEMS, USAGE
from tensor_pool.testing import Cluster, wait_until


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def status(tpool: Callable, host: Cluster) -> Callable:
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    return lambda *arguments: tpool("bridge", "status", "--interval", "0.2", *arguments, *settings)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tensor-pool.toml"
    file.write_text(textwrap.dedent(end_of_bridge("both", *free_endpoints(3))))
    return file


def test_without_a_bridge_there_is_nothing_to_show(status: Callable) -> None:
    outcome = status("--format", "json")
    assert (outcome.code, json.loads(outcome.out)) == (PROBLEMS, [])
    assert "`tpool bridge run`" in outcome.err


def test_without_mappings_there_is_nothing_to_run(tpool: Callable, host: Cluster) -> None:
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    outcome = tpool("bridge", "run", *settings)
    assert outcome.code == USAGE
    assert "bridge.mappings" in outcome.err
    assert "try:" in outcome.err


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl"])
def test_a_bridge_runs_until_it_is_stopped_and_shows_what_it_does(
    host: Cluster, status: Callable, file: Path, output_format: str
) -> None:
    running = host.start("bridge", "run", "--config", str(file), "--format", "jsonl")
    said = json.loads(running.read_line())
    assert said == {"aeron_dir": host.aeron_dir, "instance": "both", "mappings": 1}
    with host.connect() as pool, pool.producer(SOURCE, dtype="uint8", shape=(9,), slots=16) as out:
        inp = pool.consumer(DEST)
        wait_until(lambda: out.publish(np.zeros(9, np.uint8)) >= 0 and inp.poll(timeout=0.2))
        wait_until(lambda: json.loads(status("--format", "json").out)[1]["frames"] > 0)
        outcome = status("--format", output_format)
    assert outcome.code == OK, outcome.err
    if output_format == "table":
        assert "receive" in outcome.out
    else:
        rows = (
            json.loads(outcome.out) if output_format == "json" else map(json.loads, outcome.out.splitlines())
        )
        found = {(row["source"], row["dest"], row["side"]): row for row in rows}
        assert set(found) == {(SOURCE, DEST, "receive"), (SOURCE, DEST, "send")}
        assert all(row["chunks_per_s"] >= 0 and row["in_flight"] == 0 for row in found.values())
    assert running.terminate() == OK
    assert json.loads(status("--format", "json").out) == []


def test_up_runs_the_bridge_along(file: Path) -> None:
    with Cluster(driver=False) as host:
        host.settings["aeron.dir"] = f"{host.directory}/another"
        up = host.start("up", "--config", str(file), "--format", "jsonl")
        assert json.loads(up.read_line())["bridge"] == "both"
        with host.connect() as pool, pool.producer(SOURCE, dtype="uint8", shape=(9,), slots=16) as out:
            inp = pool.consumer(DEST)
            wait_until(lambda: out.publish(np.zeros(9, np.uint8)) >= 0 and inp.poll(timeout=0.2))
        assert up.terminate() == OK

"""``tpool record`` as people type it: what it says at the end, and its exit code."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tensor_pool.ops.cli.exit_codes import OK, PROBLEMS, USAGE
from tensor_pool.testing import Cluster


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def record(tpool: Callable, host: Cluster, tmp_path: Path) -> Callable:
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    return lambda *arguments: tpool("record", *arguments, "--out", str(tmp_path / "recording"), *settings)


@pytest.fixture
def camera(host: Cluster) -> Iterator[None]:
    """Publishes until the test is over."""
    is_over = threading.Event()

    def take_pictures() -> None:
        with host.connect() as pool, pool.producer("camera-1", dtype="uint8", shape=(100,), slots=64) as out:
            while not is_over.wait(0.005):
                out.publish(np.zeros(100, np.uint8))

    thread = threading.Thread(target=take_pictures)
    thread.start()
    yield
    is_over.set()
    thread.join()


def test_a_stream_that_never_came_is_named_and_a_problem(record: Callable) -> None:
    outcome = record("camera-2", "--seconds", "0.5", "--format", "jsonl")
    assert outcome.code == PROBLEMS
    assert "no frame came of camera-2" in outcome.err
    assert "`tpool streams`" in outcome.err
    assert json.loads(outcome.out)["frames"] == 0


@pytest.mark.usefixtures("camera")
def test_one_of_two_streams_that_never_came_is_a_problem_too(record: Callable) -> None:
    outcome = record("camera-1", "camera-2", "--seconds", "1", "--format", "jsonl")
    assert outcome.code == PROBLEMS
    assert "no frame came of camera-2;" in outcome.err
    frames = {row["stream"]: row["frames"] for row in map(json.loads, outcome.out.splitlines())}
    assert frames["camera-1"] > 0 == frames["camera-2"]


@pytest.mark.usefixtures("camera")
def test_a_whole_recording_is_a_success(record: Callable) -> None:
    outcome = record("camera-1", "--frames", "5", "--backlog-mib", "1", "--format", "jsonl")
    assert outcome.code == OK, outcome.err
    row = json.loads(outcome.out)
    assert (row["frames"] >= 5, row["lost"], row["dropped"], row["error"]) == (True, 0, 0, None)


def test_a_backlog_of_nothing_is_refused(record: Callable) -> None:
    outcome = record("camera-1", "--backlog-mib", "0")
    assert outcome.code == USAGE
    assert "--backlog-mib" in outcome.err

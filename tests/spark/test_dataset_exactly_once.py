"""Streaming queries that are killed in mid-batch, and what their tables hold at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from recordings import record
from tensor_pool.pipeline.dataset import Samples, load_manifest, vacuum_dataset, verify_dataset
from tensor_pool.testing import wait_until

CHILD = Path(__file__).parents[1] / "streaming_child.py"
FRAMES = 120
MISSING = 3
"""What `record` leaves out."""
KILLS = ["dataset.in_file:stop:3", "dataset.before_commit:stop:2", "dataset.after_commit:stop:2"]
"""In a worker that writes a file; after files, before their commit; after a commit, before the checkpoint."""
SLOW_START_S = 180


def start(recording, out, fault=""):
    """In a session of its own, by which all processes can be found: Spark's workers leave the group."""
    environment = {**os.environ, "TENSOR_POOL_FAULT": fault}
    command = [sys.executable, str(CHILD), str(recording), str(out)]
    out.mkdir(exist_ok=True)
    with (out / "child.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, start_new_session=True, stderr=log)


def processes_of(child):
    """Ids and states of the child and of everything that it started."""
    found = {}
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended, or is none
            state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
            if process.name.isdigit() and int(session) == child.pid and state != "Z":
                found[int(process.name)] = state
    return found


def kill_all(child):
    """The JVM, the driver and all workers, as a power cut would."""

    def none_is_left():
        for pid in processes_of(child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.poll()
        return not processes_of(child)

    wait_until(none_is_left, 30, what="everybody to be dead")
    child.wait()


def is_in_mid_batch(checkpoint):
    begun, done = (
        {path.name for path in (checkpoint / kind).glob("[0-9]*")} for kind in ("offsets", "commits")
    )
    return begun > done


@contextlib.contextmanager
def running(recording, out, fault, *, until):
    """The child, when something has become true; started again if a process was too slow for Spark."""
    for _ in range(3):
        child = start(recording, out, fault)
        try:
            wait_until(lambda child=child: child.poll() is not None or until(child), SLOW_START_S)
            if child.poll() in (None, 0):
                yield child
                return
        finally:
            kill_all(child)
        error = (out / "child.log").read_text()
        assert "CANNOT_OPEN_SOCKET" in error, error[-3000:]
    raise AssertionError("this machine is too busy for Spark")


def run_and_kill(recording, out, fault):
    """Whether the kill came in mid-batch of the other query too."""
    with running(recording, out, fault, until=lambda child: "T" in processes_of(child).values()) as child:
        assert child.poll() is None, f"ended before {fault}"
        with contextlib.suppress(AssertionError):  # it may be done by now
            wait_until(lambda: is_in_mid_batch(out / "files-checkpoint"), 10)
    assert is_in_mid_batch(out / "set-checkpoint")
    return is_in_mid_batch(out / "files-checkpoint")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kills",
    [pytest.param(KILLS[1:2], id="once"), pytest.param(KILLS, id="three times")],
)
def test_each_frame_is_there_once_however_often_everything_is_killed(spark, tmp_path, kills):
    recording, out = tmp_path / "recording", tmp_path / "out"
    record(recording, frames=FRAMES)
    hits = [run_and_kill(recording, out, fault) for fault in kills]
    assert any(hits), "no kill came in mid-batch of the query that writes files"
    with running(recording, out, "", until=lambda child: False) as child:
        assert child.returncode == 0

    expected = {seq: 1 for seq in range(FRAMES) if not 7 <= seq < 7 + MISSING}
    assert Counter(sample["seq"] for sample in Samples(out / "set")) == expected
    rows = spark.read.parquet(str(out / "files")).select("seq", "status").collect()
    assert Counter(row.seq for row in rows if row.status == "ok") == expected
    assert [row.seq for row in rows if row.status != "ok"] == [7]

    manifest = load_manifest(out / "set")
    assert manifest.missing == MISSING
    assert [commit.batch for commit in manifest.commits] == list(range(len(manifest.commits)))
    check = verify_dataset(out / "set")
    assert check.ok, check.problems
    assert check.unnamed, "no kill left a file behind, so none came in mid-batch"
    assert sorted(vacuum_dataset(out / "set", older_than_hours=0)) == check.unnamed
    assert verify_dataset(out / "set").unnamed == []
    assert Counter(sample["seq"] for sample in Samples(out / "set")) == expected

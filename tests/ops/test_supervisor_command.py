"""`tpool supervisor run`, `status` and `log`, as people type them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pool_hosts import QUICK
from tensor_pool.ops.cli import exit_codes
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.testing.cluster import Process

SETTINGS = {
    **QUICK,
    "driver.hello_authority": "supervisor",
    "supervisor.window_ms": 300,
    "supervisor.slow_for_ms": 700,
    "control.status_period_ms": 200,
}
CAMERA = """
    out = pool.producer("camera", dtype="uint8", shape=(16,), slots=64)
    print(out.stream_id)
    while True:
        out.publish(np.zeros(16, "uint8"))
        time.sleep(0.002)
"""
SLOW = """
    inp = pool.consumer("camera", wait_s=10)
    print(inp.session.consumer_id)
    while True:
        frame = inp.poll(timeout=1.0)
        if frame is not None:
            frame.copy()
            time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as cluster:
        cluster.run_python(CAMERA).read_line()
        yield cluster


@pytest.fixture(scope="module")
def supervisor(host: Cluster) -> Iterator[Process]:
    running = host.start("supervisor", "run", "--dry-run", "--format=jsonl")
    said = json.loads(running.read_line())
    assert (said["dry_run"], said["authority"]) == (True, "supervisor")
    yield running
    assert running.terminate() == exit_codes.OK


@pytest.fixture(scope="module")
def slow_id(host: Cluster, supervisor: Process) -> int:
    return int(host.run_python(SLOW).read_line())


@pytest.fixture
def ask(host: Cluster, tpool: Callable[..., Any]) -> Callable[..., list[dict[str, Any]]]:
    """The rows that a command prints."""

    def rows(*arguments: str) -> list[dict[str, Any]]:
        outcome = tpool(*arguments, "--format=json", f"--aeron-dir={host.aeron_dir}")
        assert outcome.code == exit_codes.OK, outcome.err
        found: list[dict[str, Any]] = json.loads(outcome.out)
        return found

    return rows


def test_status_shows_streams_and_consumers(ask: Callable[..., list[dict[str, Any]]], slow_id: int) -> None:
    def row() -> dict[str, Any] | None:
        found = [row for row in ask("supervisor", "status") if row["consumer_id"] == slow_id]
        return found[0] if found and found[0]["remedy"] != "none" else None

    consumer = wait_until(row, timeout_s=30)
    assert (consumer["name"], consumer["remedy"]) == ("camera", "rate_limited")
    assert consumer["mode"] in ("stream", "rate_limited"), "as long as it is a dry run, or not any more"
    (stream,) = ask("supervisor", "status", "--streams")
    assert (stream["name"], stream["state"], stream["consumers"]) == ("camera", "live", 1)


def test_the_log_says_what_was_seen_and_decided(
    ask: Callable[..., list[dict[str, Any]]], host: Cluster, slow_id: int, tpool: Callable[..., Any]
) -> None:
    entries = wait_until(lambda: ask("supervisor", "log", "--decisions"), timeout_s=30)
    assert (entries[0]["consumer_id"], entries[0]["outcome"]) == (slow_id, "dry_run")
    assert (entries[0]["before"], entries[0]["after"]) == ("none", "rate_limited")
    assert "drops" in entries[0]["seen"]
    assert ask("supervisor", "log", "--count", "1") != []
    table = tpool("supervisor", "log", "--decisions", f"--aeron-dir={host.aeron_dir}").out
    assert "rate_limited" in table.splitlines()[1]


def test_a_dry_run_is_ended_by_command_and_the_log_is_followed(
    ask: Callable[..., list[dict[str, Any]]], host: Cluster, slow_id: int, tpool: Callable[..., Any]
) -> None:
    wait_until(lambda: ask("supervisor", "log", "--decisions"), timeout_s=30)
    following = host.start("supervisor", "log", "--follow", "--format=jsonl")
    numbers = [json.loads(following.read_line())["number"]]
    where = f"--aeron-dir={host.aeron_dir}"
    assert tpool("send", "supervisor", "dry_run=false", where).code == exit_codes.OK
    while True:
        entry = json.loads(following.read_line())
        numbers.append(entry["number"])
        if entry["outcome"] == "told":
            break
    assert (entry["consumer_id"], entry["after"]) == (slow_id, "rate_limited")
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "each once, in order"
    os.kill(following.pid, signal.SIGINT)
    assert following.wait() == exit_codes.OK
    wait_until(lambda: ask("supervisor", "status")[0]["mode"] == "rate_limited", timeout_s=30)
    assert tpool("send", "supervisor", "dry_run=maybe", where).code == exit_codes.PROBLEMS


def test_it_is_a_service_like_others(ask: Callable[..., list[dict[str, Any]]], slow_id: int) -> None:
    def values() -> dict[str, Any]:
        return {row["key"]: row["value"] for row in ask("services", "supervisor")}

    found = wait_until(lambda: (known := values()).get("supervisor.decisions") not in (None, 0) and known, 30)
    assert (found["supervisor.streams"], found["supervisor.consumers"]) == (1, 1)
    assert found["dry_run"] in (True, False)


def test_watch(
    ask: Callable[..., list[dict[str, Any]]], host: Cluster, slow_id: int, tpool: Callable[..., Any]
) -> None:
    wait_until(lambda: ask("supervisor", "status"), timeout_s=30)
    where = f"--aeron-dir={host.aeron_dir}"
    watched = tpool("supervisor", "status", "--watch", "--count=2", "--interval=0.1", "--format=jsonl", where)
    rows = [json.loads(line) for line in watched.out.splitlines()]
    assert [row["consumer_id"] for row in rows] == [slow_id] * 2
    assert rows[0]["at"] < rows[1]["at"]


@pytest.mark.parametrize("command", ["status", "log"])
def test_nobody_answers(command: str, tpool: Callable[..., Any]) -> None:
    with Cluster(driver=False) as empty:
        outcome = tpool("supervisor", command, "--timeout=0.2", f"--aeron-dir={empty.aeron_dir}")
    assert outcome.code == exit_codes.PROBLEMS
    assert "tpool supervisor run" in outcome.err


def test_no_end_of_a_document(tpool: Callable[..., Any]) -> None:
    outcome = tpool("supervisor", "log", "--follow", "--format=json")
    assert (outcome.code, "jsonl" in outcome.err) == (exit_codes.USAGE, True)

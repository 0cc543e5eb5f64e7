"""``tpool bridge run|status`` as people type them."""

from __future__ import annotations

import contextlib
import json
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridges import DEST, SOURCE, end_of_bridge, free_endpoints
from pool_hosts import quick_host
from tensor_pool.bridging.counting import read_bridges
from tensor_pool.ops.cli.exit_codes import NO_DRIVER, OK, PROBLEMS, USAGE
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
def bridges() -> Iterator[contextlib.ExitStack]:
    """What runs here ends with the test, also with one that fails."""
    with contextlib.ExitStack() as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tensor-pool.toml"
    file.write_text(textwrap.dedent(end_of_bridge("both", *free_endpoints(3))))
    return file


def test_without_a_bridge_there_is_nothing_to_show(status: Callable) -> None:
    # One that a test before this killed is there until Aeron has noticed.
    outcome = wait_until(lambda: (found := status("--format", "json")).out.strip() == "[]" and found, 30)
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
    host: Cluster, status: Callable, file: Path, output_format: str, bridges: contextlib.ExitStack
) -> None:
    running = bridges.enter_context(host.start("bridge", "run", "--config", str(file), "--format", "jsonl"))
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


def test_rates_are_those_of_the_stream_however_short_the_look(
    host: Cluster, tpool: Callable, file: Path, bridges: contextlib.ExitStack
) -> None:
    running = bridges.enter_context(host.start("bridge", "run", "--config", str(file), "--format", "jsonl"))
    running.read_line()
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    out = bridges.enter_context(
        bridges.enter_context(host.connect()).producer(SOURCE, dtype="uint8", shape=(9,), slots=64)
    )
    stop = threading.Event()

    def feed() -> None:
        due_s = time.monotonic()
        while not stop.wait(max(0.0, due_s - time.monotonic())):
            out.publish(np.zeros(9, np.uint8))
            due_s += 0.01

    feeder = threading.Thread(target=feed)
    feeder.start()
    bridges.callback(feeder.join)
    bridges.callback(stop.set)

    def rates(interval: str) -> list[float | None]:
        outcome = tpool("bridge", "status", "--interval", interval, "--format", "json", *settings)
        return [row["frames_per_s"] for row in json.loads(outcome.out)]

    wait_until(lambda: all(rates("0.1")) and len(rates("0.1")) == 2)
    for interval in ("0.1", "0.3", "0.7"):
        for rate in rates(interval):
            assert rate == pytest.approx(100, rel=0.4), interval


def test_a_tap_shows_the_chunks_of_the_mappings(tpool: Callable, host: Cluster, file: Path) -> None:
    newer = ["--set=bridge.dialect=newer", "--set=bridge.checksums=true", "--config", str(file)]
    running = host.start("bridge", "run", "--format", "jsonl", *newer)
    running.read_line()
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    with host.connect() as pool, pool.producer(SOURCE, max_bytes=20_000, slots=16) as out:
        inp = pool.consumer(DEST)
        wait_until(lambda: out.publish(np.zeros(20_000, np.uint8)) >= 0 and inp.poll(timeout=0.2))
        feeding = threading.Event()

        def feed() -> None:
            while not feeding.wait(0.01):
                out.publish(np.ones(20_000, np.uint8))

        with contextlib.ExitStack() as stack:
            feeder = threading.Thread(target=feed)
            feeder.start()
            stack.callback(feeder.join)
            stack.callback(feeding.set)
            outcome = tpool("tap", "bridge", "--count", "12", "--format", "json", *newer, *settings)
    assert outcome.code == OK, outcome.err
    assert " 12 shown," in outcome.err, "not what came along with the last one"
    rows = [row["fields"] for row in json.loads(outcome.out)]
    assert {(row["stream_id"], row["dialect"], row["chunk_count"]) for row in rows} == {(SOURCE, "newer", 3)}
    # A tap that comes late has not seen the start of its first frame.
    assert [row["crc_ok"] for row in rows if row["chunk_index"] == 2][1:] == [True] * 3
    assert running.terminate() == OK


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bridge"], "no [[bridge.mappings]]"),
        (["bridge", "--stream-id", "3000"], "--stream-id needs --channel"),
        (["qos", "--channel", "aeron:ipc"], "are for the source bridge"),
        (["bridge", "--channel", "udp://x"], "udp://x"),
    ],
)
def test_a_tap_that_does_not_know_where_to_listen_says_so(
    tpool: Callable, host: Cluster, arguments: list[str], told: str
) -> None:
    outcome = tpool("tap", *arguments, "--seconds", "1", "--aeron-dir", host.aeron_dir)
    assert outcome.code in {USAGE, PROBLEMS}
    assert told in outcome.err
    assert "Traceback" not in outcome.err


def test_up_runs_the_bridge_along(file: Path) -> None:
    with Cluster(driver=False) as host:
        host.settings["aeron.dir"] = f"{host.directory}/another"
        up = host.start("up", "--config", str(file), "--format", "jsonl")
        assert json.loads(up.read_line())["bridge"] == "both"
        with host.connect() as pool, pool.producer(SOURCE, dtype="uint8", shape=(9,), slots=16) as out:
            inp = pool.consumer(DEST)
            wait_until(lambda: out.publish(np.zeros(9, np.uint8)) >= 0 and inp.poll(timeout=0.2))
        assert up.terminate() == OK


def errors(outcome: Any) -> dict[str, str | None]:
    """What a status says about each side."""
    return {row["side"]: row["error"] for row in json.loads(outcome.out)}


def test_a_mapping_that_carries_nothing_says_why(
    host: Cluster, status: Callable, file: Path, bridges: contextlib.ExitStack
) -> None:
    with host.connect() as pool, pool.producer(SOURCE, dtype="uint8", shape=(9,), slots=16):
        # A bridge that a test before this killed has it until its lease ends.
        wait_until(lambda: {s.stream_id: s.producer_id for s in pool.streams()}.get(DEST) is None)
        with pool.producer(DEST, dtype="uint8", shape=(9,)):  # before the bridge can have it
            running = bridges.enter_context(
                host.start("bridge", "run", "--config", str(file), "--format", "jsonl")
            )
            running.read_line()
            wait_until(lambda: errors(status("--format", "json")).get("receive"))
            outcome = status("--format", "json")
            assert outcome.code == PROBLEMS
            assert f"stream {DEST} has a producer" in str(errors(outcome)["receive"])
            assert errors(outcome)["send"] is None
            assert "has a producer" in status("--format", "table").out
        wait_until(lambda: errors(status("--format", "json")) == {"send": None, "receive": None})
        assert status().code == OK
    assert running.terminate() == OK


def test_a_bridge_that_was_killed_is_not_shown_as_one_that_runs(
    host: Cluster, status: Callable, file: Path
) -> None:
    running = host.start("bridge", "run", "--config", str(file), "--format", "jsonl")
    running.read_line()
    wait_until(lambda: len(json.loads(status("--format", "json").out)) == 2)
    running.kill()
    wait_until(lambda: json.loads(status("--format", "json").out) == [], timeout_s=6)
    assert {reading.is_alive for reading in read_bridges(host.aeron_dir)} == {False}, (
        "the rows are still there"
    )
    outcome = status("--format", "json")
    assert outcome.code == PROBLEMS
    assert "bridge both shows no life" in outcome.err


def test_a_bridge_without_its_drivers_says_so(tpool: Callable, file: Path) -> None:
    with quick_host(aeron__driver_timeout_ms=2_000, client__attach_timeout_ms=500) as host:
        settings = [f"--set={key}={value}" for key, value in host.settings.items()]

        def status() -> Any:
            return tpool("bridge", "status", "--interval", "0.1", "--format", "json", *settings)

        def said() -> list[str | None]:
            found = list(errors(status()).values())
            return found if len(found) == 2 else []

        def all_say(text: str) -> bool:
            return bool(found := said()) and all(text in str(each) for each in found)

        def nobody_misses_a_driver() -> bool:  # but a source, which there is not
            return bool(found := said()) and not any("driver" in str(each) for each in found)

        running = host.start("bridge", "run", "--config", str(file), "--format", "jsonl")
        running.read_line()
        wait_until(nobody_misses_a_driver)
        assert host.driver is not None
        host.driver.kill()
        wait_until(lambda: all_say("no SHM driver answers"))
        assert status().code == PROBLEMS
        host.start_driver()
        wait_until(nobody_misses_a_driver)
        host.driver.kill()
        host.media.kill()
        wait_until(lambda: status().code == NO_DRIVER)
        host.media = host.start("media", "run")
        host.media.read_line()
        wait_until(lambda: all_say("no SHM driver answers"), timeout_s=20)
        host.start_driver()
        wait_until(nobody_misses_a_driver, timeout_s=20)
        assert running.terminate() == OK

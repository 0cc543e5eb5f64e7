"""Drivers that die, start again and again, or meet each other, as their clients see it.

Reliability 6, 7 and 8; what the driver itself does is shown in test_driver_faults.
"""

from __future__ import annotations

import os
import random
import threading
import time

import numpy as np
import pytest

from pool_hosts import LAYOUTS, epochs_of, half_made, mapped_regions, open_files, quick_host
from tensor_pool.errors import AttachRefusedError, LeaseLostError
from tensor_pool.pool.consumer import Consumer
from tensor_pool.pool.pool import Pool
from tensor_pool.pool.producer import Producer
from tensor_pool.testing import Cluster, wait_until


def frame(value: int) -> np.ndarray:
    return np.full(4, value, "uint32")


PROGRAM = """
    name = {name!r}
    while True:
        try:
            out = pool.producer(name, dtype="uint32", shape=(4,))
            break
        except tp.TensorPoolError:  # the driver dies while it is asked
            time.sleep(0.05)
    inp = pool.consumer(name, wait_s=20)
    print("ready", out.epoch)
    while command := sys.stdin.readline().strip():
        value, _, last_epoch = command.partition(" ")
        # Until one arrives in another epoch: those of a dead driver go on for a moment, and end with it.
        while True:
            out.publish(np.full(4, int(value), "uint32"))
            frame = inp.poll(timeout=0.2)
            if frame and frame.copy()[0] == int(value) and frame.info.epoch > int(last_epoch or 0):
                print(value, frame.info.epoch)
                break
"""


@pytest.mark.parametrize(
    "fault",
    [
        "driver.before_create:kill:2",
        pytest.param("driver.after_create:kill:2", marks=pytest.mark.slow),
        "driver.after_rename:kill:2",
        "driver.before_announce:kill:9",
        pytest.param("driver.after_announce:kill:9", marks=pytest.mark.slow),
        "driver.while_revoking:kill:1",
        "driver.during_gc:kill:1",
    ],
)
@pytest.mark.parametrize("layout", ["separate", pytest.param("one-stream", marks=pytest.mark.slow)])
def test_clients_outlive_a_driver_that_dies_in_its_work(layout: str, fault: str) -> None:
    """They let go of everything within the freshness window, and have it all again from the next driver."""
    with quick_host(layout, driver=False) as host:
        driver = host.start_driver(environ={"TENSOR_POOL_FAULT": fault})
        with host.connect() as pool:
            out = pool.producer("camera-1", dtype="uint32", shape=(4,))
            inp = pool.consumer("camera-1", wait_s=5)
            out.publish(frame(1))
            assert inp.poll(timeout=5).copy()[0] == 1
            before = out.epoch
            other = host.run_python(PROGRAM.format(name="camera-2"))  # its attach meets the fault, or:
            if "revoking" in fault or "gc" in fault:
                other.read_line()
                other.kill()
            assert driver.wait() == -9
            wait_until(lambda: not inp.mapped and out.epoch is None, 5, what="both let go")
            assert inp.poll() is None
            host.start_driver()
            out.publish(frame(2))  # there is no lease now: it waits for one
            assert out.epoch > before
            assert inp.poll(timeout=5).copy()[0] == 2
            if other.exit_code is None:
                assert other.read_line().startswith("ready")
                other.say("3")
                assert other.read_line().startswith("3 ")
            live = {stream.stream_id: stream.epoch for stream in pool.streams() if stream.producer_id}
            wait_until(
                lambda: {i: epochs_of(host).get(i) for i in live} == {i: [e] for i, e in live.items()},
                what="only live epochs are left",
            )
            wait_until(lambda: not half_made(host), what="nothing half made is left")
            out.publish(frame(4))
            assert inp.poll(timeout=5).copy()[0] == 4, "nothing live was deleted"


def restart(host: Cluster, *, times: int, seed: int) -> None:
    """Restarts the driver under four clients: two here, two in a process of their own."""
    random_number = random.Random(seed)
    other = host.run_python(PROGRAM.format(name="camera-2"))
    _, epoch = other.read_line().split()
    epochs = {"camera-2": [int(epoch)]}
    with host.connect() as pool:
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        inp = pool.consumer("camera-1", wait_s=5)
        epochs["camera-1"] = [out.epoch]
        use: list[dict[str, int]] = []
        for number in range(times):
            getattr(host.driver, random_number.choice(["kill", "terminate"]))()
            host.driver.close()
            host.start_driver()
            own = epochs["camera-1"]
            own.append(wait_until(lambda number=number, own=own: passes(out, inp, number, own[-1])))
            other.say(f"{number} {epochs['camera-2'][-1]}")
            answer = other.read_line()
            assert answer.startswith(f"{number} "), answer
            epochs["camera-2"].append(int(answer.split()[1]))
            use.append(resources(host, os.getpid(), other.pid))
        for each in epochs.values():
            assert each == sorted(set(each)), "epochs never go back"
        settled, last = use[min(4, times // 2)], use[-1]
        for what, count in last.items():
            assert count <= settled[what] + 3, (what, settled, last)
        # Those of killed drivers stay until the media driver has missed them for ten seconds.
        assert len(os.listdir(f"{host.aeron_dir}/publications")) < 60  # noqa: PTH208 - only their number
        stream_ids = {s.name: s.stream_id for s in pool.streams()}
        wait_until(
            lambda: (
                {i: len(epochs_of(host).get(i, ())) for i in stream_ids.values()}
                == dict.fromkeys(stream_ids.values(), 1)
            ),
            what="one epoch a stream is left",
        )
        assert not half_made(host)
    other.say("")


def passes(out: Producer, inp: Consumer, value: int, last_epoch: int) -> int | None:
    """The epoch in which a frame gets through, if it is a new one: a dead driver's go on for a moment."""
    out.publish(frame(value))
    found = inp.poll(timeout=0.2)
    if found is None or int(found.copy()[0]) != value or found.info.epoch <= last_epoch:
        return None
    return found.info.epoch


def resources(host: Cluster, *pids: int) -> dict[str, int]:
    """What a leak would make grow."""
    found: dict[str, int] = {}
    for place, pid in enumerate(pids):
        found[f"files of client {place}"] = open_files(pid)
        found[f"maps of client {place}"] = len(mapped_regions(pid, host))
        found[f"threads of client {place}"] = len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    return found


def test_twelve_restarts() -> None:
    """Reliability 7, for every day; `make faults` does two hundred."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with quick_host() as host:
        restart(host, times=12, seed=seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_two_hundred_restarts(layout: str) -> None:
    """Reliability 7."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with quick_host(layout) as host:
        restart(host, times=200, seed=seed)


def test_of_two_drivers_one_is_told(host: Cluster) -> None:
    """Reliability 8: the second names the first and ends; nobody notices."""
    second = host.start("driver", "run")
    assert second.wait() != 0
    assert f"process {host.driver.pid}" in second.errors()
    assert host.driver.exit_code is None


def test_of_many_producers_one_wins(host: Cluster, name: str) -> None:
    """Reliability 8: whoever loses is told who has the stream, every time; and never do two write."""
    pools = [host.connect() for _ in range(4)]
    try:
        for _ in range(25):
            won, refused = compete(pools, name)
            assert len(won) == 1, (won, refused)
            assert all("has a producer: client" in text for text in refused)
            assert len(refused) == 3
            won[0].publish(frame(1))
            won[0].close()
    finally:
        for pool in pools:
            pool.close()


def compete(pools: list[Pool], name: str) -> tuple[list, list[str]]:
    won, refused = [], []
    start = threading.Barrier(len(pools))

    def attach(pool: Pool) -> None:
        start.wait()
        try:
            won.append(pool.producer(name, dtype="uint32", shape=(4,), slots=8))
        except AttachRefusedError as e:
            refused.append(str(e))

    threads = [threading.Thread(target=attach, args=(pool,)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, refused


@pytest.mark.quiet
def test_publishing_raises_where_that_is_configured() -> None:
    """After lease loss: wait for the next lease by default, or raise by policy."""
    with quick_host(client__on_lease_loss="raise") as host, host.connect() as pool:
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        host.driver.kill()
        wait_until(lambda: out.epoch is None, what="the loss is noticed")
        started = time.monotonic()
        with pytest.raises(LeaseLostError, match="announced nothing"):
            out.publish(frame(1))
        assert time.monotonic() - started < 0.5
        host.start_driver()
        wait_until(lambda: out.stats.reconnects == 1, what="a new lease, with its memory mapped")
        out.publish(frame(2))
        assert out.stats.lease_losses == 1

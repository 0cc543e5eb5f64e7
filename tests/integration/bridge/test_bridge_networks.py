"""Bridges between hosts with networks of their own: unicast, multicast, loss, and a cable that is pulled."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, end_of_bridge
from pool_hosts import QUICK
from tensor_pool.testing import TwoHosts, wait_until
from tensor_pool.testing.network import Host

SIZE = 300_001
UNICAST = (24_121, 24_122, 24_123)
MULTICAST = (24_131, 24_132, 24_133)
"""Others: a host may hold a port of a group for a while after its last member left."""

pytestmark = pytest.mark.skipif(TwoHosts.why_not() is not None, reason=str(TwoHosts.why_not()))


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    with TwoHosts(QUICK) as (left, right):
        yield left, right


@pytest.fixture(scope="module")
def lossy_hosts() -> Iterator[tuple[Host, Host]]:
    with TwoHosts(QUICK, loss=0.05) as (left, right):
        yield left, right


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Runs a bridge from one host to another."""
    running = []

    def join(left: Host, right: Host, *, endpoints: list[str] | None = None) -> None:
        endpoints = endpoints or [f"{right.address}:{port}" for port in UNICAST]
        for host, role in ((right, "receiver"), (left, "sender")):
            file = tmp_path / f"{role}.toml"
            file.write_text(textwrap.dedent(end_of_bridge(role, *endpoints)))
            bridge = host.start("bridge", "run", "--config", str(file))
            running.append(bridge)
            bridge.read_line()

    yield join
    for bridge in running:
        bridge.close()


def arrivals(out: tp.Producer, inp: tp.Consumer, count: int, rate_hz: float = 50.0) -> list[int]:
    """Publishes at a steady rate; the numbers of frames that came, all of them whole."""
    came: list[int] = []

    def take(timeout_s: float) -> bool:
        frame = inp.poll(timeout=timeout_s)
        if frame is None:
            return False
        assert (frame.copy() == frame.seq % 251).all()
        came.append(frame.seq)
        return True

    started = time.monotonic()
    for number in range(count):
        out.publish(np.full(SIZE, out.stats.frames % 251, np.uint8))
        while (left_s := started + (number + 1) / rate_hz - time.monotonic()) > 0:
            take(left_s)
    while take(1.0):
        pass
    return came


def carries(out: tp.Producer, inp: tp.Consumer, *, oldest_s: float = math.inf) -> bool:
    """Whether a frame that is published now arrives; none that comes before it may be too old."""
    seq = out.publish(np.full(SIZE, out.stats.frames % 251, np.uint8))
    while (frame := inp.poll(timeout=0.5)) is not None:
        assert time.monotonic_ns() - frame.timestamp_ns < oldest_s * 1e9, "a frame from before"
        if frame.seq == seq:
            return True
    return False


def test_unicast(hosts: tuple[Host, Host], joined: Callable[..., None]) -> None:
    left, right = hosts
    joined(left, right)
    with left.connect() as here, right.connect() as there:
        out = here.producer(SOURCE, dtype="uint8", shape=(SIZE,), slots=64, metadata={"lens": "wide"})
        inp = there.consumer(DEST)
        wait_until(lambda: carries(out, inp))
        came = arrivals(out, inp, 50)
        assert came == list(range(came[0], came[0] + 50))
        wait_until(lambda: dict(inp.metadata).get("lens") == "wide")
        out.close()


def test_multicast(hosts: tuple[Host, Host], joined: Callable[..., None]) -> None:
    left, right = hosts
    joined(left, right, endpoints=[f"224.0.1.77:{port}|interface=10.77.0.0/24" for port in MULTICAST])
    with left.connect() as here, right.connect() as there:
        out = here.producer(SOURCE, dtype="uint8", shape=(SIZE,), slots=64)
        inp = there.consumer(DEST)
        wait_until(lambda: carries(out, inp))
        came = arrivals(out, inp, 50)
        assert came == list(range(came[0], came[0] + 50))
        out.close()


def test_a_cable_that_is_pulled_costs_frames_and_nothing_else(
    hosts: tuple[Host, Host], joined: Callable[..., None]
) -> None:
    left, right = hosts
    joined(left, right)
    with left.connect() as here, right.connect() as there:
        out = here.producer(SOURCE, dtype="uint8", shape=(SIZE,), slots=64)
        inp = there.consumer(DEST)
        wait_until(lambda: carries(out, inp))
        left.unplug()
        assert arrivals(out, inp, 75) == []
        left.plug_in()
        wait_until(lambda: carries(out, inp, oldest_s=1.5), timeout_s=30)
        came = arrivals(out, inp, 20)
        assert came == list(range(came[0], came[0] + 20))
        out.close()


def test_aeron_repairs_what_the_network_loses(
    lossy_hosts: tuple[Host, Host], joined: Callable[..., None]
) -> None:
    left, right = lossy_hosts
    joined(left, right)
    with left.connect() as here, right.connect() as there:
        out = here.producer(SOURCE, dtype="uint8", shape=(SIZE,), slots=64)
        inp = there.consumer(DEST)
        wait_until(lambda: carries(out, inp), timeout_s=30)
        came = arrivals(out, inp, 100, rate_hz=30)
        assert right.media_counter("NAKs sent") > 0
        assert len(came) >= 90
        assert came == sorted(set(came))
        out.close()

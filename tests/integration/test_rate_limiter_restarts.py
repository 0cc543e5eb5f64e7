"""A rate limiter outlives everything around it, and no frame is ever torn, doubled or reordered."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tensor_pool as tp
from pool_hosts import quick_host
from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.host.limiter import RateLimiter
from tensor_pool.ops.cli.exit_codes import OK
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.testing.cluster import Process

pytestmark = pytest.mark.slow

CAMERA = """
    while True:
        try:
            with pool.producer("camera", dtype="uint64", shape=(40_000,), slots=16) as out:
                while True:
                    out.publish(np.full(40_000, time.time_ns(), np.uint64))
                    time.sleep(0.005)
        except tp.TensorPoolError:
            time.sleep(0.1)
            try:
                pool = tp.connect(config=config)
            except tp.TensorPoolError:
                pass
"""
"""Each frame says when it was taken; begins anew when it has lost its host."""
FAST_CAMERA = """
    out = pool.producer("fast", dtype="uint64", shape=(60_000,), slots=4)
    buffer = np.zeros(60_000, np.uint64)
    for seq in range(10**9):
        buffer[:] = seq
        out.publish(buffer, timestamp_ns=1_000 + seq)
"""
"""As fast as it can, into as few slots as there may be; each frame says its number."""
RATE_HZ = 20


class Host:
    """A host with a camera and a limiter, both as processes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.camera = cluster.run_python(CAMERA)
        self.limiter = self.start_limiter()

    def start_limiter(self) -> Process:
        limiter = self.cluster.start("limit", "camera", "preview", "--max-rate-hz", str(RATE_HZ))
        limiter.read_line()
        return limiter

    def restart_camera(self) -> None:
        self.camera.kill()
        self.camera = self.cluster.run_python(CAMERA)

    def restart_limiter(self) -> None:
        self.limiter.kill()
        self.limiter = self.start_limiter()

    def restart_driver(self) -> None:
        assert self.cluster.driver is not None
        self.cluster.driver.kill()
        self.cluster.start_driver()

    def restart_media(self) -> None:
        assert self.cluster.driver is not None
        self.cluster.media.kill()
        self.cluster.driver.kill()
        self.cluster.start_media()
        self.cluster.start_driver()

    def stall_limiter(self) -> None:
        """Longer than its lease lasts."""
        epoch = self.epoch()
        self.limiter.stop()
        with self.cluster.connect() as pool:
            wait_until(lambda: "preview" not in produced(pool))
        self.limiter.go_on()
        wait_until(lambda: self.epoch() not in (None, epoch))

    def epoch(self) -> int | None:
        with self.cluster.connect() as pool:
            return produced(pool).get("preview")


def produced(pool: tp.Pool) -> dict[str, int | None]:
    """The streams that have a producer, with their epochs."""
    return {stream.name: stream.epoch for stream in pool.streams() if stream.producer_id}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with quick_host(aeron__driver_timeout_ms=2_000) as cluster:
        yield Host(cluster)


def fresh_frames(cluster: Cluster, since_ns: int, count: int) -> list[int]:
    """When frames were taken that passed, the first of them after `since_ns`."""
    taken: list[int] = []
    with cluster.connect() as pool, pool.consumer("preview") as inp:
        deadline = time.monotonic() + 30
        while len(taken) < count:
            assert time.monotonic() < deadline, f"{len(taken)} frames came"
            frame = inp.poll(timeout=1.0)
            if frame is None:
                continue
            array = frame.copy()
            assert (array == array[0]).all(), "a frame of two"
            if array[0] > since_ns:
                taken.append(int(array[0]))
    return taken


RESTARTS: dict[str, Callable[[Host], None]] = {
    "camera": Host.restart_camera,
    "limiter": Host.restart_limiter,
    "limiter that stood still": Host.stall_limiter,
    "driver": Host.restart_driver,
    "media driver": Host.restart_media,
}


def test_each_piece_may_die_once(host: Host) -> None:
    fresh_frames(host.cluster, 0, 5)
    for name, restart in RESTARTS.items():
        started = time.monotonic()
        restart(host)
        taken = fresh_frames(host.cluster, time.time_ns(), 5)
        assert taken == sorted(set(taken)), f"{name}: frames came twice or out of order"
        print(f"{name}: {time.monotonic() - started:.1f} s")
    with tp.ControlClient(config=host.cluster.config) as control:
        wait_until(lambda: control.services(only="limiter"), what="a service that came back too")
        control.send("limiter", "max_rate_hz", 30.0)
    assert host.limiter.terminate() == OK


@pytest.fixture
def storm() -> Iterator[Cluster]:
    with quick_host() as cluster:
        camera = cluster.run_python(FAST_CAMERA)
        yield cluster
        assert camera.exit_code is None, camera.errors()


@pytest.mark.parametrize("max_rate_hz", [0, 200])
def test_what_passes_in_a_storm_is_whole_and_in_order(storm: Cluster, max_rate_hz: float) -> None:
    seen: list[int] = []
    overwritten = 0
    limiter = RateLimiter(storm.config, "fast", "slow", max_rate_hz=max_rate_hz, slots=64)
    with limiter, storm.connect() as pool:
        inp = pool.consumer("slow", wait_s=10)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (len(seen) >= 300 and limiter.stats.frames_torn):
            frame = inp.poll(timeout=1.0)
            if frame is None:
                continue
            try:
                array = frame.copy()
            except FrameOverwrittenError:  # by the limiter, and noticed
                overwritten += 1
                continue
            assert (array == frame.seq).all(), f"frame {frame.seq} has {np.unique(array)}"
            assert frame.timestamp_ns == 1_000 + frame.seq
            seen.append(frame.seq)
        stats = limiter.stats
    print(f"{overwritten} overwritten in use, {stats}")
    assert len(seen) >= 300
    assert all(sooner < later for sooner, later in itertools.pairwise(seen)), "doubled or out of order"
    assert stats.frames_torn, "else the camera was too slow for this to show anything"


def test_a_limiter_that_stands_still_holds_nobody_up(storm: Cluster) -> None:
    limiter = storm.start("limit", "fast", "slow", "--max-rate-hz", "0", "--slots", "8")
    limiter.read_line()
    with storm.connect() as pool:
        next_frame = pool.consumer("slow", wait_s=10).poll(timeout=10)
        assert next_frame is not None
        limiter.stop()
        inp = pool.consumer("fast", wait_s=10)
        first = inp.poll(timeout=10)
        assert first is not None
        wait_until(lambda: (frame := inp.latest()) is not None and frame.seq > first.seq + 200)
        limiter.go_on()
    assert limiter.terminate() == OK

"""Every piece of two hosts dies once and comes back: frames flow again, and none is ever stale."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridges import DEST, SOURCE, end_of_bridge, free_endpoints
from pool_hosts import quick_host
from tensor_pool.testing import Cluster
from tensor_pool.testing.cluster import Process

CAMERA = f"""
    while True:
        try:
            with pool.producer({SOURCE}, dtype="uint64", shape=(40_000,), slots=16) as out:
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


class Hosts:
    """Two hosts with a media driver, an SHM driver and a bridge each; the first one has a camera."""

    def __init__(self, a: Cluster, b: Cluster, directory: Path) -> None:
        self.a, self.b = a, b
        endpoints = free_endpoints(3)
        self._files = {}
        for host, role in ((a, "sender"), (b, "receiver")):
            self._files[host] = directory / f"{role}.toml"
            self._files[host].write_text(textwrap.dedent(end_of_bridge(role, *endpoints)))
        self.bridges = {host: self.start_bridge(host) for host in (a, b)}
        self.camera = self.start_camera()

    def start_bridge(self, host: Cluster) -> Process:
        bridge = host.start("bridge", "run", "--config", str(self._files[host]))
        bridge.read_line()
        return bridge

    def start_camera(self) -> Process:
        return self.a.run_python(CAMERA)

    def restart_bridge(self, host: Cluster) -> None:
        self.bridges[host].kill()
        self.bridges[host] = self.start_bridge(host)

    def restart_camera(self) -> None:
        self.camera.kill()
        self.camera = self.start_camera()

    def restart_driver(self, host: Cluster) -> None:
        assert host.driver is not None
        host.driver.kill()
        host.start_driver()

    def restart_media(self, host: Cluster) -> None:
        assert host.driver is not None
        host.media.kill()
        host.driver.kill()
        host.media = host.start("media", "run")
        host.media.read_line()
        host.start_driver()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    settings = {"aeron__driver_timeout_ms": 2_000}
    with quick_host(**settings) as a, quick_host(**settings) as b:
        yield Hosts(a, b, tmp_path_factory.mktemp("bridges"))


def fresh_frames(host: Cluster, since_ns: int, count: int) -> list[int]:
    """When frames were taken that came to a host, the first of them after `since_ns`."""
    taken: list[int] = []
    with host.connect() as pool, pool.consumer(DEST) as inp:
        deadline = time.monotonic() + 30
        while len(taken) < count:
            assert time.monotonic() < deadline, f"{len(taken)} frames came"
            frame = inp.poll(timeout=1.0)
            if frame is None:
                continue
            values = frame.copy()
            assert (values == values[0]).all(), "a frame of two"
            if values[0] > since_ns:
                taken.append(int(values[0]))
    return taken


RESTARTS: dict[str, Callable[[Hosts], None]] = {
    "camera": lambda hosts: hosts.restart_camera(),
    "sender": lambda hosts: hosts.restart_bridge(hosts.a),
    "receiver": lambda hosts: hosts.restart_bridge(hosts.b),
    "driver of the source": lambda hosts: hosts.restart_driver(hosts.a),
    "driver of the destination": lambda hosts: hosts.restart_driver(hosts.b),
    "media driver of the source": lambda hosts: hosts.restart_media(hosts.a),
    "media driver of the destination": lambda hosts: hosts.restart_media(hosts.b),
}


def test_each_piece_may_die_once(hosts: Hosts) -> None:
    fresh_frames(hosts.b, 0, 5)
    for name, restart in RESTARTS.items():
        started = time.monotonic()
        restart(hosts)
        taken = fresh_frames(hosts.b, time.time_ns(), 5)
        assert taken == sorted(set(taken)), f"{name}: frames came twice or out of order"
        print(f"{name}: {time.monotonic() - started:.1f} s")
    for bridge in hosts.bridges.values():
        assert bridge.exit_code is None


def test_a_bridge_says_what_it_does(hosts: Hosts) -> None:
    fresh_frames(hosts.b, 0, 5)
    status = hosts.b.start("bridge", "status", "--format", "jsonl", "--interval", "0.5")
    line = status.read_line()
    assert f'"source":{SOURCE}' in line.replace(" ", "")
    assert '"side":"receive"' in line.replace(" ", "")

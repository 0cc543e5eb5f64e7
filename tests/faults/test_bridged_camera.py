"""A large camera on one host, its viewer and its recorder on another: each piece dies once and comes back."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridges import DEST, SOURCE, end_of_bridge
from pool_hosts import QUICK
from tensor_pool.pipeline.record.verify import Checked, verify
from tensor_pool.testing import Cluster, Host, TwoHosts
from tensor_pool.testing.cluster import Process

pytestmark = pytest.mark.slow

WORDS = 1 << 20
"""Frames of 8 MiB."""

CAMERA = f"""
    due = time.monotonic()
    while True:
        try:
            with pool.producer({SOURCE}, dtype="uint64", shape=({WORDS},), slots=16) as out:
                while True:
                    with out.claim(({WORDS},), "uint64") as slot:
                        slot.array[:] = time.time_ns()
                    due = max(due + 1 / 30, time.monotonic())
                    time.sleep(max(0, due - time.monotonic()))
        except tp.TensorPoolError:
            time.sleep(0.1)
            try:
                pool = tp.connect(config=config)
            except tp.TensorPoolError:
                pass
"""
"""30 frames a second; each says everywhere when it was taken."""

VIEWER = f"""
    while True:
        try:
            for frame in pool.consumer({DEST}, wait_s=60):
                with frame as values:
                    taken, is_whole = int(values[0]), bool((values[::509] == values[0]).all())
                print(taken, is_whole)
        except tp.FrameOverwrittenError:
            pass
        except tp.TensorPoolError:
            time.sleep(0.1)
            try:
                pool = tp.connect(config=config)
            except tp.TensorPoolError:
                pass
"""


class Studio:
    """Two hosts with all that runs on them."""

    def __init__(self, hosts: TwoHosts, directory: Path) -> None:
        self.a, self.b = hosts
        self._recording = directory / "recording"
        self._files: dict[Cluster, Path] = {}
        endpoints = [f"{self.b.address}:{port}" for port in (20121, 20122, 20123)]
        for host, role in ((self.a, "sender"), (self.b, "receiver")):
            self._files[host] = directory / f"{role}.toml"
            self._files[host].write_text(textwrap.dedent(end_of_bridge(role, *endpoints)))
        self.bridges = {host: self._start_bridge(host) for host in (self.a, self.b)}
        self.camera = self.a.run_python(CAMERA)
        self.viewer = self.b.run_python(VIEWER)
        self.recorder = self._start_recorder()

    def _start_bridge(self, host: Host) -> Process:
        bridge = host.start("bridge", "run", "--config", str(self._files[host]))
        bridge.read_line()
        return bridge

    def _start_recorder(self) -> Process:
        keep = ("--keep-mib", "2048", "--segment-mib", "256")
        return self.b.start("record", str(DEST), "--out", str(self._recording), *keep)

    def restart_camera(self) -> None:
        self.camera.kill()
        self.camera = self.a.run_python(CAMERA)

    def restart_viewer(self) -> None:
        self.viewer.kill()
        self.viewer = self.b.run_python(VIEWER)

    def restart_recorder(self) -> None:
        self.recorder.kill()
        self.recorder = self._start_recorder()

    def restart_bridge(self, host: Host) -> None:
        self.bridges[host].kill()
        self.bridges[host] = self._start_bridge(host)

    def restart_driver(self, host: Host) -> None:
        assert host.driver is not None
        host.driver.kill()
        host.start_driver()

    def restart_media(self, host: Host) -> None:
        assert host.driver is not None
        host.media.kill()
        host.driver.kill()
        host.start_media()
        host.start_driver()

    def see(self, since_ns: int, count: int) -> list[int]:
        """When the next frames were taken that the viewer sees, from one after `since_ns` on."""
        seen: list[int] = []
        while len(seen) < count:
            taken, is_whole = self.viewer.read_line(60).split()
            assert is_whole == "True", "a frame of two"
            if int(taken) > since_ns:
                seen.append(int(taken))
        return seen

    def end_recording(self) -> Checked:
        """What there is on the disk once the recorder has ended."""
        self.recorder.terminate()
        return verify(self._recording)


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    if reason := TwoHosts.why_not():
        pytest.skip(reason)
    with TwoHosts({**QUICK, "aeron.driver_timeout_ms": 2_000}) as hosts:
        yield Studio(hosts, tmp_path)


RESTARTS: dict[str, Callable[[Studio], None]] = {
    "camera": Studio.restart_camera,
    "viewer": Studio.restart_viewer,
    "recorder": Studio.restart_recorder,
    "sender": lambda studio: studio.restart_bridge(studio.a),
    "receiver": lambda studio: studio.restart_bridge(studio.b),
    "driver of the camera": lambda studio: studio.restart_driver(studio.a),
    "driver of the viewer": lambda studio: studio.restart_driver(studio.b),
    "media driver of the camera": lambda studio: studio.restart_media(studio.a),
    "media driver of the viewer": lambda studio: studio.restart_media(studio.b),
}


def test_each_piece_may_die_once(studio: Studio) -> None:
    studio.see(0, 30)
    for name, restart in RESTARTS.items():
        started, restarted_ns = time.monotonic(), time.time_ns()
        restart(studio)
        seen = studio.see(restarted_ns, 30)
        assert seen == sorted(set(seen)), f"{name}: frames came twice or out of order"
        rate_hz = 29 / ((seen[-1] - seen[0]) / 1e9)
        print(f"{name}: {time.monotonic() - started:.1f} s until 30 frames, {rate_hz:.1f} Hz")
    assert all(bridge.exit_code is None for bridge in studio.bridges.values())
    studio.restart_recorder()  # which ends with its media driver
    studio.see(time.time_ns(), 60)
    recorded = studio.end_recording()
    print(recorded)
    assert recorded.frames >= 60
    assert not recorded.flaws

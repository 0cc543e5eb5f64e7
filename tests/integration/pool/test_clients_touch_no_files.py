"""Clients open what they are told to open. They make, cut and remove nothing, and look for nothing."""

from __future__ import annotations

import ctypes
import inspect
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreign_driver import ForeignDriver
from pool_hosts import epochs_of, quick_host
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until

EVENTS = {
    "access": 0x1,
    "modify": 0x2,
    "attrib": 0x4,
    "open": 0x20,
    "moved_from": 0x40,
    "moved_to": 0x80,
    "create": 0x100,
    "delete": 0x200,
}
_IS_DIRECTORY = 0x40000000


class Watch:
    """What the kernel says happens to some directories (inotify)."""

    def __init__(self, *directories: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for directory in directories:
            assert libc.inotify_add_watch(self._fd, str(directory).encode(), sum(EVENTS.values())) >= 0

    def take(self) -> list[tuple[str, str]]:
        """Events with the names of their files; those of directories as such have a slash."""
        found = []
        try:
            while data := os.read(self._fd, 65_536):
                at = 0
                while at < len(data):
                    _, mask, _, length = struct.unpack_from("iIII", data, at)
                    name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
                    kind = next(event for event, bit in EVENTS.items() if mask & bit)
                    found.append((kind, name + "/" if mask & _IS_DIRECTORY else name))
                    at += 16 + length
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def bare_host() -> Iterator[Cluster]:
    with quick_host(driver=False) as cluster:
        yield cluster


PROGRAM = """
    out = pool.producer(10_000)
    inp = pool.consumer(10_000, wait_s=5)
    copies = pool.consumer(10_000, copy_mode=True, wait_s=5)
    for value in range(20):
        out.publish(np.full(4, value, "uint32"))
        assert inp.poll(timeout=5).copy()[0] == value
        assert copies.poll(timeout=5).copy()[0] == value
    with out.claim((4,), "uint32") as slot: slot.array[:] = 1
    time.sleep(0.5)
    inp.close(); copies.close(); out.close(); pool.close()
    print("done")
"""


@pytest.mark.req("DRV-2.2-1", "DRV-2.2-3", "DRV-2.3-2", "WIRE-15.21a.4-3")
def test_a_whole_session_opens_the_announced_files_and_nothing_else(bare_host: Cluster) -> None:
    """Nothing is created, truncated, renamed or removed, and no directory is read."""
    with ForeignDriver(bare_host) as driver:
        region = driver.base / "epoch-1"
        watch = Watch(driver.base, region)
        program = bare_host.run_python(PROGRAM, driver=False)
        assert program.read_line() == "done", program.errors()
        program.wait()
        events = watch.take()
        watch.close()
    assert ("open", "header.ring") in events, "the watch sees what happens"
    assert {name for kind, name in events if kind == "open" and not name.endswith("/")} == {
        "header.ring",
        "1.pool",
    }
    assert not [event for event in events if event[0] not in ("open", "access")]
    assert not [event for event in events if event[0] == "access" and event[1].endswith("/")]


@pytest.mark.req("DRV-3-1")
def test_files_come_and_go_with_the_driver_alone(bare_host: Cluster) -> None:
    """While the driver is stopped nothing changes, whatever clients do; as soon as it goes on, it does."""
    bare_host.start_driver()
    base = Path(str(bare_host.settings["shm.shm_base_dir"]))

    def files() -> dict[str, tuple[int, int]]:
        found = (path for path in base.glob("tensorpool-*/*/[0-9]*/**/*") if path.is_file())
        return {str(path): (path.stat().st_ino, path.stat().st_size) for path in found}

    with bare_host.connect() as pool:
        out = pool.producer("camera-1", max_bytes=4096, slots=8)
        inp = pool.consumer("camera-1", wait_s=5)
        stream_id, epoch = out.stream_id, out.epoch
        before = files()
        assert len(before) == 2
        bare_host.driver.stop()
        out.publish(b"abc")
        inp.poll(timeout=5).copy()
        inp.close()
        out.close()
        assert files() == before
        bare_host.driver.go_on()
        wait_until(lambda: epochs_of(bare_host)[stream_id] != [epoch], what="the driver cleans up")


@pytest.mark.req("DRV-3-5")
def test_nobody_can_say_where_regions_go() -> None:
    """Neither producers nor consumers have a parameter for it; the driver's answer names every file."""
    for method in (Pool.producer, Pool.consumer):
        # A fallback is a channel, never a file.
        names = set(inspect.signature(method).parameters) - {"fallback_uri"}
        assert not [name for name in names if any(word in name for word in ("path", "dir", "uri", "file"))]
    with quick_host() as host, host.connect() as pool:
        out = pool.producer("camera-1", max_bytes=4096, slots=8)
        lease = out._session.attachment.lease
        assert out._session.writer.address.header_uri == lease.announce.header_region_uri
        base = str(host.settings["shm.shm_base_dir"])
        assert f"path={base}/" in lease.announce.header_region_uri

"""Doorbells as file descriptors."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from forking import forks
from tensor_pool import _native, errors
from tensor_pool.testing import wait_until

LONG_S = 20.0
LONG_NS = 60_000_000_000


@pytest.fixture
def watcher():
    with _native.BellWatcher(look_interval_ns=LONG_NS) as watcher:
        yield watcher


def readable(bell: _native.BellFd, timeout_s: float = LONG_S) -> bool:
    return bool(select.select([bell], [], [], timeout_s)[0])


def drained(reader: _native.RingReader) -> list[int]:
    frames = iter(reader.poll, None)
    return [frame.seq for frame in frames]


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_a_publish_makes_it_readable_until_cleared(make_ring, watcher, mode):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader(mode)
    assert reader.poll() is None
    bell = watcher.watch(reader)

    def rests() -> bool:
        """A writer may ring once more than it has frames, before one is complete (ADR 9)."""
        bell.clear()
        assert reader.poll() is None
        return not readable(bell, 0.02)

    for seq in range(5):
        wait_until(rests)
        writer.publish(b"x")
        assert readable(bell)
        bell.clear()
        assert drained(reader) == [seq]


def test_one_descriptor_of_the_caller_over_several_readers(make_ring, watcher):
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        for _ in range(3):
            ring = make_ring()
            writer, reader = ring.writer(), ring.reader()
            assert reader.poll() is None
            bell = watcher.watch(reader, fd)
            assert bell.fileno() != fd
            assert not select.select([fd], [], [], 0.01)[0]
            writer.publish(b"x")
            assert select.select([fd], [], [], LONG_S)[0] == [fd]
            bell.clear()
            assert not select.select([fd], [], [], 0)[0]
            bell.close()
        os.eventfd_write(fd, 1)
        assert os.eventfd_read(fd) == 1, "the caller's is still open"
    finally:
        os.close(fd)


def test_only_events_that_never_block_are_rung(make_ring, watcher):
    reader = make_ring().reader()
    blocking = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        with pytest.raises(ValueError, match="EFD_NONBLOCK"):
            watcher.watch(reader, blocking)
        with Path("/dev/null").open("wb") as file, pytest.raises(ValueError, match="not an eventfd"):
            watcher.watch(reader, fd=file.fileno())
        with pytest.raises(ValueError, match="negative"):
            watcher.watch(reader, -1)
    finally:
        os.close(blocking)
    with pytest.raises(errors.TransportError, match="Bad file descriptor"):
        watcher.watch(reader, 1_000_000)


def test_what_came_before_watching_is_not_missed(make_ring, watcher):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    assert reader.poll() is None
    writer.publish(b"x")
    bell = watcher.watch(reader)
    assert readable(bell)


def test_each_ring_has_its_own(make_ring, watcher):
    rings = [make_ring() for _ in range(5)]
    writers, readers = [ring.writer() for ring in rings], [ring.reader() for ring in rings]
    assert [reader.poll() for reader in readers] == [None] * 5
    bells = [watcher.watch(reader) for reader in readers]
    writers[3].publish(b"x")
    assert readable(bells[3])
    assert select.select(bells, [], [], 0)[0] == [bells[3]]


def test_producers_that_never_ring_are_found_too(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    assert reader.poll() is None
    with _native.BellWatcher(look_interval_ns=2_000_000) as watcher:
        bell = watcher.watch(reader)
        for seq in range(10):
            writer.publish(b"x", ring=False)
            assert readable(bell)
            bell.clear()
            assert drained(reader) == [seq]
        assert not readable(bell, 0.05)


def test_no_frame_is_lost_at_full_speed(make_ring, watcher):
    ring = make_ring(nslots=1024, strides=(64,))
    writer, reader = ring.writer(), ring.reader()
    bell = watcher.watch(reader)
    count = 5_000

    def publish() -> None:
        for number in range(count):
            writer.publish(np.array([number]))
            if number % 100 == 0:
                time.sleep(0.001)

    thread = threading.Thread(target=publish)
    thread.start()
    seen: list[int] = []
    while not seen or seen[-1] != count - 1:
        assert readable(bell), "a bell was missed"
        bell.clear()
        seen += drained(reader)
    thread.join()
    assert len(seen) + reader.gaps + reader.late >= count
    assert seen == sorted(set(seen))


def test_event_loops_take_it(make_ring, watcher):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    assert reader.poll() is None
    bell = watcher.watch(reader)

    async def first() -> int:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[int] = loop.create_future()

        def on_bell() -> None:
            bell.clear()
            frame = reader.poll()
            if frame is not None and not found.done():
                found.set_result(frame.seq)

        loop.add_reader(bell.fileno(), on_bell)
        loop.call_later(0.02, writer.publish, b"x")
        try:
            return await asyncio.wait_for(found, LONG_S)
        finally:
            loop.remove_reader(bell.fileno())

    assert asyncio.run(first()) == 0


class TestEnds:
    def test_closing_a_bell(self, make_ring, watcher):
        bell = watcher.watch(make_ring().reader())
        fd = bell.fileno()
        bell.close()
        bell.close()
        assert bell.closed
        for use in (bell.fileno, bell.clear):
            with pytest.raises(errors.ClosedError):
                use()
        deadline = time.monotonic() + LONG_S
        while Path(f"/proc/self/fd/{fd}").exists():
            assert time.monotonic() < deadline, "the file descriptor leaks"
            time.sleep(0.001)

    def test_closing_the_watcher_wakes_everybody(self, make_ring, watcher):
        reader = make_ring().reader()
        assert reader.poll() is None
        bell = watcher.watch(reader)
        assert not readable(bell, 0.01)
        watcher.close()
        watcher.close()
        assert watcher.closed
        assert readable(bell)
        with pytest.raises(errors.ClosedError):
            watcher.watch(reader)
        bell.clear()
        bell.close()

    def test_closing_the_reader_first(self, make_ring, watcher):
        reader = make_ring().reader()
        bell = watcher.watch(reader)
        reader.close()
        with pytest.raises(errors.ClosedError):
            watcher.watch(reader)
        bell.close()

    def test_forgetting_everything_leaks_nothing(self, make_ring):
        def count() -> int:
            return sum(1 for _ in Path("/proc/self/fd").iterdir())

        ring = make_ring()
        gc.collect()  # what other tests forgot is not ours to count
        before = count()
        for _ in range(20):
            watcher = _native.BellWatcher()
            bells = [watcher.watch(ring.reader()) for _ in range(5)]
            del bells, watcher
        gc.collect()
        assert count() == before

    @forks
    def test_a_forked_child_gets_errors(self, make_ring, watcher):
        reader = make_ring().reader()
        bell = watcher.watch(reader)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: watcher.watch(reader), watcher.close, bell.clear, bell.close):
                try:
                    use()
                except errors.ForkedProcessError:
                    refused += 1
            del use, bell, watcher
            gc.collect()
            os._exit(0 if refused == 4 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not watcher.closed

    def test_the_interpreter_ends_with_a_live_watcher(self, make_ring):
        script = """
import sys, tempfile
from tensor_pool._native import *
with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
    address = create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 4096)])
    reader = RingReader(address, base_dirs=[directory])
sys.keep = (watcher := BellWatcher(look_interval_ns=1_000), watcher.watch(reader))
print("done")
"""
        result = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def thread_named(name: str) -> Path | None:
    tasks = Path("/proc/self/task").iterdir()
    return next((task for task in tasks if (task / "comm").read_text().strip() == name), None)


def test_an_idle_watcher_costs_next_to_nothing(make_ring):
    with _native.BellWatcher() as watcher:
        readers = [make_ring(nslots=1024, strides=(64,)).reader() for _ in range(8)]
        for reader in readers:
            reader.poll()
        bells = [watcher.watch(reader) for reader in readers]
        thread = wait_until(lambda: thread_named("tp-bells"), what="the watcher names its thread")

        def cpu_s() -> float:
            return int((thread / "schedstat").read_text().split()[0]) / 1e9

        assert not readable(bells[0], 0.1)
        before = cpu_s()
        time.sleep(1.0)
        share = cpu_s() - before
    print(f"idle watcher of {len(bells)} rings: {100 * share:.2f} % of a core")
    assert share < 0.05

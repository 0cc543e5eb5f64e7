"""Showing that a ring is alive, and preparing its memory."""

from __future__ import annotations

import os
import resource
import threading
import time

import numpy as np
import pytest

from forking import forks
from tensor_pool import _native, errors

ACTIVITY_AT = 56


@pytest.fixture
def ring(make_ring):
    return make_ring(nslots=4, strides=(4096, 65536))


def activities(ring) -> list[int]:
    names = ("header.ring", "1.pool", "2.pool")
    raw = [(ring.directory / name).read_bytes()[ACTIVITY_AT : ACTIVITY_AT + 8] for name in names]
    return [int.from_bytes(activity, "little") for activity in raw]


def test_every_file_is_said_to_be_alive_and_nobody_is_woken(ring):
    with _native.RingKeeper(ring.address, base_dirs=[ring.directory]) as keeper, ring.reader() as reader:
        assert keeper.address == ring.address
        assert reader.poll() is None
        for _ in range(3):
            before = time.monotonic_ns()
            keeper.refresh()
            assert all(before <= activity <= time.monotonic_ns() for activity in activities(ring))
            assert reader.liveness()[1] >= before


def test_time_stamps_never_go_back(ring):
    keeper = _native.RingKeeper(ring.address, base_dirs=[ring.directory])
    ahead = time.monotonic_ns() + 10**15
    with (ring.directory / "1.pool").open("r+b") as pool:
        pool.seek(ACTIVITY_AT)
        pool.write(ahead.to_bytes(8, "little"))
    keeper.refresh()
    assert activities(ring)[1] == ahead


def test_no_file_stays_open(ring):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number matters
    keepers = [_native.RingKeeper(ring.address, base_dirs=[ring.directory]) for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert not any(keeper.closed for keeper in keepers)


def test_a_file_that_is_cut_off_is_an_error(ring):
    keeper = _native.RingKeeper(ring.address, base_dirs=[ring.directory])
    os.truncate(ring.directory / "2.pool", 0)
    with pytest.raises(errors.RegionError, match="cut off"):
        keeper.refresh()


def test_what_it_can_not_open_is_refused(ring, tmp_path):
    with pytest.raises(errors.RegionError):
        _native.RingKeeper(ring.address, base_dirs=[tmp_path])
    (ring.directory / "1.pool").unlink()
    with pytest.raises(errors.RegionError):
        _native.RingKeeper(ring.address, base_dirs=[ring.directory])


def test_use_after_close_is_an_error(ring):
    keeper = _native.RingKeeper(ring.address, base_dirs=[ring.directory])
    keeper.close()
    keeper.close()
    assert keeper.closed
    with pytest.raises(errors.ClosedError, match="ring keeper"):
        keeper.refresh()


@forks
def test_a_forked_child_may_not_use_it(ring):
    keeper = _native.RingKeeper(ring.address, base_dirs=[ring.directory])
    child = os.fork()
    if child == 0:
        try:
            keeper.refresh()
        except errors.ForkedProcessError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    keeper.refresh()


class TestPrefault:
    def test_no_page_is_left_for_the_first_frames(self, make_ring):
        """Of pools that are made present in several pieces, the last of which is a small one."""
        writer = make_ring(nslots=8, strides=(4 << 20,)).writer()
        writer.prefault()
        frame = np.ones(4 << 20, "u1")
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for _ in range(8):
            writer.publish(frame)
        touched = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        assert touched < 50, "8 frames have 8,192 pages"

    def test_publishing_goes_on_meanwhile(self, make_ring):
        writer = make_ring(nslots=64, strides=(1 << 20,), allocate=False).writer()
        thread = threading.Thread(target=writer.prefault)
        thread.start()
        for _ in range(100):
            writer.publish(np.ones(16, "u1"))
        thread.join()
        assert writer.next_seq == 100

    def test_memory_that_is_not_there_is_told(self, make_ring):
        ring = make_ring(nslots=64)
        writer = ring.writer()
        os.truncate(ring.directory / "1.pool", 4096)
        with pytest.raises(errors.RegionFullError, match="no memory for all") as caught:
            writer.prefault()
        assert "df -h" in caught.value.hint

    def test_locked_pages_count_against_the_limit(self, ring):
        writer = ring.writer()
        soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        writer.prefault(lock=False)
        if hard != resource.RLIM_INFINITY and hard < 1 << 20:
            pytest.skip("the limit of locked memory is too low here")
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
        try:
            writer.prefault(lock=True)
        finally:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))
        assert writer.publish(b"x") == 0

    def test_a_limit_that_is_too_low_is_an_error_with_a_hint(self, make_ring, run_limited):
        ring = make_ring(nslots=64, strides=(1 << 20,), allocate=False)
        outcome = run_limited(
            f"""
from tensor_pool import _native, errors
address = {address_expression(ring.address)}
writer = _native.RingWriter(address, base_dirs=[{str(ring.directory)!r}])
try:
    writer.prefault(lock=True)
except errors.RegionError as error:
    assert "can't be locked" in str(error) and "ulimit -l" in error.hint
    print("refused")
"""
        )
        assert outcome == "refused\n"


def address_expression(address: _native.RingAddress) -> str:
    return (
        f"_native.RingAddress(stream_id={address.stream_id}, epoch={address.epoch}, nslots={address.nslots},"
        f" header_uri={address.header_uri!r}, pools={address.pools!r})"
    )


@pytest.fixture
def run_limited():
    """Runs a script that may lock next to nothing, whoever runs it."""
    import subprocess
    import sys

    def run(code: str) -> str:
        # Root is not bound by limits; whoever may not lock memory at all is.
        limits = "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))\n"
        drop = "import os\nif os.getuid() == 0:\n    os.setgid(65534)\n    os.seteuid(65534)\n"
        result = subprocess.run(
            [sys.executable, "-c", code.replace("try:", f"{limits}{drop}try:", 1)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run

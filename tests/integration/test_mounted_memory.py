"""Rings on file systems that tests mount: huge pages, and memory that is too small."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pool_hosts import Ear, quick_host
from tensor_pool import _native, errors
from tensor_pool.testing import wait_until

HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@contextmanager
def mounted(kind: str, options: str, at: Path):
    at.mkdir()
    subprocess.run(["mount", "-t", kind, "-o", options, "none", at], check=True)
    try:
        yield at
    finally:
        # Views may keep files busy for a moment; a lazy unmount waits for them.
        subprocess.run(["umount", "--lazy", at], check=True)


@pytest.fixture
def hugetlbfs(tmp_path):
    before = HUGE_PAGES.read_text()
    wanted = int(before) + 24
    HUGE_PAGES.write_text(str(wanted))
    try:
        if int(HUGE_PAGES.read_text()) < wanted:
            pytest.skip("the kernel finds no room for huge pages")
        with mounted("hugetlbfs", "pagesize=2M", tmp_path / "huge") as directory:
            yield directory
    finally:
        HUGE_PAGES.write_text(before)


@needs_root
@pytest.mark.req("WIRE-15.22-7", "WIRE-15.22-8")
def test_rings_on_huge_pages(hugetlbfs):
    address = _native.create_ring(
        hugetlbfs, stream_id=1, epoch=1, nslots=4, pools=[(1, 1 << 20)], require_hugepages=True
    )
    assert address.header_uri.endswith("|require_hugepages=true")
    assert {path.stat().st_size % (2 << 20) for path in hugetlbfs.iterdir()} == {0}
    writer = _native.RingWriter(address, base_dirs=[hugetlbfs])
    writer.prefault()
    readers = [_native.RingReader(address, base_dirs=[hugetlbfs], mode=mode) for mode in ("map", "copy")]
    for n in range(6):
        writer.publish(np.full(1 << 20, n, "u1"))
    for reader in readers:
        reader.seek(5)
        frame = reader.poll()
        assert (frame.seq, int(frame.array.min()), int(frame.array.max())) == (5, 5, 5)
        assert not reader.wait(0.001)
        reader.close()


@needs_root
@pytest.mark.req("WIRE-15.22-7", "WIRE-15.22-8")
def test_a_driver_serves_and_starts_again_on_huge_pages(hugetlbfs):
    base = hugetlbfs / "pool"
    base.mkdir(mode=0o700)
    with quick_host(shm__shm_base_dir=str(base)) as host, host.connect() as pool:
        out = pool.producer("camera-1", dtype="uint8", shape=(1 << 20,), slots=2, hugepages=True)
        (ring,) = base.glob("tensorpool-*/default/*/*/1.pool")
        assert ring.stat().st_size % (2 << 20) == 0
        follower = host.run_python(
            """
            inp = pool.consumer("camera-1")
            print("ready")
            for frame in inp:
                print(frame.copy().max(), frame.info.epoch)
            """
        )
        assert follower.read_line() == "ready"
        wait_until(lambda: out.stats.consumers)
        out.publish(np.full(1 << 20, 3, "uint8"))
        assert follower.read_line() == f"3 {out.epoch}"
        stream_id, before = out.stream_id, out.epoch
        host.driver.kill()
        host.start_driver()
        wait_until(lambda: out.epoch not in (None, before))
        assert (out.stream_id, out.epoch > before) == (stream_id, True)
        with Ear(host) as ear, ear.admin() as admin:
            assert [stream.name for stream in admin.streams()] == ["camera-1"]
            assert admin.status().free_bytes is None


@needs_root
def test_too_few_huge_pages_are_refused_at_creation(hugetlbfs):
    with pytest.raises(errors.RegionFullError, match="no room"):
        _native.create_ring(
            hugetlbfs, stream_id=1, epoch=1, nslots=1024, pools=[(1, 1 << 30)], require_hugepages=True
        )
    assert list(hugetlbfs.iterdir()) == []


@needs_root
def test_sparse_files_that_can_not_be_filled_are_told_before_the_first_frame(tmp_path):
    with mounted("tmpfs", "size=1m", tmp_path / "small") as small:
        address = _native.create_ring(
            small, stream_id=1, epoch=1, nslots=16, pools=[(1, 1 << 20)], allocate=False
        )
        with _native.RingWriter(address, base_dirs=[small]) as writer:
            with pytest.raises(errors.RegionFullError, match="no memory for all") as caught:
                writer.prefault()
            assert "fewer or smaller slots" in caught.value.hint


@needs_root
@pytest.mark.parametrize("megabytes", [1, 8])
def test_a_full_file_system_is_refused_at_creation_and_nothing_is_left(tmp_path, megabytes):
    with mounted("tmpfs", f"size={megabytes}m", tmp_path / "small") as small:
        with pytest.raises(errors.RegionFullError, match="no room") as caught:
            _native.create_ring(small, stream_id=1, epoch=1, nslots=16, pools=[(1, 1 << 10), (2, 1 << 20)])
        assert "fewer or smaller slots" in caught.value.hint
        assert list(small.iterdir()) == []
        address = _native.create_ring(small, stream_id=1, epoch=1, nslots=16, pools=[(1, 1 << 14)])
        # Whatever fills the rest: the ring's memory is its own already.
        with pytest.raises(OSError, match="No space left"):
            (small / "filler").write_bytes(bytes(megabytes << 20))
        writer = _native.RingWriter(address, base_dirs=[small])
        reader = _native.RingReader(address, base_dirs=[small])
        for n in range(32):
            writer.publish(np.full(1 << 14, n, "u1"))
            with reader.poll() as array:
                assert int(array[-1]) == n


@needs_root
def test_a_sparse_ring_on_a_full_file_system_is_refused_too(tmp_path):
    """Its superblocks are written at once, and a store without a page behind it would kill the process."""
    with mounted("tmpfs", "size=1m", tmp_path / "small") as small:
        with pytest.raises(OSError, match="No space left"):
            (small / "filler").write_bytes(bytes(2 << 20))
        with pytest.raises(errors.RegionFullError, match="no room"):
            _native.create_ring(small, stream_id=1, epoch=1, nslots=16, pools=[(1, 64)], allocate=False)
        assert [path.name for path in small.iterdir()] == ["filler"]


@needs_root
def test_no_inode_left_is_refused_with_nothing_left(tmp_path):
    with mounted("tmpfs", "size=8m,nr_inodes=3", tmp_path / "few") as few:
        with pytest.raises(errors.RegionError):
            _native.create_ring(few, stream_id=1, epoch=1, nslots=2, pools=[(n, 64) for n in range(1, 9)])
        assert list(few.iterdir()) == []


@pytest.mark.req("WIRE-15.16a-1")
def test_an_ordinary_file_system_works_too(tmp_path):
    address = _native.create_ring(tmp_path, stream_id=1, epoch=1, nslots=4, pools=[(1, 4096)])
    writer = _native.RingWriter(address, base_dirs=[tmp_path])
    reader = _native.RingReader(address, base_dirs=[tmp_path])
    writer.publish(b"on disk")
    assert bytes(reader.poll()) == b"on disk"

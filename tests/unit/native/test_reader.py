"""Following a ring: polling, waiting, gaps, drops, files that change."""

from __future__ import annotations

import copy
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tensor_pool import _native, errors
from tensor_pool.wire.shm import decode_superblock

SEQ_COMMIT = 0
HEADER_LENGTH = 60


def spoil(ring, slot: int, offset: int, value: bytes) -> None:
    with (ring.directory / "header.ring").open("r+b") as file:
        file.seek(64 + 256 * slot + offset)
        file.write(value)


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_frames_come_in_order_and_gaps_are_counted(make_ring, mode):
    ring = make_ring(nslots=8)
    writer, reader = ring.writer(), ring.reader(mode)
    assert reader.poll() is None
    for n in range(5):
        writer.publish(bytes([n]))
    assert [reader.poll().seq for _ in range(5)] == [0, 1, 2, 3, 4]
    assert (reader.poll(), reader.gaps, reader.next_seq) == (None, 0, 5)
    for n in range(20):
        writer.publish(bytes([n]))
    taken = [reader.poll().seq for _ in range(5)]
    assert taken == [20, 21, 22, 23, 24]
    assert (reader.poll(), reader.gaps, reader.drops) == (None, 15, {})


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_a_bad_frame_is_counted_by_reason_and_passed_over(make_ring, mode):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader(mode)
    for n in range(3):
        writer.publish(bytes([n]))
    spoil(ring, 1, HEADER_LENGTH, (191).to_bytes(4, "little"))
    assert [reader.poll().seq, reader.poll().seq, reader.poll()] == [0, 2, None]
    assert (reader.drops, reader.late, reader.gaps) == ({"header_length": 1}, 0, 0)
    assert set(reader.drops) < set(_native.DROP_REASONS)


@pytest.mark.req("WIRE-10.2.1-12", "WIRE-8.2-9", "WIRE-8.3-17", "WIRE-15.3-1")
def test_read_takes_exactly_the_frame_asked_for(make_ring):
    ring = make_ring(nslots=8)
    writer, reader = ring.writer(), ring.reader()
    for n in range(20):
        writer.publish(bytes([n]))
    assert bytes(reader.read(19)) == b"\x13"
    assert (reader.newest(), reader.oldest()) == (19, 12)
    assert [reader.read(seq) for seq in (11, 27, 20)] == [None, None, None]
    assert reader.drops == {"overwritten": 1, "stale": 2}
    spoil(ring, 19 % 8, SEQ_COMMIT, (3 << 1 | 1).to_bytes(8, "little"))
    assert reader.read(19) is None, "a slot that went back is stale"
    assert reader.drops["stale"] == 3


@pytest.mark.req("WIRE-10.2.1-11")
def test_shape_and_type_come_from_the_slot_alone(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    arrays = [np.zeros((2, 3), "u1"), np.ones(5, "f8"), np.zeros((1, 2, 1), "i4")]
    for array in arrays:
        writer.publish(array)
    for seq, array in enumerate(arrays):
        frame = reader.read(seq)  # all that a descriptor says of a frame is its number
        assert (frame.shape, frame.dtype) == (array.shape, array.dtype.name)
        np.testing.assert_array_equal(frame.array, array)


@pytest.mark.req("WIRE-15.4-1")
def test_a_consumer_that_stopped_never_holds_up_the_producer(make_ring):
    ring = make_ring(nslots=4)
    writer, reader = ring.writer(), ring.reader()
    writer.publish(b"held")
    held = reader.poll()
    for _ in range(400):
        writer.publish(b"next")
    assert writer.next_seq == 401
    assert not held.still_valid()


def test_seek(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    for n in range(6):
        writer.publish(bytes([n]))
    reader.seek(reader.newest())
    assert (reader.poll().seq, reader.poll(), reader.gaps) == (5, None, 0)
    reader.seek(2)
    assert reader.poll().seq == 2


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_a_ring_full_of_lies_costs_a_poll_no_time(make_ring, mode):
    ring = make_ring(nslots=1 << 16, strides=(64,), allocate=False)
    reader = ring.reader(mode)
    slots = np.memmap(ring.directory / "header.ring", "u8", "r+", offset=64, shape=(1 << 16, 32))
    slots[:, 0] = (np.arange(1 << 16, dtype="u8") + (1 << 40)) << np.uint64(1)
    start = time.process_time()
    assert reader.poll() is None
    assert time.process_time() - start < 2, "a handful of searches, not one a slot"


@pytest.mark.parametrize("shape", [(2**31 - 1, 2**31 - 1, 2**31 - 1, 0)])
def test_shapes_that_nobody_can_address_are_dropped(make_ring, shape):
    ring = make_ring()
    ring.writer().publish(np.zeros((1, 1, 1, 0), "u1"))
    spoil(ring, 0, 72 + 11, struct.pack("<4i", *shape))
    spoil(ring, 0, 72 + 43, bytes(16))
    reader = ring.reader()
    assert reader.poll() is None
    assert reader.drops == {"extent_beyond_values": 1}


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_looking_for_a_frame_takes_and_counts_nothing(make_ring, mode):
    ring = make_ring(nslots=4)
    writer, reader = ring.writer(), ring.reader(mode)
    assert not reader.has_next()
    for _ in range(10):
        writer.publish(b"x")
    assert reader.has_next()
    assert (reader.next_seq, reader.gaps, reader.drops) == (0, 0, {})
    found = 0
    while reader.has_next():
        assert reader.poll() is not None
        found += 1
    assert (found, reader.poll()) == (3, None)
    writer.ring()
    assert not reader.has_next()
    assert not reader.wait(0.01), "a ring for nothing ends one look, not every wait"
    reader.close()
    with pytest.raises(errors.ClosedError):
        reader.has_next()


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_waiting_ends_when_the_producer_rings(make_ring, mode):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader(mode)
    assert reader.poll() is None
    assert not reader.wait(0.01)
    publisher = threading.Timer(0.05, writer.publish, (b"x",))
    start = time.monotonic()
    publisher.start()
    assert reader.wait(60)
    assert time.monotonic() - start < 30
    publisher.join()
    assert reader.poll().seq == 0
    writer.publish(b"y")
    assert reader.wait(60), "a ring before the wait counts"


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_spinning_before_sleeping(make_ring, mode):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader(mode)
    assert reader.poll() is None
    start = time.monotonic()
    assert not reader.wait(0.02, spin=60)
    assert 0.02 <= time.monotonic() - start < 10, "the time-out bounds both"
    assert not reader.wait(0.02, spin=0.001)
    writer.ring(wake=0)
    assert reader.wait(60, spin=0.01), "seen though nobody was woken"
    assert reader.poll() is None
    timer = threading.Timer(0.05, writer.ring, (0,))
    timer.start()
    assert reader.wait(60, 30)
    assert reader.poll() is None
    timer.join()
    readers = [reader, ring.reader(mode)]
    assert [reader.poll() for reader in readers] == [None, None]
    assert not _native.wait_any(readers, 0.01, spin=0.002)
    writer.publish(b"x")
    assert _native.wait_any(readers, 60, spin=60)
    with pytest.raises(ValueError, match="spin is not a number"):
        reader.wait(1.0, float("nan"))


def test_waiting_on_many_rings(make_ring):
    rings = [make_ring() for _ in range(5)]
    writers, readers = [r.writer() for r in rings], [r.reader() for r in rings]
    assert [reader.poll() for reader in readers] == [None] * 5
    assert not _native.wait_any(readers, 0.01)
    timer = threading.Timer(0.05, writers[3].publish, (b"x",))
    timer.start()
    assert _native.wait_any(readers, 60)
    timer.join()
    assert [reader.poll() is not None for reader in readers] == [False, False, False, True, False]
    assert not _native.wait_any([], 0.0)


def test_a_producer_that_never_rings_is_heard_after_the_time_out(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    assert reader.poll() is None
    with writer.claim((1,), 1, seq=5) as slot:
        slot.commit(ring=False)
    assert reader.poll() is None, "nobody rang, and the slot of seq 0 is empty"
    assert not reader.wait(0.001)
    assert reader.poll().seq == 5


def test_where_pools_are_mapped(make_ring):
    ring = make_ring(strides=(64, 4096))
    writer, reader = ring.writer(), ring.reader()
    mappings = {pool: (address, size) for pool, address, size in reader.payload_mappings()}
    assert {pool: size for pool, (_, size) in mappings.items()} == {1: 64 + 8 * 64, 2: 64 + 8 * 4096}
    for seq, size in enumerate([10, 1000]):
        writer.publish(bytes(size))
        frame = reader.poll()
        start, length = mappings[seq + 1]
        address = frame.array.__array_interface__["data"][0]
        assert start < address
        assert address + size <= start + length
    reader.close()
    address, size = mappings[2]
    maps = Path("/proc/self/maps").read_text()
    assert f"{address:x}-" in maps, "the frame keeps it mapped"
    assert ring.reader("copy").payload_mappings() == []
    with pytest.raises(errors.ClosedError):
        reader.payload_mappings()


def test_an_address_can_be_pickled_copied_and_hashed(make_ring):
    address = make_ring(strides=(64, 4096)).address
    others = [
        pickle.loads(pickle.dumps(address, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ]
    others += [copy.copy(address), copy.deepcopy(address)]
    assert all(other == address for other in others)
    assert len({address, make_ring().address, *others}) == 2


def test_one_base_directory_is_not_a_list(make_ring):
    ring = make_ring()
    for one in (str(ring.directory), ring.directory):
        for kind in (_native.RingReader, _native.RingWriter, _native.RingKeeper):
            with pytest.raises(TypeError, match="give a list"):
                kind(ring.address, base_dirs=one)


def test_changed_superblocks_are_noticed(make_ring):
    ring = make_ring()
    for mode in ("map", "copy"):
        reader = ring.reader(mode)
        reader.check_files()
        pid, activity = reader.liveness()
        assert pid > 0
        assert activity <= time.monotonic_ns()
    with (ring.directory / "1.pool").open("r+b") as file:
        file.write(b"\0")
    with pytest.raises(errors.RegionError, match="superblock field magic"):
        reader.check_files()
    with pytest.raises(errors.RegionError, match="magic"):
        ring.reader()


@pytest.mark.req("WIRE-7.1-3", "WIRE-7.1-4")
def test_only_the_activity_time_stamp_of_a_superblock_ever_changes(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    before = {path: path.read_bytes()[:64] for path in ring.directory.iterdir()}
    for _ in range(1000):
        writer.publish(b"x")
    activity = reader.liveness()[1]
    writer.refresh_activity()
    assert reader.liveness()[1] > activity
    for path, superblock in before.items():
        assert path.read_bytes()[:56] == superblock[:56]


def test_files_that_shrink_are_survived_in_copy_mode(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader("copy")
    writer.publish(np.ones(4096, "u1"))
    with (ring.directory / "1.pool").open("r+b") as file:
        file.truncate(1000)
    assert reader.poll() is None
    assert reader.drops == {"truncated": 1}
    with (ring.directory / "header.ring").open("r+b") as file:
        file.truncate(0)
    assert reader.poll() is None
    assert not reader.wait(0.01)
    assert (reader.newest(), reader.drops) == (None, {"truncated": 2})


@pytest.mark.req("WIRE-9-6")
def test_all_regions_of_a_ring_have_the_same_number_of_slots(make_ring):
    ring = make_ring(nslots=16, strides=(64, 4096, 128))
    superblocks = {p.name: decode_superblock(p.read_bytes()[:64]) for p in ring.directory.iterdir()}
    assert set(superblocks) == {"header.ring", "1.pool", "2.pool", "3.pool"}
    assert {superblock.nslots for superblock in superblocks.values()} == {16}


@pytest.mark.req("WIRE-15.21a.5-12")
@pytest.mark.parametrize("handle", [_native.RingReader, _native.RingWriter])
def test_nothing_is_mapped_without_base_directories(make_ring, handle):
    ring = make_ring()
    with pytest.raises(TypeError, match="base_dirs"):
        handle(ring.address)
    with pytest.raises(TypeError):
        handle(ring.address, base_dirs=None)
    with pytest.raises(errors.RegionError, match="base directory"):
        handle(ring.address, base_dirs=[])
    assert str(ring.directory) not in Path("/proc/self/maps").read_text()


def test_files_outside_the_base_directories_are_refused(make_ring, tmp_path):
    ring = make_ring()
    for cls in (_native.RingReader, _native.RingWriter):
        with pytest.raises(errors.RegionError, match="not below an allowed base directory") as caught:
            cls(ring.address, base_dirs=[tmp_path])
        assert "allowed base directories" in caught.value.hint


@pytest.mark.req("WIRE-15.22-16", "WIRE-15.22-18")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"header_uri": "shm:memfd?path=/a"}, "not a region URI"),
        ({"header_uri": ""}, "not a region URI"),
        ({"nslots": 3}, "power of two"),
        ({"nslots": 16}, "bytes, its geometry needs"),
        ({"nslots": 4}, "superblock field nslots"),
        ({"epoch": 6}, "superblock field epoch is 5, expected 6"),
        ({"stream_id": 1}, "superblock field stream_id"),
        ({"pools": []}, "0 payload pools"),
        ({"pools": [(1, 96, "shm:file?path=/x")]}, "64 times a power of two"),
    ],
)
def test_an_announce_that_lies_maps_nothing(make_ring, change, text):
    ring = make_ring()
    address = ring.address
    numbers = {
        name: getattr(address, name) for name in ("stream_id", "epoch", "nslots", "header_uri", "pools")
    }
    lie = _native.RingAddress(**{**numbers, **change})
    with pytest.raises(errors.RegionError, match=text):
        _native.RingReader(lie, base_dirs=[ring.directory])
    maps = Path("/proc/self/maps").read_text()
    assert str(ring.directory) not in maps


def test_create_ring_refuses_what_does_not_fit(tmp_path):
    with TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-") as directory:
        with pytest.raises(errors.RegionFullError, match="no room") as caught:
            _native.create_ring(directory, stream_id=1, epoch=1, nslots=1 << 20, pools=[(9999, 1 << 31)])
        assert "slots" in caught.value.hint
        assert list(Path(directory).iterdir()) == [], "nothing is left behind"
    address = _native.create_ring(tmp_path, stream_id=1, epoch=1, nslots=2, pools=[(1, 64)])
    with pytest.raises(errors.RegionError, match="exists"):
        _native.create_ring(tmp_path, stream_id=1, epoch=1, nslots=2, pools=[(1, 64)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.pool", "header.ring"]
    assert address == _native.RingAddress(
        stream_id=1, epoch=1, nslots=2, header_uri=address.header_uri, pools=address.pools
    )


def test_waiting_costs_no_cpu(make_ring):
    reader = make_ring().reader()
    assert reader.poll() is None
    cpu, wall = time.process_time(), time.monotonic()
    assert not reader.wait(0.5)
    assert (time.process_time() - cpu) / (time.monotonic() - wall) < 0.1


def test_a_mapped_file_that_shrinks_kills_who_touches_it(make_ring):
    """Why there is a copy mode, and why the documentation names the risk of the other."""
    ring = make_ring(strides=(1 << 16,))
    reader, pool = ring.reader(), ring.directory / "1.pool"
    code = (
        "import mmap, sys; file = open(sys.argv[1], 'r+b'); memory = mmap.mmap(file.fileno(), 0);"
        "file.truncate(64); memory[1 << 15]"
    )
    result = subprocess.run([sys.executable, "-c", code, pool], check=False)
    assert result.returncode == -signal.SIGBUS
    with pytest.raises(errors.RegionError, match="64 bytes, its geometry needs"):
        reader.check_files()  # looks at the file, not through the mapping

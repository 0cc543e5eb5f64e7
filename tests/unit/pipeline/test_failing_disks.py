"""Disks that fail at any call: each row is in the recording once, or named as lost, and never both."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from tensor_pool.pipeline.record import growing_file, store
from tensor_pool.pipeline.record.backlog import Backlog, Taken
from tensor_pool.pipeline.record.catalogue import Catalogue, load_catalogue
from tensor_pool.pipeline.record.growing_file import GrowingFile
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.pipeline.record.reading import read_rows
from tensor_pool.pipeline.record.rows import Row
from tensor_pool.pipeline.record.store import StreamStore
from tensor_pool.pipeline.record.verify import verify

MIB = 1 << 20
NAME = "camera-1"
CALLS = ("pwrite", "write", "fdatasync", "fsync", "open", "rename")


def frame(seq: int) -> Row:
    return Row(kind="frame", stream_id=1, epoch=1, seq=seq, dtype="uint8", shape=(1,), recorded_ns=seq)


def content(seq: int, size: int) -> bytes:
    return bytes([seq % 251]) * size


def open_store(recording: Path, **options: object) -> StreamStore:
    return StreamStore(recording / NAME, RecorderOptions(**options), about=Catalogue(stream_name=NAME))


def recorded_seqs(recording: Path) -> list[int]:
    """Frames in the segments that the catalogue names, all of them whole."""
    rows = [
        recorded
        for segment in load_catalogue(recording / NAME).segments
        for recorded in read_rows(recording / NAME / segment.file)
    ]
    assert all(bytes(each.values) == content(each.row.seq, each.values.size) for each in rows)
    return [each.row.seq for each in rows]


class Disk:
    """Fails at the given calls of this test's threads, while it is broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._monkeypatch = monkeypatch
        self._directory = str(directory)
        self.fails = lambda: False

    def watch(self, *calls: str) -> None:
        for name in calls:
            self._monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name, real):
        def call(*arguments, **named):
            is_new = name == "open" and arguments[1] & os.O_CREAT and self._directory in str(arguments[0])
            if (name != "open" or is_new) and self.fails():
                if name == "pwrite" and random.random() < 0.5:
                    real(*arguments)  # it says that it failed, and did not
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **named)

        return call


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disk:
    return Disk(monkeypatch, tmp_path)


def fail_once(disk: Disk) -> None:
    left = [True]
    disk.fails = lambda: bool(left) and left.pop()


@pytest.mark.parametrize("attempt", range(6))
def test_each_row_is_recorded_once_or_named_lost(disk, tmp_path, monkeypatch, attempt):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    monkeypatch.setattr(store, "_RETRY_NS", 3)
    sizes = chance.choice([[100, MIB // 2], [MIB, 3 * MIB // 2, 100], [5 * MIB, 3 * MIB, 10], [3 * MIB + 5]])
    writing = open_store(
        tmp_path,
        sync=chance.choice(["frame", "interval", "seal"]),
        sync_bytes=8 * MIB,
        segment_bytes=chance.choice([2 * MIB, 12 * MIB]),
    )
    disk.watch(*chance.sample(CALLS, 3))
    lost = []
    for seq in range(60):
        broken = 10 < seq < 50
        disk.fails = lambda broken=broken: broken and chance.random() < 0.1
        try:
            writing.append(frame(seq), content(seq, chance.choice(sizes)), now_ns=seq)
        except OSError:
            lost += writing.take_lost()
    writing.close()
    assert writing.error is None
    assert writing.take_lost() == []
    assert sorted([*recorded_seqs(tmp_path), *(row.seq for row, _ in lost)]) == list(range(60))
    assert recorded_seqs(tmp_path) == sorted(recorded_seqs(tmp_path))
    assert verify(tmp_path).flaws == []
    assert list(tmp_path.glob("*/*.new")) == []


@pytest.mark.parametrize("call", ["fdatasync", "fsync", "rename"])
def test_a_frame_that_is_in_the_file_is_not_lost_when_what_follows_fails(disk, tmp_path, call):
    disk.watch(call)
    with open_store(tmp_path, sync="frame", segment_bytes=2_000) as writing:
        writing.append(frame(0), content(0, 100), now_ns=0)
        fail_once(disk)
        with pytest.raises(OSError, match="Input/output"):
            writing.append(frame(1), content(1, 2_000), now_ns=0)
        assert (writing.take_lost(), writing.last_frame.seq) == ([], 1)
    assert (recorded_seqs(tmp_path), writing.durable_seq) == ([0, 1], 1)
    assert verify(tmp_path).flaws == []


def test_a_frame_behind_one_that_failed_is_lost_with_it(tmp_path, monkeypatch):
    """Its own bytes may have been written: a repair would find a frame that was told missing."""
    real, is_done = os.pwrite, threading.Event()

    def pwrite(fd, data, at):
        if 4 * MIB <= at < 6 * MIB and len(data) >= MIB:
            is_done.wait(10)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, at)

    with open_store(tmp_path, sync="seal") as writing:
        for seq in range(2):
            writing.append(frame(seq), content(seq, 2 * MIB), now_ns=0)
        monkeypatch.setattr(growing_file.os, "pwrite", pwrite)
        for seq in range(2, 4):  # the second one fails, and the third one would not
            writing.append(frame(seq), content(seq, 2 * MIB), now_ns=0)
        is_done.set()
        with pytest.raises(OSError, match="No space"):
            writing.append(frame(4), content(4, 2 * MIB), now_ns=0)
            writing.on_time(10**12)
        lost = [(row.seq, nbytes) for row, nbytes in writing.take_lost()]
        monkeypatch.undo()
        assert lost[0][0] == writing.last_frame.seq + 1
        assert {nbytes for _, nbytes in lost} == {2 * MIB}
    kept = recorded_seqs(tmp_path)
    assert kept == list(range(lost[0][0]))
    assert verify(tmp_path).flaws == []


def test_what_could_not_be_flushed_has_not_landed(disk, tmp_path):
    disk.watch("pwrite")
    with GrowingFile(tmp_path / "file") as file:
        file.write(b"first")
        file.flush()
        file.write(b"second")
        disk.fails = lambda: True
        with pytest.raises(OSError, match="Input/output"):
            file.flush()
        assert (file.landed, file.tell()) == (5, 11)
        file.cut(5)
    assert (tmp_path / "file").read_bytes() == b"first"


def test_a_disk_that_fails_keeps_no_frame_in_memory(disk, tmp_path):
    disk.watch("pwrite")
    with open_store(tmp_path) as writing:
        disk.fails = lambda: True
        tracebacks = []
        for seq in range(20):
            with pytest.raises(OSError, match="Input/output") as failed:
                writing.append(frame(seq), content(seq, 100), now_ns=0)
            tracebacks.append(len(failed.traceback))
        assert tracebacks[-1] == tracebacks[1]
        disk.fails = lambda: False


def test_a_segment_that_was_sealed_and_not_listed_is_listed_by_the_next_recorder(tmp_path, monkeypatch):
    with open_store(tmp_path) as writing:
        writing.append(frame(0), content(0, 10), now_ns=0)
    with open_store(tmp_path) as writing:
        writing.append(frame(1), content(1, 10), now_ns=0)
        with monkeypatch.context() as broken:  # as if the process had ended before
            broken.setattr(StreamStore, "_save_catalogue", lambda _self: None)
            writing.seal()
            writing._lock.close()
    with open_store(tmp_path) as writing:
        writing.append(frame(2), content(2, 10), now_ns=0)
    assert recorded_seqs(tmp_path) == [0, 1, 2]
    assert verify(tmp_path).flaws == []


def test_a_crash_while_a_table_is_written_leaves_nothing_of_it(tmp_path):
    writing = open_store(tmp_path)
    writing.append(frame(0), content(0, 10), now_ns=0)
    writing._writer.close()
    writing._lock.close()
    half = tmp_path / NAME / "00000001.rows.new"
    half.write_bytes(b"ARROW1")
    open_store(tmp_path).close()
    assert recorded_seqs(tmp_path) == [0]
    assert not half.exists()


def test_a_closed_store_leaves_the_segments_of_the_next_one_alone(tmp_path):
    first = open_store(tmp_path)
    first.close()
    with open_store(tmp_path) as second:
        second.append(frame(0), content(0, 10), now_ns=0)
        first.close()
        second.append(frame(1), content(1, 10), now_ns=0)
    assert recorded_seqs(tmp_path) == [0, 1]


def segments_there(recording: Path) -> set[str]:
    return {path.name for path in (recording / NAME).glob("*.arrow")}


def segments_listed(recording: Path) -> set[str]:
    return {segment.file for segment in load_catalogue(recording / NAME).segments}


def test_what_could_not_be_removed_is_removed_with_the_next_one(tmp_path, monkeypatch):
    real, refused = Path.unlink, []

    def unlink(self, missing_ok=False):
        if self.name == "00000001.arrow" and not refused:
            refused.append(self)
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        real(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with open_store(tmp_path, segment_bytes=1_000, keep_bytes=8_000) as writing:
        for seq in range(9):
            writing.append(frame(seq), content(seq, 2_000), now_ns=0)
    assert refused
    assert segments_there(tmp_path) == segments_listed(tmp_path)
    assert verify(tmp_path).flaws == []


def test_old_segments_are_removed_also_if_the_catalogue_could_not_be_saved_at_first(tmp_path, monkeypatch):
    real, broken = store.save_catalogue, [4, 5]

    def save(directory, catalogue):
        if len(catalogue.segments) + catalogue.removed_through in broken:
            broken.pop(0)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(directory, catalogue)

    monkeypatch.setattr(store, "save_catalogue", save)
    with open_store(tmp_path, segment_bytes=1_000, keep_bytes=6_000) as writing:
        for seq in range(6):
            try:
                writing.append(frame(seq), content(seq, 2_000), now_ns=seq * 10**9)
            except OSError:
                assert writing.take_lost() == []
    assert not broken
    assert segments_there(tmp_path) == segments_listed(tmp_path)
    assert recorded_seqs(tmp_path)[-1] == 5
    assert verify(tmp_path).flaws == []


def test_the_last_catalogue_is_saved_when_it_could_not_be_before(tmp_path, monkeypatch):
    real, broken = store.save_catalogue, [True]

    def save(*arguments):
        if broken and broken.pop():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*arguments)

    monkeypatch.setattr(store, "save_catalogue", save)
    with open_store(tmp_path, segment_bytes=1_000) as writing:
        with pytest.raises(OSError, match="No space"):
            writing.append(frame(0), content(0, 2_000), now_ns=0)
        assert writing.take_lost() == []
    assert recorded_seqs(tmp_path) == [0]


def test_a_gap_fits_into_a_backlog_that_one_large_frame_fills():
    backlog = Backlog(max_bytes=10)
    gap = Taken(Row(kind="gap", stream_id=1, epoch=1, seq=1), np.empty(0, np.uint8))
    assert backlog.put(Taken(frame(0), np.zeros(100, np.uint8)))
    assert not backlog.put(gap, Taken(frame(2), np.zeros(1, np.uint8)))
    assert backlog.put(gap)
    assert [backlog.take(1).row.kind for _ in range(2)] == ["frame", "gap"]

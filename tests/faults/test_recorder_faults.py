"""Recorders that die, disks that fail: what was acknowledged is there; reliability 22, promise I10."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import threading
import time

import numpy as np
import pytest

from pool_hosts import quick_host
from recording_child import acknowledged, recording_child
from tensor_pool.pipeline.record import Recorder, growing_file, store
from tensor_pool.pipeline.record.catalogue import load_catalogue, stream_directory
from tensor_pool.pipeline.record.reading import read_rows
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.testing import wait_until

NAME = "camera-1"
FRAME_BYTES = 40_000

SMALL_SEGMENTS = {"segment_bytes": 300_000, "sync_interval_s": 0.05}


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def out(host):
    with host.connect() as pool, pool.producer(NAME, max_bytes=FRAME_BYTES, slots=256) as out:
        yield out


def publish(out, count):
    for _ in range(count):
        out.publish(np.full(FRAME_BYTES, out.stats.frames % 251, "uint8"))
        time.sleep(0.002)  # what a camera's rate would be; nothing waits for it


def check(recording, durable) -> None:
    """After a repair everything acknowledged is there, in order and whole, and nothing is wrong any more."""
    verify(recording, repair=True)
    assert verify(recording).flaws == []
    directory = stream_directory(recording, NAME)
    rows = [
        recorded
        for segment in load_catalogue(directory).segments
        for recorded in read_rows(directory / segment.file)
        if recorded.row.kind == "frame"
    ]
    seqs = [recorded.row.seq for recorded in rows]
    assert seqs == list(range(seqs[0], seqs[-1] + 1)) if seqs else durable < 0
    assert not seqs or seqs[-1] >= durable
    for recorded in rows:
        assert recorded.is_whole
        assert set(np.unique(recorded.array)) == {recorded.row.seq % 251}


@pytest.mark.parametrize("sync", ["frame", "interval"])
@pytest.mark.parametrize(
    "fault",
    [
        "record.segment_open:kill",
        "record.segment_open:kill:2",
        "record.before_sync:kill:3",
        "record.before_index:kill:3",
        "record.before_rename:kill",
        "record.before_catalogue:kill",
        "record.before_catalogue:kill:2",
    ],
)
def test_a_recorder_that_is_killed_anywhere_keeps_what_it_acknowledged(host, out, tmp_path, fault, sync):
    recorder = recording_child(host, tmp_path, fault=fault, sync=sync, **SMALL_SEGMENTS)
    wait_until(lambda: out.stats.consumers)
    wait_until(lambda: publish(out, 5) or recorder.exit_code is not None, what="the end of the recorder")
    check(tmp_path, acknowledged(recorder))


def test_a_recorder_that_is_killed_at_any_time(host, out, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    times = random.Random(seed)
    for attempt in range(5):
        recording = tmp_path / str(attempt)
        recorder = recording_child(host, recording, **SMALL_SEGMENTS)
        wait_until(lambda: out.stats.consumers)
        publish(out, times.randrange(10, 60))
        recorder.kill()
        check(recording, acknowledged(recorder))


def test_a_killed_recorder_is_followed_by_another_one(host, out, tmp_path):
    recorder = recording_child(host, tmp_path, sync="frame", **SMALL_SEGMENTS)
    wait_until(lambda: out.stats.consumers)
    publish(out, 20)
    recorder.kill()
    durable = acknowledged(recorder)
    with host.connect() as pool, Recorder(pool, [NAME], tmp_path) as again:
        wait_until(lambda: out.stats.consumers)
        last = out.publish(np.full(FRAME_BYTES, out.stats.frames % 251, "uint8"))
        wait_until(lambda: again.progress[NAME].last_seq == last)
    found = verify(tmp_path, repair=True)
    assert found.frames >= durable + 1
    assert verify(tmp_path).flaws == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_full_for_a_while(host, out, small):
    filler = small / "filler"
    with host.connect() as pool, Recorder(pool, [NAME], small, segment_bytes=300_000) as recorder:
        wait_until(lambda: out.stats.consumers)
        publish(out, 10)
        wait_until(lambda: recorder.progress[NAME].last_seq == 9)
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(8 << 20))
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].error is not None)
        assert "No space left" in recorder.progress[NAME].error
        publish(out, 5)
        filler.unlink()
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].error is None)
        last = out.publish(np.full(FRAME_BYTES, out.stats.frames % 251, "uint8"))
        wait_until(lambda: recorder.progress[NAME].last_seq == last)
        dropped = recorder.progress[NAME].dropped
    assert dropped > 0
    found = verify(small)
    assert (found.flaws, found.frames + found.lost, found.lost) == ([], last + 1, dropped)
    directory = stream_directory(small, NAME)
    segments = load_catalogue(directory).segments
    assert [segment.file for segment in segments] == sorted(path.name for path in directory.glob("*.arrow"))
    assert all(a.last_seq < b.first_seq for a, b in itertools.pairwise(segments)), "nothing comes later"
    assert list(directory.glob("*.index")) == []


def test_a_directory_that_is_removed_meanwhile_is_told(host, out, tmp_path):
    with (
        host.connect() as pool,
        Recorder(pool, [NAME], tmp_path / "gone", sync_interval_s=0.05) as recorder,
    ):
        wait_until(lambda: out.stats.consumers)
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].frames > 3)
        shutil.rmtree(tmp_path / "gone")
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].dropped > 3)
        assert recorder.progress[NAME].error is not None
    assert recorder.progress[NAME].error is not None


def test_a_disk_that_turns_read_only_for_a_while(host, out, tmp_path, monkeypatch):
    """As a kernel does that met an error: nothing new can be opened."""
    real, is_broken = store.SegmentWriter, threading.Event()

    def open_segment(*arguments):
        if is_broken.is_set():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(*arguments)

    monkeypatch.setattr(store, "SegmentWriter", open_segment)
    with host.connect() as pool, Recorder(pool, [NAME], tmp_path, segment_bytes=300_000) as recorder:
        wait_until(lambda: out.stats.consumers)
        publish(out, 10)
        wait_until(lambda: recorder.progress[NAME].last_seq == 9)
        is_broken.set()
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].error is not None)
        assert "Read-only" in recorder.progress[NAME].error
        is_broken.clear()
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].error is None)
        wait_until(lambda: recorder.progress[NAME].last_seq == out.stats.frames - 1)
        dropped = recorder.progress[NAME].dropped
    found = verify(tmp_path)
    assert (found.flaws, found.lost, found.frames) == ([], dropped, out.stats.frames - dropped)


def break_disk(monkeypatch) -> threading.Event:
    """Nothing can be written into segments while it is set."""
    real, is_broken = os.pwrite, threading.Event()

    def pwrite(*arguments):
        if is_broken.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(growing_file.os, "pwrite", pwrite)
    return is_broken


def test_what_a_failing_disk_cost_is_told_though_no_frame_comes_any_more(host, out, tmp_path, monkeypatch):
    is_broken = break_disk(monkeypatch)
    with host.connect() as pool, Recorder(pool, [NAME], tmp_path) as recorder:
        wait_until(lambda: out.stats.consumers)
        publish(out, 10)
        wait_until(lambda: recorder.progress[NAME].last_seq == 9)
        is_broken.set()
        publish(out, 5)
        wait_until(lambda: recorder.progress[NAME].dropped == 5)
        assert recorder.progress[NAME].last_seq == 9
        is_broken.clear()
    done = recorder.progress[NAME]
    assert (done.frames, done.dropped, done.error) == (10, 5, None)
    found = verify(tmp_path)
    assert (found.flaws, found.frames, found.lost) == ([], 10, 5)


def test_a_disk_that_fails_while_producers_come_and_go_costs_no_gap(host, tmp_path, monkeypatch):
    is_broken = break_disk(monkeypatch)
    with host.connect() as pool, Recorder(pool, [NAME], tmp_path) as recorder:
        for life in range(3):
            with pool.producer(NAME, max_bytes=FRAME_BYTES, slots=256) as out:
                wait_until(lambda out=out: out.stats.consumers)
                if life:
                    is_broken.set()
                publish(out, 10)
                wait_until(lambda life=life: recorder.progress[NAME].dropped == 10 * life)
        is_broken.clear()
    done = recorder.progress[NAME]
    assert (done.frames, done.dropped, done.error) == (10, 20, None)
    found = verify(tmp_path)
    assert (found.flaws, found.frames, found.lost) == ([], 10, 20)

"""Large frames are still on their way to the disk when the next one is taken: what if the disk fails then?"""

from __future__ import annotations

import itertools
import os
import random
import time

import numpy as np
import pytest

from pool_hosts import quick_host
from recording_child import acknowledged, recording_child
from tensor_pool.pipeline.record import Recorder
from tensor_pool.pipeline.record.catalogue import load_catalogue, stream_directory
from tensor_pool.pipeline.record.reading import read_rows
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.testing import wait_until

NAME = "camera-1"
MIB = 1 << 20
FRAME_BYTES = 2 * MIB + 8


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def out(host):
    with host.connect() as pool, pool.producer(NAME, max_bytes=FRAME_BYTES, slots=32) as out:
        yield out


def publish(out, count):
    for _ in range(count):
        out.publish(np.full(FRAME_BYTES, out.stats.frames % 251, "uint8"))
        time.sleep(0.005)  # what a camera's rate would be; nothing waits for it


def whole_frames(recording) -> list[int]:
    directory = stream_directory(recording, NAME)
    seqs = []
    for segment in load_catalogue(directory).segments:
        for recorded in read_rows(directory / segment.file):
            if recorded.row.kind == "frame":
                assert recorded.is_whole
                assert set(np.unique(recorded.array)) == {recorded.row.seq % 251}
                seqs.append(recorded.row.seq)
    return seqs


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_each_frame_is_in_the_recording_or_told_missing_when_the_disk_was_full(
    host, out, room_for_large_frames
):
    filler = room_for_large_frames / "filler"
    with (
        host.connect() as pool,
        Recorder(pool, [NAME], room_for_large_frames, segment_bytes=6 * MIB) as recorder,
    ):
        wait_until(lambda: out.stats.consumers)
        publish(out, 4)
        wait_until(lambda: recorder.progress[NAME].last_seq == 3)
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(64 * MIB))
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].error is not None)
        publish(out, 5)
        filler.unlink()
        wait_until(lambda: publish(out, 1) or recorder.progress[NAME].error is None)
        last = out.publish(np.full(FRAME_BYTES, out.stats.frames % 251, "uint8"))
        wait_until(lambda: recorder.progress[NAME].last_seq == last)
    done = recorder.progress[NAME]
    assert done.dropped > 0
    found = verify(room_for_large_frames)
    assert (found.flaws, found.frames, found.lost) == ([], done.frames, done.dropped)
    seqs = whole_frames(room_for_large_frames)
    assert (len(seqs) + done.dropped, seqs[-1]) == (last + 1, last)
    assert done.nbytes == len(seqs) * FRAME_BYTES
    assert all(a < b for a, b in itertools.pairwise(seqs))


def test_a_recorder_of_large_frames_that_is_killed_keeps_what_it_acknowledged(host, out, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    times = random.Random(seed)
    for attempt in range(3):
        recording = tmp_path / str(attempt)
        recorder = recording_child(host, recording, segment_bytes=16 * MIB, sync_bytes=8 * MIB)
        wait_until(lambda: out.stats.consumers)
        publish(out, times.randrange(10, 40))
        recorder.kill()
        durable = acknowledged(recorder)
        verify(recording, repair=True)
        assert verify(recording).flaws == []
        seqs = whole_frames(recording)
        assert all(b == a + 1 for a, b in itertools.pairwise(seqs))
        assert durable < 0 or seqs[-1] >= durable


def test_a_program_that_ends_without_closing_its_recorder_leaves_a_sealed_recording(host, out, tmp_path):
    child = host.run_python(
        f"""
        import os
        from tensor_pool.pipeline.record import Recorder
        fsync = os.fsync
        os.fsync = lambda fd: time.sleep(0.3) or fsync(fd)  # Python does not wait for a disk by itself
        recorder = Recorder(pool, ["camera-1"], {str(tmp_path)!r}, sync="seal")
        print("ready")
        while recorder.progress["camera-1"].frames < 20:
            time.sleep(0.001)
        """
    )
    assert child.read_line() == "ready"
    wait_until(lambda: out.stats.consumers)
    publish(out, 20)
    wait_until(lambda: child.exit_code is not None)
    assert (child.exit_code, child.errors()) == (0, "")
    assert verify(tmp_path).flaws == []
    assert whole_frames(tmp_path) == list(range(20))

"""Replays: what was recorded comes again, as it came."""

from __future__ import annotations

import threading
import time
import types

import numpy as np
import pytest

import tensor_pool as tp
from pool_hosts import quick_host
from tensor_pool.pipeline.record import Recorder, Recording, Replay
from tensor_pool.pipeline.record import replay as replay_module
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.testing import wait_until
from written_recordings import (
    CLOCK_NS,
    MIXED,
    START_NS,
    STEP_NS,
    RecordingWriter,
    damage_frame,
    damage_table,
    numbered,
)

NOISE_NS = 20_000_000
"""How much later than asked for most things happen; on a machine with much to do, some are far later."""


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def pool(host):
    with host.connect() as pool:
        yield pool


def record_again(pool, recording, again, count, *, names=("camera-1",), **options):
    """Replays a recording into another one; what the replay says of itself."""
    published = [f"again/{name}" for name in names]
    with (
        Replay(pool, recording, prefix="again/", wait_consumers=1, **options) as replay,
        Recorder(pool, published, again) as recorder,
    ):
        stats = replay.run()
        for name in published:
            wait_until(lambda name=name: recorder.progress[name].frames == count, what=f"{count} of {name}")
    return stats


def frames_of(recording, name="again/camera-1"):
    return list(Recording(recording)[name].frames())


def times_of(frames):
    times = np.array([frame.row.timestamp_ns for frame in frames], np.int64)
    return times - times[0]


def test_a_replay_that_is_recorded_is_the_recording(pool, tmp_path):
    writer = RecordingWriter(tmp_path / "recording")
    for n in range(60):
        writer.frame(MIXED[n % len(MIXED)], trace_id=None if n % 7 == 0 else 2**63 + n)
    writer.close()
    record_again(pool, tmp_path / "recording", tmp_path / "again", 60)
    before, after = frames_of(tmp_path / "recording", "camera-1"), frames_of(tmp_path / "again")
    assert len(before) == len(after) == 60
    for one, other in zip(before, after, strict=True):
        for field in ("seq", "dtype", "shape", "order", "trace_id"):
            assert getattr(one.row, field) == getattr(other.row, field), field
        assert one.array().tobytes(order="A") == other.array().tobytes(order="A")
        assert one.array().flags.f_contiguous == other.array().flags.f_contiguous
    assert verify(tmp_path / "again").flaws == []


@pytest.mark.quiet
def test_frames_come_with_the_spacing_of_the_recording(pool, tmp_path):
    numbered(tmp_path / "recording", count=50)
    began = time.monotonic()
    stats = record_again(pool, tmp_path / "recording", tmp_path / "again", 50)
    assert time.monotonic() - began >= 49 * STEP_NS / 1e9
    times, expected = times_of(frames_of(tmp_path / "again")), np.arange(50) * STEP_NS
    assert abs(np.median(times - expected)) < NOISE_NS, "no drift: most frames are in time"
    assert (stats.frames, stats.nbytes, stats.rounds) == (50, 600, 1)


class Waiting:
    """Stands for what a replay waits with, and for its clock: time passes by waiting, and in no other way."""

    def __init__(self, monkeypatch):
        self.now_ns = 10**15
        self.published_ns = []
        self.publishing_ns = iter(())
        """How long it takes to publish each frame."""
        monkeypatch.setattr(replay_module, "time", types.SimpleNamespace(monotonic_ns=lambda: self.now_ns))
        real = replay_module.RepublishedStream.publish

        def publish(stream, *arguments):
            self.published_ns.append(self.now_ns)
            self.now_ns += next(self.publishing_ns, 0)
            real(stream, *arguments)

        monkeypatch.setattr(replay_module.RepublishedStream, "publish", publish)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait(self, timeout_s):
        self.now_ns += round(timeout_s * 1e9)

    def notify_all(self):
        pass

    def play(self, pool, recording, **options):
        with Replay(pool, recording, prefix="again/", **options) as replay:
            replay.tempo._changed, replay.tempo._now_ns = self, lambda: self.now_ns
            stats = replay.run()
        return stats, (np.array(self.published_ns) - self.published_ns[0]).tolist()


@pytest.mark.parametrize("speed", [1.0, 4.0, 0.5, 1000.0])
def test_speed(pool, tmp_path, monkeypatch, speed):
    numbered(tmp_path / "recording", count=50)
    stats, times = Waiting(monkeypatch).play(pool, tmp_path / "recording", speed=speed)
    assert times == pytest.approx([n * STEP_NS / speed for n in range(50)], abs=1_000)
    assert stats.seconds == pytest.approx(0.49 / speed, abs=1e-6)
    assert stats.late == 0


def test_delays_do_not_add_up(pool, tmp_path, monkeypatch):
    """A publisher that takes longer than frames are apart, at first, catches up, and is in time again."""
    numbered(tmp_path / "recording", count=50)
    waiting = Waiting(monkeypatch)
    waiting.publishing_ns = iter([3 * STEP_NS] * 5)
    stats, times = waiting.play(pool, tmp_path / "recording")
    assert times[:6] == [n * 3 * STEP_NS for n in range(6)]
    assert times[15:] == pytest.approx([n * STEP_NS for n in range(15, 50)], abs=1_000)
    assert stats.late == 13, "one to fourteen; the last of them by no more than counts"
    assert stats.streams["camera-1"].worst_late_s == pytest.approx(0.1)


def test_as_fast_as_possible(pool, tmp_path):
    numbered(tmp_path / "recording", count=50)
    stats = record_again(pool, tmp_path / "recording", tmp_path / "again", 50, speed=0)
    assert np.median(np.diff(times_of(frames_of(tmp_path / "again")))) < STEP_NS / 4
    assert stats.late == 0, "nothing is late that has no time"


def test_a_loop_goes_on_until_it_is_stopped(pool, tmp_path):
    numbered(tmp_path / "recording", count=5)
    inp = pool.consumer("again/camera-1")
    with Replay(
        pool, tmp_path / "recording", prefix="again/", loop=True, speed=10, wait_consumers=1
    ) as replay:
        playing = threading.Thread(target=replay.run)
        playing.start()
        taken = [int(inp.poll(timeout=5).copy()[0, 0]) for _ in range(23)]
        wait_until(lambda: replay.stats.rounds >= 4)
        replay.stop()
        playing.join(timeout=10)
        assert not playing.is_alive()
    assert taken == [n % 5 for n in range(23)]


def test_rounds_of_a_loop_are_as_far_apart_as_frames(pool, tmp_path):
    numbered(tmp_path / "recording", count=5)
    with Replay(pool, tmp_path / "recording", prefix="again/", loop=True) as replay:
        rounds = replay._rounds()
        assert [next(rounds).at_ns for _ in range(12)] == [n * STEP_NS for n in range(12)]
        rounds.close()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("0.1", "0.15", range(10, 16)),
        (None, 0.05, range(6)),
        ("2023-11-14T22:13:20.45Z", None, range(45, 50)),
    ],
)
def test_a_part_of_a_recording(pool, tmp_path, start, end, expected):
    numbered(tmp_path / "recording", count=50)
    record_again(pool, tmp_path / "recording", tmp_path / "again", len(expected), start=start, end=end)
    assert [int(frame.array()[0, 0]) for frame in frames_of(tmp_path / "again")] == list(expected)


def test_what_comes_before_a_part_is_not_waited_for(pool, tmp_path):
    numbered(tmp_path / "recording", count=50)
    with Replay(pool, tmp_path / "recording", prefix="again/", start=0.1) as replay:
        assert [due.at_ns for due in replay._rounds()] == [n * STEP_NS for n in range(40)]


def test_several_streams_come_in_the_order_of_time(pool, tmp_path):
    for number, name in enumerate(("a", "b")):
        writer = RecordingWriter(tmp_path / "recording", name)
        for n in range(20):
            stamp = START_NS - CLOCK_NS + n * STEP_NS + number * STEP_NS // 2
            writer.frame(np.full(4, n, "uint8"), timestamp_ns=stamp)
        writer.close()
    record_again(pool, tmp_path / "recording", tmp_path / "again", 20, names=("a", "b"))
    both = [frames_of(tmp_path / "again", f"again/{name}") for name in ("a", "b")]
    order = sorted((frame.row.timestamp_ns, n) for n, frames in enumerate(both) for frame in frames)
    assert [n for _, n in order] == [0, 1] * 20


def test_time_stamps_are_new_unless_the_recorded_ones_are_asked_for(pool, tmp_path):
    recorded = frames_stamps(numbered(tmp_path / "recording", count=5))
    before = time.monotonic_ns()
    record_again(pool, tmp_path / "recording", tmp_path / "new", 5)
    assert min(row.timestamp_ns for row in rows_of(tmp_path / "new")) >= before
    record_again(pool, tmp_path / "recording", tmp_path / "kept", 5, keep_timestamps=True)
    assert [row.timestamp_ns for row in rows_of(tmp_path / "kept")] == recorded


def frames_stamps(recording):
    return [frame.row.timestamp_ns for frame in recording["camera-1"].frames()]


def rows_of(recording):
    return [frame.row for frame in frames_of(recording)]


def test_metadata_and_its_changes_are_published(pool, tmp_path):
    writer = RecordingWriter(tmp_path / "recording")
    writer.metadata(1, **{"clock.domain": "realtime_synced"}, gain=1, dark=np.arange(3), raw=b"\0")
    for n in range(30):
        if n == 15:
            writer.metadata(2, **{"clock.domain": "realtime_synced"}, gain=2, dark=np.arange(3))
        writer.frame(np.full(4, n, "uint8"))
    writer.close()
    seen = {}
    with Replay(pool, tmp_path / "recording", prefix="again/", wait_consumers=1) as replay:
        inp = pool.consumer("again/camera-1")
        wait_until(lambda: inp.metadata.get("gain") == 1, what="metadata before the first frame")
        assert inp.metadata["clock.domain"] == "realtime_synced"
        playing = threading.Thread(target=replay.run)
        playing.start()
        for _ in range(30):
            frame = inp.poll(timeout=5)
            version = wait_until(lambda frame=frame: inp.metadata.at(frame.info.meta_version))
            seen[int(frame.copy()[0])] = dict(version)
        playing.join()
    assert [seen[n]["gain"] for n in range(30)] == [1] * 15 + [2] * 15
    assert seen[0]["dark"].tolist() == [0, 1, 2]
    assert seen[0]["raw"] == b"\0"
    assert "raw" not in seen[29]


def test_the_clock_of_kept_time_stamps_is_told_beside_ours(pool, tmp_path):
    writer = RecordingWriter(tmp_path / "recording")
    writer.metadata(1, **{"clock.domain": "monotonic", "clock.realtime_offset_ns": 17})
    writer.frame(np.zeros(4))
    writer.close()
    with Replay(pool, tmp_path / "recording", prefix="again/", keep_timestamps=True):
        inp = pool.consumer("again/camera-1")
        wait_until(lambda: inp.metadata.get("recorded.clock.realtime_offset_ns") == 17)
        assert inp.metadata["clock.realtime_offset_ns"] != 17


def test_metadata_that_ours_would_not_say_is_left_out(pool, tmp_path, caplog):
    writer = RecordingWriter(tmp_path / "recording")
    writer.metadata(1, gain=1, größe=5)
    writer.frame(np.zeros(4))
    writer.close()
    with Replay(pool, tmp_path / "recording", prefix="again/"):
        inp = pool.consumer("again/camera-1")
        wait_until(lambda: inp.metadata.get("gain") == 1)
    assert "is left out" in caplog.text


def test_damaged_frames_and_segments_are_left_out_and_counted(pool, tmp_path):
    recording = numbered(tmp_path / "recording", count=20)
    lost = recording["camera-1"].catalogue.segments[1]
    damage_table(tmp_path / "recording", 2)
    damage_frame(tmp_path / "recording", np.full((2, 3), 15, "uint16"))
    told = []
    bad = {15, *range(lost.min_seq, lost.max_seq + 1)}
    stats = record_again(
        pool, tmp_path / "recording", tmp_path / "again", 20 - len(bad), on_damage=told.append
    )
    assert stats.damaged == len(bad)
    assert "frame 15 of epoch 7" in told[-1].what
    values = [int(frame.array()[0, 0]) for frame in frames_of(tmp_path / "again")]
    assert values == [n for n in range(20) if n not in bad]


def test_missing_frames_are_counted(pool, tmp_path):
    writer = RecordingWriter(tmp_path / "recording")
    writer.frame(np.zeros(4))
    writer.gap(7)
    writer.frame(np.zeros(4))
    writer.close()
    with Replay(pool, tmp_path / "recording", prefix="again/", speed=0) as replay:
        assert replay.run().streams["camera-1"].missing == 7


def test_a_replay_beside_the_original_has_another_name(pool, tmp_path):
    numbered(tmp_path / "recording", count=3)
    with pool.producer("camera-1", dtype="uint8", shape=(4,)):
        with pytest.raises(tp.AttachRefusedError):
            Replay(pool, tmp_path / "recording")
        with Replay(pool, tmp_path / "recording", rename={"camera-1": "test"}, speed=0) as replay:
            assert replay.run().streams["camera-1"].published_as == "test"
            assert {"camera-1", "test"} <= {stream.name for stream in pool.streams()}


def test_a_stream_that_had_a_number_only_has_it_again(pool, tmp_path):
    numbered(tmp_path / "recording", 20_001, count=3)
    with Replay(pool, tmp_path / "recording", speed=0) as replay:
        assert replay.run().frames == 3
        assert 20_001 in {stream.stream_id for stream in pool.streams()}


def test_streams_look_as_they_did(pool, tmp_path):
    numbered(tmp_path / "recording", count=3)
    with Replay(pool, tmp_path / "recording", slots=16):
        (stream,) = (stream for stream in pool.streams() if stream.name == "camera-1")
        assert (stream.dtype, tuple(stream.shape), stream.slots) == ("uint16", (2, 3), 16)


@pytest.mark.parametrize(
    ("options", "raised", "said"),
    [
        ({"streams": ["camera-2"]}, tp.RegionError, "no stream camera-2"),
        ({"streams": "camera-1"}, tp.ConfigError, "streams='camera-1'"),
        ({"start": 100}, tp.RegionError, "no frame to replay"),
        ({"rename": {"camera-2": "x"}}, tp.ConfigError, "camera-2 can't be renamed"),
        ({"rename": {"camera-1": "b"}}, tp.ConfigError, "the same name"),
        ({"speed": -1}, tp.ConfigError, "speed=-1"),
        ({"speed": float("nan")}, tp.ConfigError, "speed=nan"),
        ({"time_of": "birth"}, tp.ConfigError, "time_of"),
    ],
)
def test_what_can_not_be_replayed(pool, tmp_path, options, raised, said):
    numbered(tmp_path / "recording", count=3)
    numbered(tmp_path / "recording", "b", count=3)
    with pytest.raises(raised, match=said):
        Replay(pool, tmp_path / "recording", **options)
    with pool.producer("camera-1", max_bytes=64), pool.producer("b", max_bytes=64):
        pass  # nobody else has them


def test_a_stop_while_it_waits(pool, tmp_path):
    numbered(tmp_path / "recording", count=3)
    with Replay(pool, tmp_path / "recording", prefix="alone/", wait_consumers=1) as replay:
        playing = threading.Thread(target=replay.run)
        playing.start()
        wait_until(lambda: replay.stats.is_waiting)
        replay.stop()
        playing.join(timeout=5)
        assert not playing.is_alive()
        assert replay.stats.frames == 0


def test_memory_is_bounded_by_what_is_read_ahead(pool, tmp_path, monkeypatch):
    from tensor_pool.pipeline.record import recording as module

    numbered(tmp_path / "recording", count=200)
    loaded = []
    real = module.RecordedFrame.array
    monkeypatch.setattr(
        module.RecordedFrame, "array", lambda frame: loaded.append(frame.row.seq) or real(frame)
    )
    with Replay(pool, tmp_path / "recording", read_ahead_bytes=120, wait_consumers=1) as replay:
        playing = threading.Thread(target=replay.run)
        playing.start()
        inp = pool.consumer("camera-1")
        for _ in range(20):
            inp.poll(timeout=5)
            assert len(loaded) <= replay.stats.frames + 13, "ten of twelve bytes wait, one is in each hand"
        replay.stop()
        playing.join()

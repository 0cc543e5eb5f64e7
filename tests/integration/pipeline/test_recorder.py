"""Recording real streams: what is read back is what was published."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensor_pool as tp
from pool_hosts import quick_host
from tensor_pool.pipeline.record import Recorder, RecorderOptions
from tensor_pool.pipeline.record.catalogue import load_catalogue, stream_directory
from tensor_pool.pipeline.record.reading import read_rows
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.testing import wait_until


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def pool(host):
    with host.connect() as pool:
        yield pool


@pytest.fixture
def name(request):
    return request.node.name


def rows_of(recording, stream):
    directory = stream_directory(recording, stream)
    catalogue = load_catalogue(directory)
    return [recorded for segment in catalogue.segments for recorded in read_rows(directory / segment.file)]


def frames_of(recording, stream):
    return [recorded for recorded in rows_of(recording, stream) if recorded.row.kind == "frame"]


def gaps_of(recording, stream):
    return [recorded.row for recorded in rows_of(recording, stream) if recorded.row.kind == "gap"]


def recorded_up_to(recorder, stream, seq):
    wait_until(lambda: recorder.progress[stream].last_seq == seq, what=f"frame {seq} on disk")


def test_frames_come_back_with_all_that_belongs_to_them(pool, name, tmp_path):
    out = pool.producer(name, dtype="uint16", shape=(3, 5), slots=64, metadata={"exposure_ms": 5.0})
    with Recorder(pool, [name], tmp_path) as recorder:
        wait_until(lambda: out.stats.consumers)
        for value in range(10):
            out.publish(np.full((3, 5), value, "uint16"), timestamp_ns=1_000 + value, trace_id=77 + value)
        recorded_up_to(recorder, name, 9)
    frames = frames_of(tmp_path, name)
    assert [int(frame.array.min()) for frame in frames] == list(range(10))
    assert [int(frame.array.max()) for frame in frames] == list(range(10))
    assert {frame.array.shape for frame in frames} == {(3, 5)}
    assert [frame.row.timestamp_ns for frame in frames] == list(range(1_000, 1_010))
    assert {(frame.row.stream_id, frame.row.epoch) for frame in frames} == {(out.stream_id, out.epoch)}
    assert recorder.progress[name].durable_seq == 9
    assert verify(tmp_path).flaws == []


def test_every_segment_begins_with_the_metadata_of_the_moment(pool, name, tmp_path):
    out = pool.producer(name, dtype="uint8", shape=(4096,), slots=64, metadata={"exposure_ms": 5.0})
    with Recorder(pool, [name], tmp_path, segment_bytes=20_000) as recorder:
        inp = pool.consumer(name)
        wait_until(lambda: out.stats.consumers == 2 and "exposure_ms" in inp.metadata)
        for value in range(20):
            out.publish(np.full(4096, value, "uint8"))
        recorded_up_to(recorder, name, 19)
    directory = stream_directory(tmp_path, name)
    segments = load_catalogue(directory).segments
    assert len(segments) > 2
    for segment in segments[1:]:
        first = next(iter(read_rows(directory / segment.file)))
        assert (first.row.kind, first.row.meta_version) == ("metadata", 1)
        assert b"exposure_ms" in bytes(first.values)
    assert [segment.first_seq for segment in segments] == sorted({segment.first_seq for segment in segments})


def test_recording_goes_on_in_the_same_directory_and_in_another_epoch(pool, name, tmp_path):
    for _ in range(2):
        with (
            pool.producer(name, dtype="uint8", shape=(4,), slots=64) as out,
            Recorder(pool, [name], tmp_path) as recorder,
        ):
            wait_until(lambda out=out: out.stats.consumers)
            for value in range(3):
                out.publish(np.full(4, value, "uint8"))
            recorded_up_to(recorder, name, 2)
    rows = [frame.row for frame in frames_of(tmp_path, name)]
    assert [row.seq for row in rows] == [0, 1, 2, 0, 1, 2]
    assert rows[0].epoch < rows[3].epoch
    assert gaps_of(tmp_path, name) == []


def test_a_stream_that_is_not_there_yet_is_waited_for(pool, name, tmp_path):
    with (
        Recorder(pool, [name], tmp_path) as recorder,
        pool.producer(name, dtype="uint8", shape=(4,), slots=64) as out,
    ):
        wait_until(lambda: out.stats.consumers)
        out.publish(np.zeros(4, "uint8"))
        recorded_up_to(recorder, name, 0)
    assert len(frames_of(tmp_path, name)) == 1


def test_missing_numbers_are_told_as_gaps(pool, name, tmp_path):
    out = pool.producer(name, dtype="uint8", shape=(4,), slots=64)
    with Recorder(pool, [name], tmp_path) as recorder:
        wait_until(lambda: out.stats.consumers)
        out.publish(np.zeros(4, "uint8"))
        for _ in range(3):
            out.claim((4,), "uint8").abort()
        out.publish(np.zeros(4, "uint8"))
        recorded_up_to(recorder, name, 4)
    (gap,) = gaps_of(tmp_path, name)
    assert (gap.seq, gap.count, gap.status) == (1, 3, "lost")
    assert recorder.progress[name].lost == 3
    assert load_catalogue(stream_directory(tmp_path, name)).segments[0].lost == 3


def test_a_disk_that_is_too_slow_costs_frames_and_no_memory(pool, name, tmp_path, monkeypatch):
    from tensor_pool.pipeline.record import store

    gate = threading.Event()
    real = store.SegmentWriter.append

    def slow(*arguments):
        gate.wait(30)
        return real(*arguments)

    monkeypatch.setattr(store.SegmentWriter, "append", slow)
    out = pool.producer(name, dtype="uint8", shape=(1 << 16,), slots=64)
    with Recorder(pool, [name], tmp_path, max_backlog_bytes=4 << 16) as recorder:
        wait_until(lambda: out.stats.consumers)
        for value in range(30):
            out.publish(np.full(1 << 16, value, "uint8"))
        wait_until(lambda: recorder.progress[name].dropped == 26)
        assert recorder.progress[name].backlog_bytes <= 4 << 16
        gate.set()
        recorded_up_to(recorder, name, 3)
        out.publish(np.full(1 << 16, 99, "uint8"))
        recorded_up_to(recorder, name, 30)
    assert [frame.row.seq for frame in frames_of(tmp_path, name)] == [0, 1, 2, 3, 30]
    (gap,) = gaps_of(tmp_path, name)
    assert (gap.seq, gap.count, gap.status) == (4, 26, "backlog_full")


def test_silence_seals_a_segment(pool, name, tmp_path):
    out = pool.producer(name, dtype="uint8", shape=(4,), slots=64)
    with Recorder(pool, [name], tmp_path, silence_s=0.2) as recorder:
        wait_until(lambda: out.stats.consumers)
        out.publish(np.zeros(4, "uint8"))
        wait_until(lambda: recorder.progress[name].segments == 1)
        assert recorder.progress[name].durable_seq == 0
        out.publish(np.zeros(4, "uint8"))
        wait_until(lambda: recorder.progress[name].segments == 2)
    assert [frame.row.seq for frame in frames_of(tmp_path, name)] == [0, 1]


def test_only_the_newest_segments_are_kept(pool, name, tmp_path):
    out = pool.producer(name, dtype="uint8", shape=(10_000,), slots=64)
    options = RecorderOptions(segment_bytes=20_000, keep_bytes=50_000)
    with Recorder(pool, [name], tmp_path, options) as recorder:
        wait_until(lambda: out.stats.consumers)
        for value in range(20):
            out.publish(np.full(10_000, value, "uint8"))
        recorded_up_to(recorder, name, 19)
    directory = stream_directory(tmp_path, name)
    catalogue = load_catalogue(directory)
    assert catalogue.nbytes <= 50_000
    assert {path.name for path in directory.glob("*.arrow")} == {
        segment.file for segment in catalogue.segments
    }
    assert [frame.row.seq for frame in frames_of(tmp_path, name)][-1] == 19
    assert verify(tmp_path).flaws == []


def test_two_recorders_of_one_stream_into_one_directory(pool, name, tmp_path):
    with Recorder(pool, [name], tmp_path):
        with pytest.raises(tp.RegionError, match="another recorder"):
            Recorder(pool, [name], tmp_path)
        with pytest.raises(tp.RegionError, match="being recorded"):
            (stream_directory(tmp_path, name) / "catalogue.json").write_text("{}")
            verify(tmp_path, repair=True)


@pytest.mark.parametrize("streams", [[], "camera-1", ["a", "a"]])
def test_what_can_not_be_recorded(pool, tmp_path, streams):
    with pytest.raises(tp.ConfigError, match="streams="):
        Recorder(pool, streams, tmp_path)


def test_a_directory_that_can_not_be_made_is_said(pool, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tp.RegionError, match="can't record into"):
        Recorder(pool, ["camera-1"], tmp_path / "file")

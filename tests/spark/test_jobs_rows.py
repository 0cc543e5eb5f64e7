"""Jobs that need rows only: quality, latency, lineage. Expected numbers come from NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recordings import record_arrays, record_rows
from tensor_pool.errors import ConfigError
from tensor_pool.pipeline import jobs
from tensor_pool.pipeline.record.catalogue import Catalogue, save_catalogue, stream_directory

MS = 1_000_000
START_NS = 1_700_000_000_000_000_000
PIXELS = np.zeros((2, 2), "uint8")


def frame(seq, at_ns, **changes):
    return {
        "seq": seq,
        "timestamp_ns": at_ns,
        "realtime_offset_ns": START_NS,
        "recorded_ns": START_NS + at_ns + 5 * MS,
        "array": np.full((2, 2), seq % 251, "uint8"),
    } | changes


def gap(seq, count, status="lost", at_ns=0, **changes):
    return {"seq": seq, "count": count, "status": status, "timestamp_ns": at_ns} | changes


def rank(values, share):
    """The smallest value that so many don't exceed: what the jobs call a percentile."""
    return float(np.sort(np.asarray(values))[math.ceil(round(share * len(values), 6)) - 1])


@pytest.fixture(scope="module")
def many(tmp_path_factory, spark):
    """Streams of every kind in one recording."""
    directory = tmp_path_factory.mktemp("many")
    random = np.random.default_rng(11)
    steady = np.cumsum(random.integers(9 * MS, 11 * MS, 400))
    record_rows(directory, [frame(n, int(at)) for n, at in enumerate(steady)], "steady")
    rows = [frame(n, 10 * MS * n) for n in (0, 1, 2, 3, 4, 5)]
    rows += [gap(6, 2), gap(8, 3, "backlog_full"), frame(11, 110 * MS)]
    rows += [frame(14, 140 * MS)]  # 12 and 13 are not told of
    rows += [frame(15, 150 * MS), frame(15, 150 * MS)]  # twice
    rows += [frame(16, 145 * MS), frame(17, 145 * MS), frame(18, 200 * MS)]  # back, the same, late
    rows += [frame(0, 300 * MS, epoch=8), frame(1, 310 * MS, epoch=8, array=np.zeros((2, 2), "uint8"))]
    rows += [gap(2, 4, epoch=8, at_ns=320 * MS), gap(6, 3, "disk", epoch=8, at_ns=330 * MS)]
    record_rows(directory, rows, "troubled")
    record_rows(directory, [gap(5, 7)], "only-gaps")
    record_rows(directory, [frame(3, 7)], "single")
    no_clock = [frame(n, 0, realtime_offset_ns=None, array=PIXELS) for n in range(4)]
    record_rows(directory, no_clock, "<script>alert(1)</script>")
    empty = stream_directory(directory, "empty")
    empty.mkdir()
    save_catalogue(empty, Catalogue(stream_name="empty", stream_id=3))
    return directory, steady, spark.read.format("tensorpool").load(str(directory))


@pytest.fixture(scope="module")
def judged(many):
    found = jobs.quality(many[2], streams=["empty"], read_bytes=True)
    return found, {stream.stream: stream for stream in found.streams}


def test_quality_of_a_steady_stream(many, judged):
    _, steady, _ = many
    stream = judged[1]["steady"]
    periods = np.diff(steady)
    median = rank(periods, 0.5)
    jitter = np.abs(periods - median)
    assert (stream.frames, stream.missing_frames, stream.longest_gap, stream.duplicates) == (400, 0, 0, 0)
    assert stream.nbytes == 1600
    assert stream.median_period_s == pytest.approx(median / 1e9, rel=1e-12)
    assert stream.rate_hz == pytest.approx(399e9 / (steady[-1] - steady[0]), rel=1e-12)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert getattr(stream, f"jitter_{name}_s") == pytest.approx(rank(jitter, share) / 1e9, rel=1e-9)
    assert stream.longest_silence_s == pytest.approx(periods.max() / 1e9)
    assert (stream.verdict, stream.findings, stream.damaged) == ("ok", [], {})
    assert sum(part.frames for part in stream.slices) == 400
    assert stream.first_time.startswith("2023-11-14T22:13:20")


def test_quality_of_a_troubled_stream(judged):
    stream = judged[1]["troubled"]
    assert stream.missing == {"backlog_full": 3, "disk": 3, "lost": 6, "unexplained": 2}
    assert (stream.frames, stream.missing_frames, stream.duplicates) == (14, 14, 1)
    assert stream.missing_share == pytest.approx(0.5)
    assert stream.longest_gap == 7  # two reasons in a row, after the last frame
    assert (stream.backwards_stamps, stream.repeated_stamps, stream.late) == (1, 1, 1)
    assert (stream.epochs, stream.restarts) == (2, 1)
    assert stream.longest_silence_s == pytest.approx(0.060)  # from 50 to 110 ms
    assert stream.duration_s == pytest.approx(0.210)
    assert stream.rate_hz == pytest.approx((11 + 1) / 0.210)
    assert stream.verdict == "bad"
    named = {finding.measure: finding.verdict for finding in stream.findings}
    assert named["missing_share"] == "bad"
    assert {"duplicates", "backwards_stamps", "repeated_stamps", "restarts"} <= named.keys()


def test_quality_says_what_can_not_be_told(judged):
    found, streams = judged
    assert set(streams) == {"steady", "troubled", "only-gaps", "single", "<script>alert(1)</script>", "empty"}
    assert (streams["only-gaps"].frames, streams["only-gaps"].missing) == (0, {"lost": 7})
    assert (streams["only-gaps"].longest_gap, streams["only-gaps"].verdict) == (7, "bad")
    assert (streams["empty"].frames, streams["empty"].verdict) == (0, "bad")
    single = streams["single"]
    assert (single.frames, single.rate_hz, single.median_period_s, single.verdict) == (1, None, None, "ok")
    no_clock = streams["<script>alert(1)</script>"]
    assert (no_clock.first_time, no_clock.rate_hz, no_clock.repeated_stamps) == (None, None, 3)
    assert no_clock.frozen == 3
    assert found.has_problems


def test_quality_reads_bytes_when_asked(load, tmp_path):
    recording = record_rows(tmp_path, [frame(n, 10 * MS * n) for n in range(20)])
    (path,) = recording["camera-1"].place.local.glob("*.arrow")
    content = bytearray(path.read_bytes())
    content[content.index(bytes([13] * 4))] ^= 0xFF
    path.write_bytes(content)
    (unread,) = jobs.quality(load(tmp_path)).streams
    (read,) = jobs.quality(load(tmp_path), read_bytes=True).streams
    assert (unread.damaged, unread.verdict) == (None, "ok")
    assert (read.damaged, read.verdict, read.frames) == ({"damaged": 1}, "bad", 20)


def test_limits_can_be_others(load, tmp_path):
    record_rows(tmp_path, [frame(0, 0), gap(1, 1), frame(2, 20 * MS)])
    (strict,) = jobs.quality(load(tmp_path)).streams
    lenient = jobs.QualityLimits(missing_share=jobs.Limit(warn=0.5))
    assert (strict.verdict, jobs.quality(load(tmp_path), limits=lenient).verdict) == ("bad", "ok")


def test_latency(load, tmp_path):
    random = np.random.default_rng(5)
    late_us = np.concatenate([random.integers(500, 3_000, 990), random.integers(50_000, 90_000, 10)])
    rows = [
        frame(n, 10 * MS * n, recorded_ns=START_NS + 10 * MS * n + int(us) * 1_000)
        for n, us in enumerate(late_us)
    ]
    record_rows(tmp_path, rows, "camera")
    record_rows(tmp_path, [frame(n, n, realtime_offset_ns=None) for n in range(5)], "sensor")
    record_rows(tmp_path, [frame(0, 0, recorded_ns=START_NS - MS), gap(1, 2)], "ahead")
    ahead, camera, sensor = jobs.latency(load(tmp_path), windows=10).streams
    for name, share in (("p50_s", 0.5), ("p90_s", 0.9), ("p99_s", 0.99), ("p999_s", 0.999)):
        assert getattr(camera, name) == pytest.approx(rank(late_us, share) / 1e6), name
    assert camera.max_s == pytest.approx(late_us.max() / 1e6)
    assert camera.mean_s == pytest.approx(late_us.mean() / 1e6)
    assert (camera.frames, camera.without_clock) == (1000, 0)
    counted = {(one.from_s, one.to_s): one.frames for one in camera.histogram}
    assert counted[0.001, 0.002] == ((late_us >= 1_000) & (late_us < 2_000)).sum()
    assert sum(counted.values()) == 1000
    assert [window.frames for window in camera.windows] == [100] * 10
    assert camera.windows[-1].p99_s == pytest.approx(rank(late_us[900:], 0.99) / 1e6)
    assert (sensor.frames, sensor.without_clock, sensor.p50_s, sensor.windows) == (0, 5, None, [])
    assert (ahead.frames, ahead.negative, ahead.min_s) == (1, 1, pytest.approx(-0.001))


def test_lineage_joins_streams_by_trace_ids(load, tmp_path):
    large = 2**64 - 5  # does not fit into a signed number
    ids = [large, *range(1, 10)]
    camera = [frame(n, 100 * MS * n, trace_id=t) for n, t in enumerate(ids)]
    record_rows(tmp_path, [*camera, frame(10, 1000 * MS)], "camera")
    took_ms = [3, 5, 4, 8, 6, 9, 2, 7]
    detector = [
        frame(n, 100 * MS * n + took * MS, trace_id=t)
        for n, (t, took) in enumerate(zip(ids, took_ms, strict=False))
    ]
    detector.append(frame(8, 2000 * MS, trace_id=ids[0]))  # the first one with an id counts
    record_rows(tmp_path, detector, "a-detector")
    found = jobs.lineage(load(tmp_path))
    streams = {stream.stream: stream for stream in found.streams}
    assert (streams["camera"].frames, streams["camera"].traced, streams["camera"].traces) == (11, 10, 10)
    (stage,) = found.stages
    assert (stage.source, stage.target, stage.traces) == ("camera", "a-detector", 8)  # by time, not by name
    assert stage.p50_s == pytest.approx(rank(took_ms, 0.5) / 1e3)
    assert stage.max_s == pytest.approx(0.009)
    assert [(path.streams, path.traces) for path in found.paths] == [
        (["camera", "a-detector"], 8),
        (["camera"], 2),
    ]
    assert (found.traces, found.joined) == (10, 8)
    assert found.examples[0].trace_id == large
    assert [(one.stream, one.seq) for one in found.examples[0].frames] == [("camera", 0), ("a-detector", 0)]


def test_lineage_without_trace_ids_says_so(load, tmp_path):
    record_arrays(tmp_path, [PIXELS] * 3)
    found = jobs.lineage(load(tmp_path))
    assert (found.traces, found.stages, found.streams[0].traced) == (0, [], 0)
    assert "No frame has a trace id" in found.report().notes[0]


def test_other_tables_are_refused(spark):
    for job in (jobs.quality, jobs.latency, jobs.lineage, jobs.statistics):
        with pytest.raises(ConfigError, match="the table lacks stream_id"):
            job(spark.range(3))

"""Recordings as tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from recordings import OFFSET_NS, record, record_arrays
from tensor_pool.pipeline import spark as tps
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.spark.recording_reader import parts_of

FRAMES = [0, 1, 2, 3, 4, 5, 6, *range(10, 20)]


@pytest.fixture
def recording(tmp_path):
    record(tmp_path)
    return tmp_path


def seqs(df):
    return sorted(row.seq for row in df.select("seq", "status").collect() if row.status == "ok")


def test_each_frame_is_a_row_and_each_run_of_missing_ones_too(load, recording):
    rows = {row.seq: row for row in load(recording).collect()}
    assert sorted(rows) == sorted([*FRAMES, 7])
    gap = rows[7].asDict()
    assert (gap["status"], gap["count"], gap["ref"]) == ("lost", 3, None)
    frame = rows[5].asDict(recursive=True)
    ref = frame.pop("ref")
    assert frame.pop("event_time").timestamp() == pytest.approx((OFFSET_NS + 500) / 1e9, abs=1e-6)
    assert frame.pop("recorded_time").timestamp() == 0
    assert frame == {
        "stream_id": 10_000,
        "stream_name": "camera/1",
        "epoch": 7,
        "seq": 5,
        "timestamp_ns": 500,
        "dtype": "uint16",
        "shape": [2, 3],
        "strides": [6, 2],
        "order": "C",
        "nbytes": 12,
        "meta_version": 0,
        "trace_id": None,
        "status": "ok",
        "count": 1,
    }
    assert (ref["kind"], ref["length"]) == ("segment", 12)
    assert ref["uri"].startswith(recording.as_uri())


def test_a_row_leads_to_its_tensor_wherever_it_is_asked_for(load, recording):
    for row in load(recording).filter("status = 'ok'").collect():
        assert tps.load_tensor(row.asDict(recursive=True)).tolist() == [[row.seq] * 3] * 2
        assert tps.load_tensor(row).tolist() == [[row.seq] * 3] * 2


def test_bytes_travel_for_who_asks_for_them(load, recording):
    rows = {row.seq: row for row in load(recording, payload="bytes").collect()}
    assert "ref" not in rows[0].asDict()
    assert [np.frombuffer(rows[seq]["values"], "uint16").tolist() for seq in FRAMES] == [
        [s] * 6 for s in FRAMES
    ]
    assert rows[7]["values"] is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startSeq": 15}, range(15, 20)),
        ({"endSeq": 2}, range(3)),
        ({"startTs": OFFSET_NS + 1_500}, range(15, 20)),
        ({"startTs": "1970-01-01T00:00:00.001001Z", "endTs": "1970-01-01T00:00:00.001002Z"}, range(10, 20)),
        ({"startSeq": 20}, []),
        ({"stream": "camera/1"}, FRAMES),
    ],
    ids=str,
)
def test_options_choose(load, recording, options, expected):
    assert [s for s in seqs(load(recording, **options)) if s < 20] == [
        s for s in expected if s not in (7, 8, 9)
    ]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("seq >= 15", range(15, 20)),
        ("seq = 12", [12]),
        ("seq < 2", range(2)),
        ("stream_name = 'nobody'", []),
        ("stream_name in ('camera/1', 'nobody') and seq > 18", [19]),
        ("event_time < '1970-01-01 00:00:00.001'", []),
        ("event_time >= '1970-01-01 00:00:00.001001'", range(10, 20)),
    ],
)
def test_filters_keep_segments_closed(load, recording, where, expected):
    """Those that no filter lets through may as well be missing."""
    stream = Recording(recording)["camera/1"]
    unneeded = [
        segment
        for segment in stream.catalogue.segments
        if not set(expected) & set(range(segment.min_seq, segment.max_seq + 1))
    ]
    assert unneeded
    for segment in unneeded:
        (stream.place.local / segment.file.replace(".arrow", ".rows")).unlink()
    assert seqs(load(recording, filterPushdown=True).filter(where)) == list(expected)


def test_a_table_has_all_rows_whatever_was_asked_of_it_before(load, recording):
    """Spark keeps the filters that a reader has taken in the table."""
    table = load(recording)
    few, others = table.filter("seq < 5"), table.filter("seq >= 5")
    assert (few.count(), table.count()) == (5, 18)
    assert (few.union(others).count(), few.crossJoin(others).count()) == (18, 5 * 13)
    assert table.filter("stream_name = 'nobody'").count() == 0
    assert table.count() == 18


def test_several_streams_are_one_table(load, tmp_path):
    record(tmp_path, "a")
    record(tmp_path, "b", epoch=8)
    table = load(tmp_path)
    found = {
        (row.stream_name, row.epoch) for row in table.select("stream_name", "epoch").distinct().collect()
    }
    assert found == {("a", 7), ("b", 8)}
    assert seqs(load(tmp_path, stream="b")) == FRAMES
    assert table.filter("stream_name = 'a'").count() == len(FRAMES) + 1


def test_large_segments_are_cut_into_tasks(load, tmp_path):
    record(tmp_path, frames=100, segment_bytes=1 << 20)
    assert len(Recording(tmp_path)["camera/1"].catalogue.segments) == 1
    table = load(tmp_path, partitionBytes=10_000)
    assert table.rdd.getNumPartitions() > 3
    assert seqs(table) == [*range(7), *range(10, 100)]


@pytest.mark.parametrize(
    ("share", "tasks"),
    [(0.3, 1), (1.0, 1), (1.4, 1), (1.6, 2), (2.02, 2), (10.0, 10), (1e6, 100)],
)
def test_tasks_are_about_as_long_as_each_other(tmp_path, share, tasks):
    record(tmp_path, frames=100, segment_bytes=1 << 20)
    stream = Recording(tmp_path)["camera/1"]
    (segment,) = stream.catalogue.segments
    parts = list(parts_of(stream, segment, int(segment.nbytes / share) or 1))
    rows = [(part.first_row, part.end_row) for part in parts]
    assert (rows[0][0], rows[-1][1]) == (0, segment.rows)
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(rows))
    lengths = {end - first for first, end in rows}
    assert max(lengths) - min(lengths) <= 1
    assert len(parts) == min(tasks, segment.rows)


def test_the_format_is_found_without_being_registered(spark):
    """By the name of the package ``pyspark_tensorpool``, as a session that others made does."""
    import pyspark_tensorpool

    assert pyspark_tensorpool.DefaultSource.name() == "tensorpool"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"payload": "pictures"}, "payload"),
        ({"nonsense": 1}, "unknown option 'nonsense'"),
        ({"startTs": "yesterday"}, "a time like"),
        ({"partitionBytes": 0}, "partitionBytes=0"),
        ({"stream": "camera-2"}, "no stream camera-2"),
        ({"mode": "live"}, "no stream"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(load, recording, options, said):
    with pytest.raises(Exception, match=said):
        load(recording, **options).count()


def test_no_recording_is_said(load, tmp_path):
    with pytest.raises(Exception, match="there is no recording in"):
        load(tmp_path).count()


@pytest.mark.parametrize("payload", ["ref", "bytes"])
def test_a_missing_segment_ends_the_query_or_becomes_a_row(load, recording, payload):
    stream = Recording(recording)["camera/1"]
    lost = stream.catalogue.segments[1]
    for ending in (".arrow", ".rows"):
        (stream.place.local / lost.file.replace(".arrow", ending)).unlink()
    with pytest.raises(Exception, match=r"00000002\.rows is missing"):
        load(recording, payload=payload).collect()
    rows = load(recording, payload=payload, failOnDataLoss=False).collect()
    (told,) = (row for row in rows if row.status == "segment_missing")
    assert told["count"] == lost.frames + lost.lost
    counted = sum(row["count"] for row in rows)
    assert counted == 20


def test_a_damaged_table_of_rows_is_data_loss_too(load, recording):
    stream = Recording(recording)["camera/1"]
    path = stream.place.local / "00000002.rows"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Exception, match="is damaged"):
        load(recording).count()
    assert load(recording, failOnDataLoss=False).filter("status = 'segment_missing'").count() == 1


def test_mixed_types_and_empty_tensors(load, tmp_path):
    arrays = [
        np.arange(6, dtype="float64").reshape(2, 3),
        np.zeros((0, 4), "uint8"),
        np.asfortranarray(np.arange(6, dtype="int16").reshape(2, 3)),
        np.array(5, "uint64"),
    ]
    record_arrays(tmp_path, arrays)
    for payload in ("ref", "bytes"):
        rows = sorted(load(tmp_path, payload=payload).collect(), key=lambda row: row.seq)
        for row, array in zip(rows, arrays, strict=True):
            loaded = tps.load_tensor(row.asDict(recursive=True))
            assert loaded.dtype == array.dtype
            assert np.array_equal(loaded, array)
            assert tuple(row.strides) == (array.strides if array.size else tuple(row.strides))

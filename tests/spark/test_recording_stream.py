"""Following recordings: each recorded row once, also over restarts, retention and limits."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from recordings import record
from tensor_pool.errors import ConfigError, RegionError
from tensor_pool.pipeline.record.catalogue import load_catalogue, save_catalogue
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.spark.options import parse_options
from tensor_pool.pipeline.spark.recording_stream import RecordingStreamReader

FRAMES = [0, 1, 2, 3, 4, 5, 6, *range(10, 20)]


@pytest.fixture
def recording(tmp_path):
    record(tmp_path / "recording")
    return tmp_path / "recording"


def reader(recording, **options):
    return RecordingStreamReader(parse_options({"path": str(recording)} | options))


def rows_between(source, start, end):
    return [
        row
        for part in source.partitions(start, end)
        for batch in source.read(part)
        for row in batch.to_pylist()
    ]


def batches(source, limit, start=None):
    """All batches that a query would read, one after the other."""
    start = source.initialOffset() if start is None else start
    found = []
    while (end := source.latestOffset(start, limit)) != start:
        found.append(rows_between(source, start, end))
        start = end
    return found, start


@pytest.mark.parametrize(
    "limit", [ReadAllAvailable(), ReadMaxRows(1), ReadMaxRows(5), ReadMaxBytes(2_000)], ids=str
)
def test_batches_have_every_row_once_whatever_their_size(recording, limit):
    found, end = batches(reader(recording), limit)
    seqs = [row["seq"] for batch in found for row in batch]
    assert seqs == sorted([*FRAMES, 7])
    if isinstance(limit, ReadMaxRows):
        assert max(len(batch) for batch in found) <= limit.max_rows
    assert batches(reader(recording), limit, end) == ([], end)


def test_the_same_offsets_mean_the_same_rows_after_a_restart(recording):
    first, second = reader(recording), reader(recording)
    middle = first.latestOffset(first.initialOffset(), ReadMaxRows(7))
    record(recording, "another")
    assert rows_between(first, {}, middle) == rows_between(second, {}, middle)


def test_what_is_added_later_comes_later_and_not_when_all_was_asked_for_now(recording):
    source = reader(recording)
    _, end = batches(source, ReadAllAvailable())
    source.prepareForTriggerAvailableNow()
    record(recording, "later", frames=5)
    assert source.latestOffset(end, ReadAllAvailable()) == end
    found, _ = batches(reader(recording), ReadAllAvailable(), end)
    assert [row["stream_name"] for batch in found for row in batch] == ["later"] * 5


def test_limits_are_shared_by_streams(recording):
    record(recording, "another")
    found, _ = batches(reader(recording), ReadMaxRows(6))
    assert {row["stream_name"] for row in found[0]} == {"another", "camera/1"}
    assert len(found[0]) <= 6
    assert sum(len(batch) for batch in found) == 2 * (len(FRAMES) + 1)


def test_segments_that_were_removed_before_are_data_loss(recording):
    source = reader(recording)
    middle = source.latestOffset({}, ReadMaxRows(3))
    stream = Recording(recording)["camera/1"]
    catalogue = load_catalogue(stream.place)
    catalogue.removed_through = 3
    catalogue.segments = catalogue.segments[3:]
    save_catalogue(stream.place.local, catalogue)
    end = source.latestOffset(middle, ReadAllAvailable())
    with pytest.raises(RegionError, match=r"segments up to 3 .* were removed"):
        source.partitions(middle, end)
    rows = rows_between(reader(recording, failOnDataLoss="false"), middle, end)
    assert (rows[0]["status"], rows[0]["seq"]) == ("removed", catalogue.segments[0].first_seq)
    assert [row["seq"] for row in rows[1:]][-1] == 19
    fresh = rows_between(reader(recording), {}, end)
    assert [row["status"] for row in fresh].count("removed") == 0, "who begins now has missed nothing"


def test_a_recording_that_never_appears_ends_the_query(tmp_path):
    source = reader(tmp_path, waitSeconds="0")
    with pytest.raises(RegionError, match="no recording"):
        source.latestOffset({}, ReadAllAvailable())
    assert reader(tmp_path).latestOffset({}, ReadAllAvailable()) == {}, "it is waited for"


def test_two_limits_are_refused(recording):
    with pytest.raises(ConfigError, match="two limits"):
        reader(recording, maxFramesPerTrigger="1", maxBytesPerTrigger="1")


def test_a_query_goes_on_where_it_ended(spark, recording, tmp_path):
    """Into files, with a checkpoint: twice with new data in between, each row once."""

    def run():
        table = spark.readStream.format("tensorpool").option("maxFramesPerTrigger", 4).load(str(recording))
        query = (
            table.select("stream_name", "seq", "status", "count")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        query.awaitTermination()
        return query

    run()
    record(recording, "later", frames=5)
    run()
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted((row.stream_name, row.seq) for row in rows) == sorted(
        [*(("camera/1", seq) for seq in [*FRAMES, 7]), *(("later", seq) for seq in range(5))]
    )

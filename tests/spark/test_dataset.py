"""Training sets from Spark, and back."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from deltalake import DeltaTable

from recordings import OFFSET_NS, record, record_arrays
from s3_server import s3_server
from tensor_pool.errors import ConfigError, RegionError
from tensor_pool.pipeline import jobs
from tensor_pool.pipeline import spark as tps
from tensor_pool.pipeline.dataset import Samples, load_manifest, verify_dataset
from tensor_pool.pipeline.dataset.schema import dataset_schema
from tensor_pool.pipeline.dataset.splits import hash_splits
from tensor_pool.pipeline.spark.schema import arrow_schema

FRAMES = [0, 1, 2, 3, 4, 5, 6, *range(10, 20)]
SPLITS = {"train": 0.6, "val": 0.4}


@pytest.fixture
def recording(tmp_path):
    record(tmp_path / "recording")
    return tmp_path / "recording"


def by_seq(samples):
    return {sample["seq"]: sample for sample in samples}


def test_the_columns_are_those_of_the_format_and_two_more():
    names = arrow_schema("bytes").names
    assert dataset_schema().names == [*names, "split", "crc32c"]
    assert dataset_schema().types[: len(names)] == arrow_schema("bytes").types


@pytest.mark.parametrize("payload", ["ref", "bytes"])
def test_every_frame_is_a_sample_and_gaps_are_counted(spark, load, recording, tmp_path, payload):
    path = tmp_path / "dataset"
    manifest = tps.write_dataset(load(recording, payload=payload), path, splits=SPLITS, row_group_bytes=24)
    samples = by_seq(Samples(path))
    assert sorted(samples) == FRAMES
    for seq, sample in samples.items():
        assert sample.array.tolist() == [[seq] * 3] * 2
        assert sample["split"] == hash_splits(SPLITS).of_frame("camera/1", 7, seq)
    counts = manifest.streams["camera/1"]
    assert (sum(counts.frames.values()), counts.missing) == (17, {"lost": 3})
    assert manifest.sources == ([f"{recording.as_uri()}/camera%252F1"] if payload == "ref" else [])
    assert manifest == load_manifest(path)
    check = verify_dataset(path)
    assert (check.ok, check.rows, check.unnamed) == (True, 17, [])
    assert {rows for file in manifest.files for rows in file.row_groups} <= {1, 2}


def test_everybody_reads_it(spark, load, recording, tmp_path):
    path = tmp_path / "dataset"
    tps.write_dataset(load(recording), path, splits=SPLITS)
    (path / "train" / "left-by-a-crash.parquet").write_bytes(b"half a file")
    table = tps.read_dataset(spark, path)
    means = tps.map_tensors(table, lambda t: float(t.mean()), "mean double").collect()
    assert {row.seq: row.mean for row in means} == {seq: float(seq) for seq in FRAMES}
    delta = DeltaTable(str(path))
    frame = delta.to_pandas(filters=[("split", "=", "val")])
    val = {row.seq for row in tps.read_dataset(spark, path, split="val").select("seq").collect()}
    assert set(frame["seq"]) == val
    assert 0 < len(val) < len(FRAMES)
    assert [np.frombuffer(v, "uint16")[0] for v in frame["values"]] == frame["seq"].tolist()
    (path / "train" / "left-by-a-crash.parquet").unlink()
    plain = pd.concat(pd.read_parquet(path / split) for split in SPLITS)
    assert sorted(plain["seq"]) == FRAMES
    assert str(plain["event_time"].dtype) == "datetime64[us, UTC]"


def test_transforms_change_leave_out_and_labels_stay(spark, load, recording, tmp_path):
    labels = spark.createDataFrame(
        [(seq, f"label {seq}", seq / 2) for seq in FRAMES], "seq long, label string, x double"
    )
    table = load(recording).join(labels, "seq")

    def middle(array, row):
        return None if row["seq"] == 4 else np.asfortranarray(array[:, :2].astype(">f4") + 0.5)

    manifest = tps.write_dataset(
        table,
        tmp_path / "set",
        where="seq < 12",
        transform=middle,
        columns=["label", "x"],
        compression="zstd",
    )
    assert manifest.streams["camera/1"].left_out == 1
    samples = by_seq(Samples(tmp_path / "set", columns=["label", "x"]))
    assert sorted(samples) == [0, 1, 2, 3, 5, 6, 10, 11]
    assert samples[5].array.tolist() == [[5.5, 5.5], [5.5, 5.5]]
    assert (samples[5]["dtype"], samples[5]["order"]) == ("float32", "F")
    assert (samples[5]["label"], samples[5]["x"]) == ("label 5", 2.5)
    assert verify_dataset(tmp_path / "set").ok
    assert manifest.options.where == "seq < 12"
    assert manifest.options.transform.endswith("middle")


def test_splits_by_time(load, recording, tmp_path):
    table = load(recording)
    record(tmp_path / "long", frames=200, segment_bytes=1 << 20)
    halves = {"a": 0.5, "b": 0.5}
    manifest = tps.write_dataset(load(tmp_path / "long"), tmp_path / "fractions", splits=halves, by="time")
    # Spark counts microseconds, in which ten frames lie; a moment is not cut in two.
    assert manifest.frames == {"a": 107, "b": 90}
    moment = dt.datetime.fromtimestamp(OFFSET_NS / 1e9, dt.UTC)
    until = {"early": moment.isoformat(), "late": None}
    manifest = tps.write_dataset(table, tmp_path / "moments", splits=until, by="time")
    assert manifest.frames == {"early": 7, "late": 10}
    assert {s["seq"] for s in Samples(tmp_path / "moments", split="early")} == set(range(7))


def test_the_same_frames_have_the_same_hash_in_whatever_files(load, recording, tmp_path):
    one = tps.write_dataset(load(recording), tmp_path / "one", splits=SPLITS)
    other = tps.write_dataset(
        load(recording).repartition(1), tmp_path / "other", splits=SPLITS, row_group_bytes=12, file_bytes=60
    )
    assert len(one.files) != len(other.files)
    assert one.hash == other.hash
    more = tps.write_dataset(load(recording, endSeq=18), tmp_path / "more", splits=SPLITS)
    assert more.hash != one.hash


def test_appending_is_asked_for_and_needs_the_same_options(load, recording, tmp_path):
    path = tmp_path / "set"
    tps.write_dataset(load(recording, endSeq=9), path, splits=SPLITS)
    with pytest.raises(ConfigError, match="there is a training set in"):
        tps.write_dataset(load(recording), path, splits=SPLITS)
    with pytest.raises(ConfigError, match="splits was"):
        tps.write_dataset(load(recording, startSeq=10), path, mode="append")
    whole = tps.write_dataset(load(recording, startSeq=10), path, splits=SPLITS, mode="append")
    assert sum(whole.frames.values()) == 17
    assert sum(load_manifest(path, version=1).frames.values()) == 7
    assert verify_dataset(path).unnamed  # of the one that was refused


def test_damaged_frames_are_counted_and_odd_tensors_kept(load, tmp_path):
    arrays = [
        np.zeros((0, 4), "uint8"),
        np.array(5, "uint64"),
        np.asfortranarray(np.eye(3)),
        np.full(6, 13, "u2"),
    ]
    recorded = record_arrays(tmp_path / "recording", arrays)
    (path,) = recorded["camera-1"].place.local.glob("*.arrow")
    content = bytearray(path.read_bytes())
    content[content.index(arrays[3].tobytes())] ^= 0xFF
    path.write_bytes(content)
    manifest = tps.write_dataset(load(tmp_path / "recording"), tmp_path / "set")
    assert manifest.streams["camera-1"].missing == {"damaged": 1}
    samples = by_seq(Samples(tmp_path / "set"))
    for seq in range(3):
        assert samples[seq].array.dtype == arrays[seq].dtype
        assert np.array_equal(samples[seq].array, arrays[seq])
    assert samples[2].array.flags.f_contiguous


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"splits": {"train": 0.5}}, "1 together"),
        ({"splits": {"../evil": 1.0}}, "names are those of directories"),
        ({"splits": {}}, "no splits"),
        ({"by": "colour"}, "hash or time"),
        ({"mode": "overwrite"}, "error or append"),
        ({"columns": ["label"]}, "lacks label"),
        ({"columns": ["seq"]}, "two columns are called seq"),
        ({"compression": "zip"}, "none, zstd"),
        ({"row_group_bytes": 0}, "row_group_bytes=0"),
        ({"transform": "negate"}, "a function of an array"),
    ],
    ids=str,
)
def test_wrong_calls_are_refused_before_anything_runs(load, recording, tmp_path, options, said):
    with pytest.raises(ConfigError, match=said):
        tps.write_dataset(load(recording), tmp_path / "set", **options)
    assert not (tmp_path / "set").exists()


def test_a_failing_transform_names_its_frame_and_commits_nothing(spark, load, recording, tmp_path):
    def divide(array):
        return array if array[0, 0] < 15 else {}["x"]

    with pytest.raises(Exception, match=r"the transform failed for frame 1\d of camera/1: KeyError"):
        tps.write_dataset(load(recording), tmp_path / "set", transform=divide)
    assert not (tmp_path / "set" / "_delta_log").exists()
    with pytest.raises(RegionError, match="there is no training set in"):
        tps.read_dataset(spark, tmp_path / "set")
    with pytest.raises(Exception, match="returned float for frame"):
        tps.write_dataset(load(recording), tmp_path / "set", transform=lambda a: float(a.mean()))


def test_batches_of_a_stream_are_commits_and_repeated_ones_are_skipped(spark, load, recording, tmp_path):
    stream = spark.readStream.format("tensorpool").option("maxFramesPerTrigger", 5).load(str(recording))
    sink = tps.dataset_sink(tmp_path / "set", splits=SPLITS)
    calls = []

    def twice(df, batch):
        """As if the query had died after each commit."""
        sink(df, batch)
        sink(df, batch)
        calls.append(batch)

    query = (
        stream.writeStream.foreachBatch(twice)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert query.exception() is None
    manifest = load_manifest(tmp_path / "set")
    assert sorted(by_seq(Samples(tmp_path / "set"))) == FRAMES
    assert sum(manifest.frames.values()) == 17
    assert manifest.missing == 3
    assert [commit.batch for commit in manifest.commits] == calls
    assert {commit.query for commit in manifest.commits} == {str(query.id)}
    assert len(calls) > 2
    with pytest.raises(ConfigError, match="this table is a stream"):
        tps.write_dataset(stream, tmp_path / "other")
    with pytest.raises(ConfigError, match="Spark does not say which query"):
        sink(load(recording), 99)
    with pytest.raises(ConfigError, match="give times"):
        tps.dataset_sink(tmp_path / "other", splits=SPLITS, by="time")


@pytest.fixture
def bucket(tmp_path):
    with s3_server(tmp_path / "s3") as server:
        yield server


@pytest.fixture
def credentials(bucket, with_credentials):
    with with_credentials(bucket):
        yield


@pytest.mark.usefixtures("credentials")
def test_an_object_store_is_as_good_as_a_directory(spark, load, recording, bucket, tmp_path):
    uri = bucket.uri(path="sets/one", credentials=False)
    manifest = tps.write_dataset(load(recording), uri, splits=SPLITS)
    assert sorted(by_seq(Samples(uri))) == FRAMES
    assert verify_dataset(uri).ok
    rows = tps.read_dataset(spark, uri, split="val")
    firsts = tps.map_tensors(rows, lambda t: int(t[0, 0]), "first long").collect()
    assert sorted(row.first for row in firsts) == sorted(
        seq for seq in FRAMES if hash_splits(SPLITS).of_frame("camera/1", 7, seq) == "val"
    )
    other = bucket.uri(path="sets/by-job", credentials=False)
    job = jobs.training_set(load(recording), tmp_path, splits=SPLITS, dataset=other)
    assert (job.hash, job.dataset) == (manifest.hash, "s3://tensors/sets/by-job")
    with pytest.raises(ConfigError, match="s3://tensors/sets/by-job is not empty"):
        jobs.training_set(load(recording), tmp_path, dataset=other)
    tps.write_dataset(load(recording), uri, splits=SPLITS, mode="append")
    assert sum(load_manifest(uri).frames.values()) == 34
    text = (bucket.filesystem().open_input_file("tensors/sets/one/_manifest.json").read()).decode()
    assert bucket.secret_key not in text + repr(manifest)

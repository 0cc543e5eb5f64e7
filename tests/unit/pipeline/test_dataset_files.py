"""Files, log and manifest of training sets: what is committed is there, what is damaged is found."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from datasets import frame_row, make_dataset
from tensor_pool.errors import (
    ConfigError,
    FrameTooLargeError,
    MalformedMessageError,
    RegionError,
    TensorLayoutError,
)
from tensor_pool.pipeline.dataset import Samples, load_manifest, vacuum_dataset, verify_dataset
from tensor_pool.pipeline.dataset.files import SplitFiles
from tensor_pool.pipeline.dataset.log import DatasetLog
from tensor_pool.pipeline.dataset.manifest import MANIFEST, read_manifest
from tensor_pool.pipeline.dataset.options import DatasetOptions
from tensor_pool.pipeline.dataset.schema import VALUES, dataset_schema
from tensor_pool.pipeline.dataset.splits import Splits, hash_splits, time_splits, time_us
from tensor_pool.pipeline.record.place import Place

HALVES = hash_splits({"train": 0.5, "val": 0.5})


def test_row_groups_and_files_are_bounded(tmp_path):
    manifest = make_dataset(tmp_path, range(100), row_group_bytes=320, file_bytes=1_000)
    assert {file.tensor_bytes for file in manifest.files} == {1_024, 128}
    assert manifest.files[0].row_groups == (10, 10, 10, 2)
    footer = pq.read_metadata(tmp_path / manifest.files[0].path)
    values = footer.schema.names.index(VALUES)
    column = footer.row_group(0).column(values)
    assert column.statistics is None
    assert column.dictionary_page_offset is None
    assert footer.row_group(0).column(footer.schema.names.index("seq")).statistics.max == 9


def test_the_log_lets_readers_leave_files_out(tmp_path):
    make_dataset(tmp_path, range(50), splits=HALVES)
    table = DeltaTable(tmp_path)
    actions = pa.table(table.get_add_actions(flatten=True))
    assert set(actions["min.split"].to_pylist()) == {"train", "val"}
    assert sum(actions["num_records"].to_pylist()) == 50
    assert (
        table.to_pyarrow_table(filters=[("split", "=", "val")]).num_rows
        == load_manifest(tmp_path).frames["val"]
    )


def test_a_batch_is_committed_once(tmp_path):
    make_dataset(tmp_path, range(10), query="q", batch=0)
    assert make_dataset(tmp_path, range(10), query="q", batch=0) is None
    make_dataset(tmp_path, range(10, 20), query="q", batch=1)
    assert make_dataset(tmp_path, range(10), query="q", batch=0) is None
    make_dataset(tmp_path, range(20, 30), query="another", batch=0)
    assert [sample["seq"] for sample in Samples(tmp_path)] == list(range(30))
    assert len(verify_dataset(tmp_path).unnamed) == 2


def test_a_batch_that_somebody_else_commits_meanwhile_is_not_committed_again(tmp_path, monkeypatch):
    """A query that was thought dead, and its successor."""
    make_dataset(tmp_path, range(5))
    seen_before = DeltaTable(tmp_path)
    make_dataset(tmp_path, range(5, 10), query="q", batch=0)
    looks = iter([seen_before])
    table = DatasetLog.table
    monkeypatch.setattr(
        DatasetLog, "table", lambda log, version=None: next(looks, None) or table(log, version)
    )
    assert make_dataset(tmp_path, range(5, 10), query="q", batch=0) is None
    assert sum(load_manifest(tmp_path).frames.values()) == 10


def test_the_manifest_can_be_lost(tmp_path):
    manifest = make_dataset(tmp_path, range(10), splits=HALVES)
    make_dataset(tmp_path, range(10, 20), splits=HALVES)
    whole = load_manifest(tmp_path)
    wrong_hash = (tmp_path / MANIFEST).read_text().replace('"hash": "', '"hash": "zz')
    for content in ("", "{}", wrong_hash, None):
        (tmp_path / MANIFEST).unlink() if content is None else (tmp_path / MANIFEST).write_text(content)
        assert load_manifest(tmp_path) == whole
        assert verify_dataset(tmp_path).problems
    assert load_manifest(tmp_path, version=1) == manifest
    make_dataset(tmp_path, range(20, 30), splits=HALVES)
    assert read_manifest(Place(tmp_path)) == load_manifest(tmp_path)
    assert verify_dataset(tmp_path).ok


def test_a_manifest_that_lies_is_found(tmp_path):
    make_dataset(tmp_path, range(10))
    path = tmp_path / MANIFEST
    told = json.loads(path.read_text())
    told["commits"][0]["report"]["streams"]["camera-1"]["frames"]["train"] = 11
    path.write_text(json.dumps(told))
    assert verify_dataset(tmp_path).problems == ["_manifest.json differs from the log; remove it"]


def test_damage_is_found(tmp_path):
    manifest = make_dataset(tmp_path, range(40), row_group_bytes=320, file_bytes=320)
    flipped, cut, gone, swapped = [tmp_path / file.path for file in manifest.files]
    content = bytearray(flipped.read_bytes())
    content[content.index(np.full(16, 3, "uint16").tobytes())] ^= 1
    flipped.write_bytes(content)
    cut.write_bytes(cut.read_bytes()[:-10])
    gone.unlink()
    table = pq.read_table(swapped)
    meta = table.set_column(
        table.schema.get_field_index("timestamp_ns"), table.schema.field("timestamp_ns"), pa.array(range(10))
    )
    pq.write_table(meta.cast(table.schema), swapped, compression="none", use_dictionary=False)
    told = dict(problem.split(": ", 1) for problem in verify_dataset(tmp_path).problems)
    assert told[manifest.files[0].path] == "1 tensors are damaged"
    assert told[manifest.files[1].path].endswith("bytes, and not " + str(manifest.files[1].nbytes))
    assert told[manifest.files[2].path] == "is missing"
    assert manifest.files[3].path in told
    samples = Samples(tmp_path)
    with pytest.raises(MalformedMessageError, match=r"frame 3 in train/.* is damaged"):
        samples[3]
    assert Samples(tmp_path, check=False)[3].array[0, 0] != 3
    with pytest.raises(RegionError, match="is missing"):
        samples[25]
    with pytest.raises(RegionError, match=rf"{manifest.files[1].path} can't be read(.|\n)*copy them again"):
        samples[12]


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"a": [1]}),
        pa.Table.from_pylist([]),
        pa.table({field.name: pa.nulls(10, field.type) for field in dataset_schema()}),
    ],
    ids=["columns", "no row groups", "nulls"],
)
def test_files_that_something_else_wrote_are_said(tmp_path, other):
    (file,) = make_dataset(tmp_path, range(10)).files
    pq.write_table(other, tmp_path / file.path)
    with pytest.raises((RegionError, MalformedMessageError), match=file.path):
        Samples(tmp_path)[0]


def _broken(content, old, new):
    assert old in content
    return content.replace(old, new)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"\xff\xfe" + content,
        lambda content: b"\n".join([b'{"commitInfo": 5}', *content.splitlines()[1:]]),
        lambda content: _broken(content, b'hash\\":\\"', b'hash\\":\\"zz'),
        lambda content: _broken(content, b'rows\\":10', b'rows\\":-1'),
        lambda content: _broken(content, b'options\\"', b'optionen\\"'),
    ],
    ids=["cut", "no text", "not its type", "hash", "rows", "fields"],
)
def test_a_damaged_log_is_a_problem_with_the_name_of_its_file(tmp_path, damage):
    make_dataset(tmp_path, range(10))
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    log.write_bytes(damage(log.read_bytes()))
    (problem,) = verify_dataset(tmp_path).problems
    assert str(tmp_path) in problem
    assert "copy the training set again" in problem
    (tmp_path / MANIFEST).unlink()
    with pytest.raises((RegionError, MalformedMessageError), match="copy the training set again"):
        Samples(tmp_path)


def test_rows_that_are_not_those_that_were_written_are_found(tmp_path, monkeypatch):
    manifest = make_dataset(tmp_path, range(10))
    monkeypatch.setattr("tensor_pool.pipeline.dataset.verify.hash_rows", lambda table: 1)
    (problem,) = verify_dataset(tmp_path).problems
    assert problem == f"{manifest.files[0].path}: its rows are not those that were written"


def test_vacuum_removes_only_what_no_commit_names(tmp_path):
    make_dataset(tmp_path, range(10))
    (tmp_path / "train" / "left.parquet").write_bytes(b"half a file")
    assert verify_dataset(tmp_path).unnamed == ["train/left.parquet"]
    assert vacuum_dataset(tmp_path) == []
    assert vacuum_dataset(tmp_path, older_than_hours=0, dry_run=True) == ["train/left.parquet"]
    assert vacuum_dataset(tmp_path, older_than_hours=0) == ["train/left.parquet"]
    check = verify_dataset(tmp_path)
    assert (check.ok, check.unnamed, check.rows) == (True, [], 10)
    make_dataset(tmp_path, range(10, 20))
    assert len(Samples(tmp_path)) == 20


def test_what_was_not_finished_leaves_nothing(tmp_path):
    with SplitFiles(Place(tmp_path), dataset_schema(), DatasetOptions(splits=HALVES, file_bytes=64)) as files:
        for seq in range(20):
            files.add(frame_row(seq), np.zeros(16, "u1"))
        assert list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("*.parquet"))


def test_arrays_that_can_not_be_written_are_refused(tmp_path):
    with SplitFiles(Place(tmp_path), dataset_schema(), DatasetOptions(splits=HALVES)) as files:
        for array in (np.array([object()]), np.zeros(3, [("x", "u1")]), np.array(["word"])):
            with pytest.raises(TensorLayoutError, match="frame 5 of camera-1 is an array of"):
                files.add(frame_row(5), array)
        huge = np.broadcast_to(np.zeros(1, "u1"), (1 << 31,))
        with pytest.raises(FrameTooLargeError, match="less than 2 GiB"):
            files.add(frame_row(5), huge)
        files.add(frame_row(6), np.arange(6, dtype=">i2")[::2])
        report = files.finish()
    table = pq.read_table(tmp_path / report.files[0].path)
    assert np.frombuffer(table[VALUES][0].as_py(), "int16").tolist() == [0, 2, 4]


def test_another_program_s_commit_is_said(tmp_path):
    make_dataset(tmp_path, range(10), file_bytes=64)
    DeltaTable(tmp_path).optimize.compact()
    with pytest.raises(RegionError, match="by another program"):
        load_manifest(tmp_path)


def test_splits_by_hash_are_stable_and_close_to_their_fractions():
    splits = hash_splits({"train": 0.8, "val": 0.1, "test": 0.1})
    found = [splits.of_frame("camera-1", 1, seq) for seq in range(10_000)]
    assert [found.count(name) for name in splits.names] == pytest.approx([8_000, 1_000, 1_000], abs=150)
    assert found[:6] == ["train", "test", "train", "train", "train", "val"]  # forever
    assert found != [
        hash_splits(dict.fromkeys(splits.names, 1 / 3), seed=1).of_frame("camera-1", 1, s)
        for s in range(10_000)
    ]
    assert all(hash_splits({"none": 0.0, "all": 1.0}).of_frame("a", 1, seq) == "all" for seq in range(1_000))


def test_splits_by_time():
    splits = time_splits({"a": "1970-01-01T00:00:01Z", "b": "1970-01-01T00:00:02", "c": None})
    assert [splits.of_frame("s", 1, 1, us) for us in (0, 10**6, 10**6 + 1, 2 * 10**6, 3 * 10**6)] == list(
        "aabbc"
    )
    with pytest.raises(ConfigError, match="frame 7 of s has no time"):
        splits.of_frame("s", 1, 7, None)
    for wrong in (
        {"a": "1970-01-01T00:00:01Z", "b": "1970-01-01T00:00:02Z"},
        {"a": "1970-01-01T00:00:02Z", "b": "1970-01-01T00:00:01Z", "c": None},
        {"a": "noon", "b": None},
        {"a": 0.5, "b": 0.5},
    ):
        with pytest.raises(ConfigError):
            time_splits(wrong)
    assert isinstance(splits, Splits)
    assert time_us("1970-01-01T01:00:00+01:00") == 0


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(RegionError, match="no training set"):
        Samples(tmp_path)
    make_dataset(tmp_path, range(3))
    with pytest.raises(ConfigError, match="there is no split 'vall'"):
        Samples(tmp_path, split="vall")
    with pytest.raises(ConfigError, match="there is no column 'label'"):
        Samples(tmp_path, columns=["label"])
    with pytest.raises(RegionError, match="no version 9"):
        load_manifest(tmp_path, version=9)
    samples = Samples(tmp_path)
    assert (samples[-1]["seq"], [sample["seq"] for sample in samples[1:]]) == (2, [1, 2])
    with pytest.raises(IndexError):
        samples[3]

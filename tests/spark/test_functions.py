"""User code on tensors, where they lie."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from pyspark.sql.types import StructField, StructType

from recordings import record, record_arrays
from tensor_pool.errors import ConfigError
from tensor_pool.pipeline import spark as tps
from tensor_pool.pipeline.machine import boot_id, host_name
from tensor_pool.pipeline.record.recording import Recording


@pytest.fixture
def recording(tmp_path):
    record(tmp_path)
    return tmp_path


def by_seq(df):
    return {row.seq: row for row in df.collect()}


@pytest.mark.parametrize("payload", ["ref", "bytes"])
def test_a_function_sees_every_tensor_and_gaps_stay_rows(load, recording, payload):
    table = load(recording, payload=payload)
    rows = by_seq(tps.map_tensors(table, lambda t: (t.mean(), int(t.max())), "mean double, largest long"))
    assert [(rows[s].mean, rows[s].largest) for s in (0, 6, 19)] == [(0.0, 0), (6.0, 6), (19.0, 19)]
    assert (rows[7].status, rows[7]["count"], rows[7].mean, rows[7].largest) == ("lost", 3, None, None)


def test_results_may_be_a_value_or_a_dictionary_and_rows_may_be_asked_for(load, recording):
    table = load(recording)
    single = by_seq(tps.map_tensors(table, lambda t: float(t.sum()), "total double"))
    named = by_seq(
        tps.map_tensors(table, lambda t, row: {"b": row["seq"], "a": t.size}, "a long, b long", keep=["seq"])
    )
    assert single[5].total == 30.0
    assert (named[5].a, named[5].b) == (6, 5)
    assert named[5].asDict().keys() == {"seq", "a", "b"}


def test_arrays_can_be_returned(load, recording):
    rows = by_seq(tps.map_tensors(load(recording), lambda t: t.sum(axis=0).tolist(), "sums array<long>"))
    assert rows[4].sums == [8, 8, 8]


def test_a_column_function(load, recording):
    @tps.tensor_udf("double")
    def brightness(array):
        return float(array.mean())

    table = load(recording)
    rows = by_seq(table.select("seq", brightness(tps.tensor(table)).alias("brightness")))
    assert [rows[seq].brightness for seq in (0, 6, 7, 19)] == [0.0, 6.0, None, 19.0]


def test_a_column_function_names_its_column(load, recording):
    df = load(recording).where("status = 'ok'")

    @tps.tensor_udf("long")
    def first(tensor):
        return int(tensor[0, 0])

    assert {row.seq: row.first for row in df.select("seq", first(tps.tensor(df))).collect()}[5] == 5


def test_tensors_can_not_be_changed(load, recording):
    def write(array):
        array[0, 0] = 1
        return 1

    with pytest.raises(Exception, match="read-only"):
        tps.map_tensors(load(recording), write, "x int").collect()


def test_damaged_tensors_are_rows_with_a_status(load, tmp_path):
    recording = record(tmp_path, segment_bytes=1 << 20)
    (path,) = recording["camera/1"].place.local.glob("*.arrow")
    content = bytearray(path.read_bytes())
    content[content.index(np.full(6, 13, "uint16").tobytes())] ^= 0xFF
    path.write_bytes(content)
    for payload in ("ref", "bytes"):
        table = load(tmp_path, payload=payload)
        rows = by_seq(tps.map_tensors(table, lambda t: int(t[0, 0]), "first long", check=True))
        assert (rows[13].status, rows[13].first) == ("damaged", None)
        assert [rows[seq].first for seq in (12, 14)] == [12, 14]
    unchecked = by_seq(tps.map_tensors(load(tmp_path), lambda t: int(t[0, 0]), "first long"))
    assert unchecked[13].first != 13


def test_a_segment_that_is_gone_by_then_is_a_row_with_a_status(load, recording):
    stream = Recording(recording)["camera/1"]
    lost = stream.catalogue.segments[1]
    table = load(recording)
    (stream.place.local / lost.file).unlink()
    rows = by_seq(tps.map_tensors(table, lambda t: int(t[0, 0]), "first long"))
    gone = [row.seq for row in rows.values() if row.status == "segment_missing"]
    assert gone == [seq for seq in rows if lost.min_seq <= seq <= lost.max_seq and seq != 7]


def test_a_recording_that_takes_the_place_of_another_one_is_seen(load, tmp_path):
    means = []
    for value in (7, 99):
        shutil.rmtree(tmp_path / "recording", ignore_errors=True)
        record_arrays(tmp_path / "recording", [np.full((4, 4), value, "uint8")] * 3)
        table = load(tmp_path / "recording")
        mapped = tps.map_tensors(table, lambda t: float(t.mean()), "mean double", check=True)
        means.append([(row.status, row["mean"]) for row in mapped.collect()])
    assert means == [[("ok", 7.0)] * 3, [("ok", 99.0)] * 3]
    (segment,) = (tmp_path / "recording").rglob("*.arrow")
    segment.write_bytes(segment.read_bytes()[:100])
    assert {row.status for row in tps.map_tensors(table, lambda t: 1, "one int").collect()} == {"damaged"}


WRONG = {
    "offset": ({"offset": -5}, {}, "malformed"),
    "length": ({"length": -1}, {}, "malformed"),
    "too long": ({"length": 13}, {}, "malformed"),
    "beyond the end": ({"offset": 2**62}, {}, "damaged"),
    "no ref": (None, {}, "malformed"),
    "kind": ({"kind": "tape"}, {}, "unknown_reference"),
    "scheme": ({"uri": "http://example.org/a.arrow"}, {}, "unknown_reference"),
    "secret": ({"uri": "s3://me:secret@bucket/a.arrow"}, {}, "unknown_reference"),
    "no path": ({"uri": "file://"}, {}, "unknown_reference"),
    "directory": ({"uri": "file:///"}, {}, "unreadable"),
    "shape -1": ({}, {"shape": [-1]}, "malformed"),
    "shape -1 -6": ({}, {"shape": [-1, -6]}, "malformed"),
    "product": ({}, {"shape": [7]}, "malformed"),
    "no shape": ({}, {"shape": None}, "malformed"),
    "order": ({}, {"order": "Z"}, "malformed"),
    "dtype": ({}, {"dtype": "O"}, "malformed"),
    "no dtype": ({}, {"dtype": "uint17"}, "malformed"),
    "live seq": ({"kind": "ring", "offset": -1}, {"seq": -1}, "malformed"),
    "live other seq": ({"kind": "ring", "offset": 1}, {"seq": 2}, "malformed"),
    "live uri": ({"kind": "ring", "offset": 3}, {"seq": 3}, "unknown_reference"),
}


def test_references_that_make_no_sense_are_rows_with_a_status(spark, load, recording):
    table = load(recording)
    good = table.where("seq = 3").first().asDict(recursive=True)
    here = {"host": host_name(), "boot": boot_id()}
    rows = [
        {**good, **changes, "stream_name": name, "ref": None if ref is None else good["ref"] | here | ref}
        for name, (ref, changes, _) in WRONG.items()
    ]
    nullable = StructType([StructField(each.name, each.dataType) for each in table.schema])
    wrong = spark.createDataFrame(rows, nullable).coalesce(1)
    found = tps.map_tensors(wrong, lambda t: int(t[0, 0]), "first long").collect()
    assert {row.stream_name: row.status for row in found} == {name: each[2] for name, each in WRONG.items()}
    for row in wrong.collect():
        with pytest.raises(tps.TensorUnavailableError) as raised:
            tps.load_tensor(row)
        assert raised.value.status == WRONG[row.stream_name][2]
        assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError, match="the row lacks order"):
        tps.load_tensor(table.drop("order").first())


def test_mixed_types_reach_the_function_as_they_are(load, tmp_path):
    record_arrays(tmp_path, [np.zeros((2, 3), "float64"), np.zeros(0, "uint8"), np.array(5, "int16")])
    kinds = by_seq(tps.map_tensors(load(tmp_path), lambda t: f"{t.dtype} {t.shape}", "kind string"))
    assert [kinds[seq].kind for seq in range(3)] == ["float64 (2, 3)", "uint8 (0,)", "int16 ()"]


def test_refs_survive_shuffles_and_joins(spark, load, recording):
    table = load(recording).repartition(3).join(spark.range(5, 9).withColumnRenamed("id", "seq"), "seq")
    assert sorted(by_seq(tps.map_tensors(table, lambda t: int(t[0, 0]), "first long"))) == [5, 6, 7]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda df: tps.map_tensors(df.drop("ref"), len, "n int"), "lacks ref and values"),
        (lambda df: tps.map_tensors(df.select("seq"), len, "n int"), "lacks status"),
        (lambda df: tps.map_tensors(df, len, "double"), "schema"),
        (lambda df: tps.map_tensors(df, len, "seq long"), r"\['seq'\] are kept and returned"),
    ],
)
def test_wrong_calls_are_refused_before_anything_runs(load, recording, call, said):
    with pytest.raises(ConfigError, match=said):
        call(load(recording))


def test_a_function_that_returns_too_little_is_named(load, recording):
    with pytest.raises(Exception, match="not 2 values for a, b"):
        tps.map_tensors(load(recording), lambda t: 1, "a int, b int").collect()


@pytest.mark.parametrize(
    ("returned", "schema", "said"),
    [
        (1.5, "m int", "returned 1.5 for the column m, which is int32"),
        (np.float32(0.5), "m long", "returned 0.5 for the column m"),
        ([1, 2.5], "n array<long>", "returned 2.5 for the column n"),
        ({"s": {"a": 1.5}}, "s struct<a: int>", "returned 1.5 for the column s"),
        (300, "m tinyint", "returned something for the column m, which is int8: .*300"),
        ("many", "m double", "returned something for the column m, which is double"),
    ],
    ids=str,
)
def test_results_that_do_not_fit_their_column_are_refused(load, recording, returned, schema, said):
    with pytest.raises(Exception, match=said):
        tps.map_tensors(load(recording), lambda t: returned, schema).collect()


def test_whole_numbers_fit_whatever_their_type(load, recording):
    table = load(recording)
    rows = by_seq(
        tps.map_tensors(
            table, lambda t: (t.mean(), np.arange(2), {"k": 2.0}), "a int, b array<int>, c map<string, int>"
        )
    )
    assert (rows[5].a, rows[5].b, rows[5].c) == (5, [0, 1], {"k": 2})

    @tps.tensor_udf("int")
    def half(array):
        return 0.5

    with pytest.raises(Exception, match=r"returned 0\.5 for the column half"):
        table.select(half(tps.tensor(table)).alias("half")).collect()

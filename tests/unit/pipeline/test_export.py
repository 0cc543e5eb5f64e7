"""Exports: what is read back is what was recorded, and nothing half-written is ever seen."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tensor_pool.errors import ConfigError, RegionError, RegionFullError
from tensor_pool.pipeline.record import export as export_module
from tensor_pool.pipeline.record.export import export
from tensor_pool.pipeline.record.formats import FORMATS, parquet_file
from tensor_pool.pipeline.record.recording import as_array
from written_recordings import MIXED, RecordingWriter, damage_frame, damage_table, numbered

zarr = pytest.importorskip("zarr")

NAME = "lab/camera 1"
FILE = "lab%2Fcamera 1"


def record(path, arrays, name=NAME):
    """Frames with a gap of three after the first, and metadata that changes after the second."""
    writer = RecordingWriter(path, name)
    writer.metadata(1, gain=1, dark=np.arange(3))
    for n, array in enumerate(arrays):
        if n == 1:
            writer.gap(3)
        if n == 2:
            writer.metadata(2, gain=2, raw=b"\0\1")
        writer.frame(array, trace_id=100 + n)
    return writer.close()


def read_npy(out):
    with (out / FILE / "frames.csv").open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["status"] == "ok"]
    arrays = []
    for line in lines:
        loaded = np.load(out / FILE / line["file"])
        arrays.append(loaded[int(line["index"])] if line["index"] else loaded)
    return [(int(line["seq"]), array) for line, array in zip(lines, arrays, strict=True)]


def read_rows(rows):
    return [
        (row["seq"], as_array(row["values"], row["dtype"], tuple(row["shape"]), row["order"]))
        for row in rows
        if row["status"] == "ok"
    ]


def read_parquet(out):
    return read_rows(pq.read_table(out / f"{FILE}.parquet").to_pylist())


def read_arrow(out):
    table = pa.ipc.open_file(pa.memory_map(str(out / f"{FILE}.arrow"))).read_all()
    values = table["values"]
    if isinstance(values.type, pa.FixedShapeTensorType):
        tensors = values.combine_chunks().to_numpy_ndarray()
        return list(zip(table["seq"].to_pylist(), tensors, strict=True))
    return read_rows(table.to_pylist())


def read_zarr(out):
    group = zarr.open_group(out, mode="r")[FILE]
    groups = [group] if "frames" in group else [part for _, part in group.groups()]
    found = [
        (int(seq), array)
        for part in groups
        for seq, array in zip(part["seq"][:], part["frames"], strict=True)
    ]
    return sorted(found, key=lambda entry: entry[0])


READERS = {"npy": read_npy, "parquet": read_parquet, "arrow": read_arrow, "zarr": read_zarr}
assert set(READERS) == set(FORMATS)
every_format = pytest.mark.parametrize("file_format", READERS)

SAME = [np.arange(12, dtype="float32").reshape(3, 4) + n for n in range(10)]
SETS = {"same": SAME, "mixed": MIXED, "empty tensors": MIXED[2:3] * 3, "booleans": MIXED[3:4] * 3}


def expected(arrays):
    return [(n if n == 0 else n + 3, array) for n, array in enumerate(arrays)]


def assert_same(found, arrays):
    wanted = expected(arrays)
    assert [seq for seq, _ in found] == [seq for seq, _ in wanted]
    for (seq, array), (_, original) in zip(found, wanted, strict=True):
        assert (array.dtype, array.shape) == (original.dtype, original.shape), seq
        assert np.array_equal(array, original), seq


@every_format
@pytest.mark.parametrize("arrays", SETS.values(), ids=SETS)
def test_every_tensor_comes_back(tmp_path, file_format, arrays):
    record(tmp_path / "recording", arrays)
    (done,) = export(tmp_path / "recording", file_format, tmp_path / "out")
    assert (done.stream, done.frames, done.missing, done.damaged) == (NAME, len(arrays), 3, 0)
    assert done.nbytes == sum(array.nbytes for array in arrays)
    assert (tmp_path / "out" / done.file).exists()
    assert_same(READERS[file_format](tmp_path / "out"), arrays)


@pytest.mark.parametrize("arrays", SETS.values(), ids=SETS)
def test_stacked_arrays_are_those_of_one_type_and_shape(tmp_path, arrays):
    record(tmp_path / "recording", arrays)
    export(tmp_path / "recording", "npy", tmp_path / "out", stack=True)
    assert_same(read_npy(tmp_path / "out"), arrays)
    layouts = {(array.dtype, array.shape) for array in arrays}
    files = list((tmp_path / "out" / FILE).glob("*.npy"))
    assert len(files) == len(layouts)
    if len(layouts) == 1:
        (path,) = files
        assert path.name == "frames.npy"
        mapped = np.load(path, mmap_mode="r") if arrays[0].size else np.load(path)
        assert mapped.shape == (len(arrays), *arrays[0].shape)


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "zarr"])
def test_compressed_values_come_back(tmp_path, file_format):
    arrays = [np.zeros((64, 64), "uint8") + n for n in range(5)]
    record(tmp_path / "recording", arrays)
    export(tmp_path / "recording", file_format, tmp_path / "plain")
    export(tmp_path / "recording", file_format, tmp_path / "small", compression="zstd")
    assert_same(READERS[file_format](tmp_path / "small"), arrays)
    sizes = [
        sum(path.stat().st_size for path in (tmp_path / name).rglob("*") if path.is_file())
        for name in ("plain", "small")
    ]
    assert sizes[1] < sizes[0]


def test_memory_order_is_kept_where_the_format_has_one(tmp_path):
    array = MIXED[1]
    record(tmp_path / "recording", [array])
    export(tmp_path / "recording", "npy", tmp_path / "npy")
    export(tmp_path / "recording", "parquet", tmp_path / "parquet")
    for _, found in (*read_npy(tmp_path / "npy"), *read_parquet(tmp_path / "parquet")):
        assert found.flags.f_contiguous
        assert not found.flags.c_contiguous


def told_missing(out, file_format):
    if file_format == "zarr":
        return zarr.open_group(out, mode="r")[FILE].attrs["missing"]
    if file_format == "parquet":
        return [row for row in pq.read_table(out / f"{FILE}.parquet").to_pylist() if row["values"] is None]
    name = f"{FILE}.missing.csv" if file_format == "arrow" else f"{FILE}/frames.csv"
    with (out / name).open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["status"] != "ok"]


@every_format
def test_gaps_and_damaged_frames_are_told(tmp_path, file_format):
    record(tmp_path / "recording", SAME)
    damage_frame(tmp_path / "recording", SAME[4], NAME)
    told = []
    (done,) = export(tmp_path / "recording", file_format, tmp_path / "out", on_damage=told.append)
    assert (done.frames, done.missing, done.damaged) == (9, 3, 1)
    missing = [
        (int(row["seq"]), int(row["count"]), row["status"])
        for row in told_missing(tmp_path / "out", file_format)
    ]
    assert missing == [(1, 3, "lost"), (7, 1, "damaged")]
    assert "frame 7 of epoch 7" in told[0].what
    assert [seq for seq, _ in READERS[file_format](tmp_path / "out")] == [0, 4, 5, 6, 8, 9, 10, 11, 12]


@every_format
def test_a_damaged_segment_costs_only_its_frames(tmp_path, file_format):
    recording = record(tmp_path / "recording", SAME)
    lost = recording[NAME].catalogue.segments[1]
    damage_table(tmp_path / "recording", 2, NAME)
    told = []
    (done,) = export(tmp_path / "recording", file_format, tmp_path / "out", on_damage=told.append)
    assert done.damaged == lost.frames == told[0].frames
    assert len(READERS[file_format](tmp_path / "out")) == len(SAME) - lost.frames


def test_a_stack_without_its_damaged_frames_has_no_holes(tmp_path):
    record(tmp_path / "recording", SAME)
    damage_frame(tmp_path / "recording", SAME[4], NAME)
    export(tmp_path / "recording", "npy", tmp_path / "out", stack=True)
    stacked = np.load(tmp_path / "out" / FILE / "frames.npy")
    assert np.array_equal(stacked, np.array(SAME[:4] + SAME[5:]))


@every_format
def test_metadata_and_its_changes_are_told(tmp_path, file_format):
    record(tmp_path / "recording", SAME)
    out = tmp_path / "out"
    export(tmp_path / "recording", file_format, out)
    if file_format == "zarr":
        attributes = zarr.open_group(out, mode="r")[FILE].attrs
        assert attributes["stream"] == NAME
        assert attributes["metadata"] == {"gain": 1, "dark": [0, 1, 2]}
        (change,) = attributes["metadata_changes"]
    else:
        name = f"{FILE}/metadata.jsonl" if file_format == "npy" else f"{FILE}.metadata.jsonl"
        first, change = (json.loads(line) for line in (out / name).read_text().splitlines())
        assert first == {"epoch": 7, "seq": 0, "metadata": {"gain": 1, "dark": [0, 1, 2]}}
    assert change == {"epoch": 7, "seq": 5, "metadata": {"gain": 2, "raw": {"base64": "AAE="}}}


def test_several_streams_and_a_part_of_their_time(tmp_path):
    numbered(tmp_path / "recording", "a")
    numbered(tmp_path / "recording", "b")
    numbered(tmp_path / "recording", "c")
    done = export(
        tmp_path / "recording", "parquet", tmp_path / "out", streams=["a", "c"], start=0.05, end="0.1"
    )
    assert [(stream.stream, stream.file, stream.frames) for stream in done] == [
        ("a", "a.parquet", 6),
        ("c", "c.parquet", 6),
    ]
    assert not (tmp_path / "out" / "b.parquet").exists()


def test_row_groups_are_bounded_and_bytes_have_neither_dictionary_nor_statistics(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_file, "_GROUP_BYTES", 200)
    record(tmp_path / "recording", SAME)
    export(tmp_path / "recording", "parquet", tmp_path / "out")
    about = pq.read_metadata(tmp_path / "out" / f"{FILE}.parquet")
    assert about.num_rows == len(SAME) + 1
    assert about.num_row_groups > 2
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        values = group.column(group.num_columns - 1)
        assert values.path_in_schema == "values"
        assert values.statistics is None
        assert not values.has_dictionary_page
        assert values.total_uncompressed_size < 500


# --- the output ---------------------------------------------------------------------------------------------


@every_format
def test_an_existing_output_is_refused_or_replaced(tmp_path, file_format):
    out = tmp_path / "out"
    record(tmp_path / "recording", SAME)
    export(tmp_path / "recording", file_format, out)
    record(tmp_path / "other", MIXED)
    before = sorted(path for path in out.rglob("*"))
    with pytest.raises(ConfigError, match="there already") as refused:
        export(tmp_path / "other", file_format, out)
    assert "--overwrite" in refused.value.hint
    assert sorted(path for path in out.rglob("*")) == before
    export(tmp_path / "other", file_format, out, overwrite=True)
    assert_same(READERS[file_format](out), MIXED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out", "recording"]


def test_only_exports_are_overwritten(tmp_path):
    numbered(tmp_path / "recording")
    for name in ("directory", "link"):
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / "thesis.tex").write_text("years of work")
        out = tmp_path / "home"
        if name == "link":
            out = tmp_path / "link"
            out.symlink_to(tmp_path / "home")
        with pytest.raises(ConfigError, match="is no export"):
            export(tmp_path / "recording", "npy", out, overwrite=True)
        assert (tmp_path / "home" / "thesis.tex").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is no export"):
        export(tmp_path / "recording", "npy", tmp_path / "file", overwrite=True)
    (tmp_path / "empty").mkdir()
    export(tmp_path / "recording", "npy", tmp_path / "empty", overwrite=True)


@every_format
@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (OSError(28, "No space left on device"), RegionFullError, "no room for .*No space left"),
        (OSError(5, "Input/output error"), RegionError, "can't write .*Input/output"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
    ids=["full", "broken", "Ctrl-C"],
)
def test_what_is_not_whole_never_has_its_name(tmp_path, file_format, error, raised, said):
    numbered(tmp_path / "recording")
    seen = []

    def fail(done):
        seen.append([path.name for path in tmp_path.iterdir()])
        if done[0].frames == 10:
            raise error

    with pytest.raises(raised, match=said):
        export(tmp_path / "recording", file_format, tmp_path / "out", on_progress=fail)
    assert len(seen) == 10
    assert all("out" not in names for names in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]


def test_an_export_that_fails_leaves_the_old_one(tmp_path):
    numbered(tmp_path / "recording")
    out = tmp_path / "out"
    export(tmp_path / "recording", "npy", out)

    def fail(_done):
        raise OSError(28, "No space left on device")

    with pytest.raises(RegionFullError):
        export(tmp_path / "recording", "npy", out, overwrite=True, on_progress=fail)
    assert len(list(out.rglob("*.npy"))) == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "recording"]


def test_an_output_that_somebody_else_makes_meanwhile_is_left_alone(tmp_path):
    numbered(tmp_path / "recording")
    out = tmp_path / "out"

    def make(done):
        if done[0].frames == 10:
            out.mkdir()
            (out / "thesis.tex").write_text("years of work")

    with pytest.raises(RegionError, match=r"can't write .*not empty"):
        export(tmp_path / "recording", "npy", out, on_progress=make)
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "recording"]


def test_an_output_that_can_not_be_made_is_said(tmp_path):
    numbered(tmp_path / "recording")
    (tmp_path / "file").write_text("")
    with pytest.raises(RegionError, match=r"can't write .*(Not a directory|File exists)"):
        export(tmp_path / "recording", "npy", tmp_path / "file" / "out")
    with pytest.raises(ConfigError, match="can't export to s3"):
        export(tmp_path / "recording", "npy", "s3://bucket/out")


@pytest.mark.parametrize(
    ("file_format", "options", "said"),
    [
        ("hdf5", {}, "no format 'hdf5'"),
        ("parquet", {"stack": True}, "in one array anyway"),
        ("npy", {"compression": "zstd"}, "no compression"),
        ("npy", {"start": "soon"}, "no moment"),
    ],
)
def test_what_makes_no_sense(tmp_path, file_format, options, said):
    numbered(tmp_path / "recording")
    with pytest.raises(ConfigError, match=said):
        export(tmp_path / "recording", file_format, tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    def missing(_module):
        raise ModuleNotFoundError("No module named 'zarr'", name="zarr")

    monkeypatch.setattr("tensor_pool.pipeline.record.formats.import_module", missing)
    with pytest.raises(ConfigError, match="needs the module zarr") as refused:
        export(tmp_path, "zarr", tmp_path / "out")
    assert "pip install 'shm-tensor-pool[zarr]'" in refused.value.hint


def test_every_export_says_what_it_is(tmp_path):
    numbered(tmp_path / "recording")
    export(tmp_path / "recording", "arrow", tmp_path / "out")
    about = json.loads((tmp_path / "out" / export_module._MANIFEST).read_text())
    assert about["format"] == "arrow"
    assert about["streams"][0]["frames"] == 20

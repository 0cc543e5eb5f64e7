"""Exports as others see them: pandas, Polars, Zarr and NumPy, with nothing of ours."""

from __future__ import annotations

import numpy as np
import pytest

from tensor_pool.pipeline.record.export import export
from written_recordings import RecordingWriter

SHAPE = (4, 5)


@pytest.fixture
def frames(tmp_path):
    """Ten random frames, recorded; the fourth number is missing."""
    random = np.random.default_rng(7)
    frames = [random.normal(size=SHAPE).astype("float32") for _ in range(10)]
    writer = RecordingWriter(tmp_path / "recording")
    writer.metadata(exposure_ms=1.5)
    for n, frame in enumerate(frames):
        if n == 3:
            writer.gap(1)
        writer.frame(frame)
    writer.close()
    return frames


def test_pandas_reads_parquet(tmp_path, frames):
    pandas = pytest.importorskip("pandas")
    export(tmp_path / "recording", "parquet", tmp_path / "out")
    table = pandas.read_parquet(tmp_path / "out" / "camera-1.parquet")
    assert table["status"].tolist() == ["ok"] * 3 + ["lost"] + ["ok"] * 7
    good = table[table["status"] == "ok"]
    arrays = [
        np.frombuffer(row.values, row.dtype).reshape(row.shape)
        for row in good[["values", "dtype", "shape"]].itertuples(index=False, name="Line")
    ]
    assert np.array_equal(arrays, frames)
    times = pandas.to_datetime(good["event_ns"].astype("int64"), utc=True)
    assert str(times.iloc[0]) == "2023-11-14 22:13:20+00:00"


def test_polars_reads_parquet_and_arrow(tmp_path, frames):
    polars = pytest.importorskip("polars")
    export(tmp_path / "recording", "parquet", tmp_path / "out")
    table = polars.read_parquet(tmp_path / "out" / "camera-1.parquet")
    good = table.filter(polars.col("status") == "ok")
    arrays = [np.frombuffer(values, "float32").reshape(SHAPE) for values in good["values"]]
    assert np.array_equal(arrays, frames)


def test_pandas_reads_what_lies_beside_npy_files(tmp_path, frames):
    pandas = pytest.importorskip("pandas")
    export(tmp_path / "recording", "npy", tmp_path / "out")
    lines = pandas.read_csv(tmp_path / "out" / "camera-1" / "frames.csv")
    assert lines["seq"].tolist() == list(range(11))
    good = lines[lines["status"] == "ok"]
    arrays = [np.load(tmp_path / "out" / "camera-1" / name) for name in good["file"]]
    assert np.array_equal(arrays, frames)


def test_numpy_maps_a_stack(tmp_path, frames):
    export(tmp_path / "recording", "npy", tmp_path / "out", stack=True)
    stacked = np.load(tmp_path / "out" / "camera-1" / "frames.npy", mmap_mode="r")
    assert isinstance(stacked, np.memmap)
    assert np.array_equal(stacked, frames)


def test_arrow_gives_one_tensor(tmp_path, frames):
    arrow = pytest.importorskip("pyarrow")
    export(tmp_path / "recording", "arrow", tmp_path / "out")
    with arrow.memory_map(str(tmp_path / "out" / "camera-1.arrow")) as file:
        values = arrow.ipc.open_file(file).read_all()["values"]
        assert str(values.type).startswith("extension<arrow.fixed_shape_tensor")
        assert np.array_equal(values.combine_chunks().to_numpy_ndarray(), frames)


def test_zarr_reads_a_group(tmp_path, frames):
    zarr = pytest.importorskip("zarr")
    export(tmp_path / "recording", "zarr", tmp_path / "out.zarr")
    group = zarr.open_group(tmp_path / "out.zarr", mode="r")["camera-1"]
    array = group["frames"]
    assert array.metadata.zarr_format == 3
    assert array.chunks == (1, *SHAPE)
    assert np.array_equal(array[:], frames)
    assert group["seq"][:].tolist() == [0, 1, 2, *range(4, 11)]
    assert group.attrs["metadata"] == {"exposure_ms": 1.5}

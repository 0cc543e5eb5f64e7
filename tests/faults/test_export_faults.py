"""Exports to a disk that is too small."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tensor_pool.errors import RegionFullError
from tensor_pool.pipeline.record.export import export
from written_recordings import RecordingWriter


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize(
    ("file_format", "options"),
    [("npy", {}), ("npy", {"stack": True}), ("parquet", {}), ("arrow", {}), ("zarr", {})],
    ids=["npy", "stack", "parquet", "arrow", "zarr"],
)
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path, small, file_format, options):
    writer = RecordingWriter(tmp_path / "recording", segment_bytes=4 << 20)
    for n in range(16):
        writer.frame(np.full(1 << 19, n, "uint8"))
    writer.close()
    with pytest.raises(RegionFullError, match=r"no room for .*No space left") as refused:
        export(tmp_path / "recording", file_format, small / "out", **options)
    assert "choose another disk" in refused.value.hint
    assert list(small.iterdir()) == []
    done = export(tmp_path / "recording", file_format, small / "out", end=0.03, **options)
    assert done[0].frames == 4

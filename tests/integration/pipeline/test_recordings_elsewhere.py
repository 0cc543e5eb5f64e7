"""Replays and exports of recordings that lie in an object store."""

from __future__ import annotations

import numpy as np
import pyarrow.fs as pafs
import pytest

from pool_hosts import quick_host
from s3_server import BUCKET, credentials_of, s3_server
from tensor_pool.pipeline.record import Recording, Replay
from tensor_pool.pipeline.record.export import export
from written_recordings import damage_frame, numbered

NAME = "lab/camera 1"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A recording there, with a damaged frame."""
    here = tmp_path_factory.mktemp("recording")
    numbered(here, NAME, count=20)
    damage_frame(here, np.full((2, 3), 13, "uint16"), NAME)
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        pafs.copy_files(
            str(here),
            f"{BUCKET}/run",
            source_filesystem=pafs.LocalFileSystem(),
            destination_filesystem=server.filesystem(),
        )
        with credentials_of(server):
            yield server.uri(path="run", credentials=False)


EXPECTED = [n for n in range(20) if n != 13]


def test_a_recording_elsewhere_is_replayed(place):
    with (
        quick_host() as host,
        host.connect() as pool,
        Replay(pool, place, rename={NAME: "again"}, wait_consumers=1) as replay,
    ):
        inp = pool.consumer("again", max_outstanding_seq_gap=0)
        stats = replay.run()
        assert (stats.frames, stats.damaged) == (19, 1)
        assert [int(inp.poll(timeout=5).copy()[0, 0]) for _ in EXPECTED] == EXPECTED


def test_a_recording_elsewhere_is_exported(place, tmp_path):
    (done,) = export(Recording(place), "npy", tmp_path / "out", stack=True)
    assert (done.frames, done.damaged) == (19, 1)
    stacked = np.load(tmp_path / "out" / done.file / "frames.npy")
    assert stacked[:, 0, 0].tolist() == EXPECTED

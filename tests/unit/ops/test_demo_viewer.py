"""The demo's viewer: what it counts, and what it makes of frames that are overwritten while it looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tensor_pool import _native, wire
from tensor_pool.ops.demo import camera, picture
from tensor_pool.ops.demo.viewer import Viewer
from tensor_pool.transport.memory import MemoryBus

NSLOTS = 4
PICTURE = np.zeros((8, 8), np.uint8)


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-") as directory:
        yield Path(directory)


@pytest.fixture
def address(directory: Path) -> _native.RingAddress:
    return _native.create_ring(
        directory, stream_id=camera.POOL_STREAM, epoch=5, nslots=NSLOTS, pools=[(1, 64)]
    )


@pytest.fixture
def writer(directory: Path, address: _native.RingAddress) -> Iterator[_native.RingWriter]:
    with _native.RingWriter(address, base_dirs=[directory]) as writer:
        yield writer


@pytest.fixture
def viewer(directory: Path, address: _native.RingAddress) -> Iterator[Viewer]:
    """A viewer that has found the ring, and nothing in it yet."""
    client = MemoryBus().client()
    viewer = Viewer(
        client.add_subscription("aeron:ipc", 1), client.add_subscription("aeron:ipc", 2), str(directory)
    )
    client.add_publication("aeron:ipc", 1).offer(wire.encode(camera.announcement(address)))
    assert not viewer.work()
    yield viewer
    viewer.close()


def test_frames_are_judged_and_every_thirtieth_is_kept(
    viewer: Viewer, writer: _native.RingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "is_right", lambda seq, image: seq != 31)
    for seq in range(33):
        writer.publish(PICTURE + np.uint8(seq))
        assert viewer.work()
    assert (viewer.outcome.frames, viewer.outcome.wrong, viewer.outcome.last_seq) == (33, 1, 32)
    assert viewer.last_picture is not None
    assert (viewer.last_picture == 30).all()
    assert viewer.latency.count == 33


def test_a_frame_that_is_overwritten_while_looked_at_is_late_and_nothing_else(
    viewer: Viewer, writer: _native.RingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_too_slowly(seq: int, image: np.ndarray) -> bool:
        for _ in range(NSLOTS):
            writer.publish(PICTURE)
        return False  # what is there now is not what was asked about

    writer.publish(PICTURE)
    monkeypatch.setattr(picture, "is_right", look_too_slowly)
    assert viewer.work()

    outcome = viewer.outcome
    assert (outcome.frames, outcome.wrong, outcome.late, outcome.last_seq) == (0, 0, 1, None)
    assert viewer.last_picture is None
    assert viewer.latency.count == 0


def test_it_goes_on_with_the_next_frame_after_an_overwritten_one(
    viewer: Viewer, writer: _native.RingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overrun_once(seq: int, image: np.ndarray) -> bool:
        if seq == 0:
            for _ in range(NSLOTS):
                writer.publish(PICTURE)
        return True

    writer.publish(PICTURE)
    monkeypatch.setattr(picture, "is_right", overrun_once)
    while viewer.work():
        pass
    assert (viewer.outcome.frames, viewer.outcome.late, viewer.outcome.last_seq) == (NSLOTS, 1, NSLOTS)

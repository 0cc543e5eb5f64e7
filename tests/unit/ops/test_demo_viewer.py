"""The demo's viewer: what it counts, and what it makes of frames that are overwritten while it looks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.ops.demo import picture
from tensor_pool.ops.demo.viewer import Viewer

NSLOTS = 4
PICTURE = np.zeros((8, 8), np.uint8)


@pytest.fixture
def pool() -> Iterator[tp.Pool]:
    with tp.connect(embedded=True) as pool:
        yield pool


@pytest.fixture
def out(pool: tp.Pool) -> tp.Producer:
    return pool.producer("pictures", dtype="uint8", shape=(8, 8), slots=NSLOTS)


@pytest.fixture
def viewer(pool: tp.Pool, out: tp.Producer) -> Viewer:
    return Viewer(pool.consumer("pictures"))


def test_frames_are_judged_and_every_thirtieth_is_kept(
    viewer: Viewer, out: tp.Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "is_right", lambda seq, image, dead_from: seq != 31)
    for seq in range(33):
        out.publish(PICTURE + np.uint8(seq))
        assert viewer.work()
    assert (viewer.outcome.frames, viewer.outcome.wrong, viewer.outcome.last_seq) == (33, 1, 32)
    assert viewer.last_picture is not None
    assert (viewer.last_picture == 30).all()
    assert viewer.latency.count == 33


def test_a_frame_that_is_overwritten_while_looked_at_is_late_and_nothing_else(
    viewer: Viewer, out: tp.Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_too_slowly(seq: int, image: np.ndarray, dead_from: int | None) -> bool:
        for _ in range(NSLOTS):
            out.publish(PICTURE)
        return False  # what is there now is not what was asked about

    out.publish(PICTURE)
    monkeypatch.setattr(picture, "is_right", look_too_slowly)
    assert viewer.work()

    outcome = viewer.outcome
    assert (outcome.frames, outcome.wrong, outcome.late, outcome.last_seq) == (0, 0, 1, None)
    assert viewer.last_picture is None
    assert viewer.latency.count == 0


def test_it_goes_on_with_the_next_frame_after_an_overwritten_one(
    viewer: Viewer, out: tp.Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overrun_once(seq: int, image: np.ndarray, dead_from: int | None) -> bool:
        if seq == 0:
            for _ in range(NSLOTS):
                out.publish(PICTURE)
        return True

    out.publish(PICTURE)
    monkeypatch.setattr(picture, "is_right", overrun_once)
    while viewer.work():
        pass
    # The newer half of the ring: the older one is left to the producer, which is at its heels.
    seen = (viewer.outcome.frames, viewer.outcome.late, viewer.outcome.last_seq)
    assert seen == (NSLOTS // 2 + 1, 1, NSLOTS)

"""Numbers that nobody wrote, and frames that a reader was too slow for: only these were missed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.ops.absent_numbers import AbsentNumbers

NSLOTS = 8


class Watched:
    """A stream with a ring of eight slots, and who reads it."""

    def __init__(self, pool: tp.Pool) -> None:
        self._out = pool.producer("camera", dtype="uint8", shape=(4,), slots=NSLOTS)
        self._inp = pool.consumer("camera", max_outstanding_seq_gap=0)
        self._absent = AbsentNumbers(self._inp)
        self.last: tp.Frame | None = None

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self._out.publish(np.zeros(4, "uint8"))

    def leave_out(self, count: int) -> None:
        for _ in range(count):
            self._out.claim((4,), "uint8").abort()

    def take(self) -> tuple[int, int]:
        """The number of the next frame, and how many before it were absent."""
        frame = self._inp.poll(timeout=5.0)
        assert frame is not None
        self.last = frame
        return frame.seq, self._absent.before(frame)


@pytest.fixture
def watched() -> Iterator[Watched]:
    with tp.connect(embedded=True) as pool:
        yield Watched(pool)


def test_who_reads_everything_misses_nothing(watched: Watched) -> None:
    watched.publish(5)
    assert [watched.take() for _ in range(5)] == [(seq, 0) for seq in range(5)]


@pytest.mark.parametrize("count", [1, 3, NSLOTS - 1, NSLOTS, 50, 10 * NSLOTS - 1])
def test_left_out_numbers_are_absent_also_if_they_go_round_the_ring(watched: Watched, count: int) -> None:
    watched.publish()
    assert watched.take() == (0, 0)
    for round_ in range(1, 5):
        watched.leave_out(count)
        watched.publish()
        assert watched.take() == (round_ * (count + 1), count)


def test_overwritten_frames_are_not_absent(watched: Watched) -> None:
    watched.publish()
    assert watched.take() == (0, 0)
    watched.publish(30)
    seq, absent = watched.take()
    assert seq > 1
    assert absent == 0
    assert [watched.take() for _ in range(30 - seq)] == [(later, 0) for later in range(seq + 1, 31)]


def test_so_are_frames_at_the_heels_of_a_reader(watched: Watched) -> None:
    """The frame that it held was overwritten, so it leaves the next ones to the producer."""
    watched.publish()
    assert watched.take() == (0, 0)
    watched.publish(NSLOTS)
    with pytest.raises(tp.FrameOverwrittenError):
        watched.last.copy()
    seq, absent = watched.take()
    assert (seq > 1, absent) == (True, 0)


def test_who_is_behind_in_a_sparse_ring_has_missed_nothing(watched: Watched) -> None:
    watched.publish()
    watched.leave_out(2)
    watched.publish()
    watched.leave_out(2)
    watched.publish()
    assert [watched.take() for _ in range(3)] == [(0, 0), (3, 2), (6, 2)]

"""Frames of a source, counted by their numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tensor_pool.limiting.stats import Tally

SECOND = 1_000_000_000


class Numbered(NamedTuple):
    """What the tally looks at."""

    epoch: int
    seq: int


def count(tally: Tally, epoch: int, seq: int, *, is_whole: bool = True, wanted_all: bool = False) -> None:
    frame: Any = Numbered(epoch, seq)
    tally.count(frame, is_whole=is_whole, wanted_all=wanted_all, now_ns=0)


def test_what_lies_between_two_frames_was_thinned_out() -> None:
    tally = Tally()
    for seq in (7, 10, 11):
        count(tally, 1, seq)
    assert (tally.seen, tally.passed, tally.thinned, tally.overtaken) == (5, 3, 2, 0)


def test_it_was_overtaken_where_all_should_pass() -> None:
    tally = Tally()
    for seq in (0, 4):
        count(tally, 1, seq, wanted_all=True)
    assert (tally.seen, tally.passed, tally.thinned, tally.overtaken) == (5, 2, 0, 3)


def test_nothing_lies_between_two_epochs() -> None:
    tally = Tally()
    count(tally, 1, 100)
    count(tally, 2, 500)
    assert (tally.seen, tally.passed, tally.thinned) == (2, 2, 0)


def test_torn_frames_do_not_pass() -> None:
    tally = Tally()
    count(tally, 1, 0)
    count(tally, 1, 2, is_whole=False)
    assert (tally.seen, tally.passed, tally.thinned, tally.torn) == (3, 1, 1, 1)


@pytest.mark.parametrize(
    ("epoch", "seq", "known"), [(3, 4, True), (3, 5, True), (3, 6, False), (4, 0, False)]
)
def test_a_frame_is_known_when_it_was_dealt_with_in_its_epoch(epoch: int, seq: int, known: bool) -> None:
    tally = Tally()
    count(tally, 3, 5)
    frame: Any = Numbered(epoch, seq)
    assert tally.is_known(frame) == known


def test_the_rate_is_that_of_late_and_sinks_in_a_pause() -> None:
    tally = Tally()
    assert tally.rate_hz(now_ns=0) == 0
    for n in range(100):
        frame: Any = Numbered(1, n)
        tally.count(frame, is_whole=True, wanted_all=False, now_ns=n * SECOND // 10)
    last_ns = 99 * SECOND // 10
    assert tally.rate_hz(last_ns) == pytest.approx(10)
    assert tally.rate_hz(last_ns + SECOND // 20) == pytest.approx(10)
    assert tally.rate_hz(last_ns + 100 * SECOND) < 0.5

"""What a bridge notices by itself: that nothing new can be in time."""

from __future__ import annotations

import pytest

from tensor_pool.bridging.receiving import OutrunNumbers
from tensor_pool.bridging.source_epochs import SourceEpochs


class TestOutrunNumbers:
    @pytest.fixture
    def numbers(self) -> OutrunNumbers:
        return OutrunNumbers(patience_s=1.0)

    def test_late_chunks_beside_frames_are_usual(self, numbers: OutrunNumbers) -> None:
        for look in range(100):
            assert not numbers.are_outrun(begun=look, late=10 * look, now_s=0.25 * look)

    def test_a_source_that_pauses_is_not_outrun(self, numbers: OutrunNumbers) -> None:
        assert not numbers.are_outrun(begun=5, late=1, now_s=0.0)
        for look in range(100):
            assert not numbers.are_outrun(begun=5, late=1, now_s=0.25 * look)

    def test_nothing_but_late_chunks_for_a_second_is_enough(self, numbers: OutrunNumbers) -> None:
        assert not numbers.are_outrun(begun=5, late=1, now_s=0.0)
        assert not numbers.are_outrun(begun=5, late=2, now_s=1.0)
        assert not numbers.are_outrun(begun=5, late=3, now_s=1.9)
        assert numbers.are_outrun(begun=5, late=4, now_s=2.0)
        assert not numbers.are_outrun(begun=5, late=5, now_s=2.1), "it began anew"

    def test_a_slow_source_counts_too(self, numbers: OutrunNumbers) -> None:
        assert not numbers.are_outrun(begun=5, late=1, now_s=0.0)
        for look in range(1, 20):
            assert not numbers.are_outrun(begun=5, late=2, now_s=1.0 + 0.25 * look)
        assert numbers.are_outrun(begun=5, late=3, now_s=11.0)


class TestSourceEpochs:
    @pytest.fixture
    def epochs(self) -> SourceEpochs:
        epochs = SourceEpochs(fresh_s=5.0)
        assert epochs.follows(100, now_s=0.0)
        return epochs

    def test_newer_ones_count_at_once(self, epochs: SourceEpochs) -> None:
        assert all(epochs.follows(epoch, now_s=0.1) for epoch in (100, 101, 2**63))

    def test_older_ones_never_while_the_newest_is_told(self, epochs: SourceEpochs) -> None:
        for second in range(100):
            assert epochs.follows(100, now_s=second)
            assert not epochs.follows(99, now_s=second + 0.5)

    def test_one_that_goes_on_when_the_newest_is_silent_does(self, epochs: SourceEpochs) -> None:
        told = [epochs.follows(99, now_s=second) for second in range(1, 8)]
        assert told == [False] * 4 + [True] * 3
        assert epochs.returns == 1

    def test_a_few_stragglers_do_not(self, epochs: SourceEpochs) -> None:
        assert not any(epochs.follows(epoch, now_s=60.0) for epoch in (99, 99, 98, 99, 98, 97))
        assert epochs.returns == 0

    def test_the_newest_may_come_back(self, epochs: SourceEpochs) -> None:
        assert [epochs.follows(99, now_s=60.0) for _ in range(3)] == [False, False, True]
        assert epochs.follows(100, now_s=60.1)

"""Clocks: the right kernel clock, a stop-motion view of it, and one that tests move."""

import time

import pytest

from tensor_pool.runtime import CachedClock, Clock, FakeClock, SystemClock
from tensor_pool.runtime.clock import realtime_offset_ns


class TestSystemClock:
    def test_monotonic_time_is_clock_monotonic_and_not_boot_time(self) -> None:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        now = SystemClock().monotonic_ns()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)

        assert before <= now <= after

    def test_real_time_is_the_time_of_day(self) -> None:
        before = time.time_ns()
        now = SystemClock().realtime_ns()

        assert before <= now <= time.time_ns()


class TestCachedClock:
    def test_stands_still_until_refreshed(self) -> None:
        source = FakeClock(monotonic_ns=10, realtime_ns=100)
        clock: Clock = CachedClock(source)
        source.advance(ns=5)

        assert (clock.monotonic_ns(), clock.realtime_ns()) == (10, 100)

    def test_refresh_takes_both_times(self) -> None:
        source = FakeClock(monotonic_ns=10, realtime_ns=100)
        clock = CachedClock(source)
        source.advance(ns=5)
        source.step_realtime(-50)
        clock.refresh()

        assert (clock.monotonic_ns(), clock.realtime_ns()) == (15, 55)


class TestFakeClock:
    def test_advance_adds_all_units_to_both_clocks(self) -> None:
        clock = FakeClock(monotonic_ns=0, realtime_ns=7)
        clock.advance(ns=1, us=2, ms=3, s=4)

        assert clock.monotonic_ns() == 4_003_002_001
        assert clock.realtime_ns() == 4_003_002_008

    def test_monotonic_time_never_goes_back(self) -> None:
        clock = FakeClock()
        before = clock.monotonic_ns()

        with pytest.raises(ValueError, match="can't go back by 1 ns"):
            clock.advance(ns=-1)
        assert clock.monotonic_ns() == before

    def test_a_step_of_real_time_leaves_monotonic_time_alone(self) -> None:
        clock = FakeClock(monotonic_ns=50, realtime_ns=1_000)
        clock.step_realtime(-999)

        assert (clock.monotonic_ns(), clock.realtime_ns()) == (50, 1)

    def test_starts_away_from_zero_so_that_never_and_at_the_start_differ(self) -> None:
        assert FakeClock().monotonic_ns() > 0


class InterruptedClock(FakeClock):
    """Another thread runs between two readings, for so long each time."""

    def __init__(self, *pauses_ns: int) -> None:
        super().__init__(monotonic_ns=0, realtime_ns=1_000_000_000)
        self._pauses_ns = iter(pauses_ns)

    def realtime_ns(self) -> int:
        now_ns = super().realtime_ns()
        self.advance(ns=next(self._pauses_ns))
        return now_ns


class TestOffset:
    @pytest.mark.parametrize("pauses_ns", [(0,), (5_000_000, 0), (5_000_000, 10_000, 0)])
    def test_a_pause_between_two_readings_does_not_move_it(self, pauses_ns: tuple[int, ...]) -> None:
        assert abs(realtime_offset_ns(InterruptedClock(*pauses_ns)) - 1_000_000_000) <= 5_000

    def test_the_closest_reading_counts_where_none_is_close(self) -> None:
        pauses_ns = (9_000_000, 50_000, *(9_000_000,) * 6)
        assert realtime_offset_ns(InterruptedClock(*pauses_ns)) == 1_000_000_000 - 25_000

    def test_it_follows_a_step_of_real_time(self) -> None:
        clock = FakeClock(monotonic_ns=50, realtime_ns=1_050)
        clock.step_realtime(-900)
        assert realtime_offset_ns(clock) == 100

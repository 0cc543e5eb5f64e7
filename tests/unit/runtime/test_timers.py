"""Periods and deadlines, with missed periods skipped."""

import pytest

from tensor_pool.runtime import Periodic, TimerQueue


class TestPeriodic:
    def test_is_due_at_the_start_and_then_once_a_period(self) -> None:
        timer = Periodic(period_ns=10, start_ns=100)

        assert [now for now in range(90, 135) if timer.due(now)] == [100, 110, 120, 130]
        assert timer.skipped == 0

    def test_missed_periods_are_skipped_not_delivered_in_a_burst(self) -> None:
        timer = Periodic(period_ns=10, start_ns=100)

        assert timer.due(10_000)
        assert not timer.due(10_000)
        assert timer.skipped == 990

    def test_the_phase_is_kept_after_a_late_call(self) -> None:
        timer = Periodic(period_ns=10, start_ns=100)
        timer.due(137)

        assert not timer.due(139)
        assert timer.due(140)

    def test_a_clock_that_goes_back_only_makes_it_wait(self) -> None:
        timer = Periodic(period_ns=10, start_ns=100)
        timer.due(100)

        assert not timer.due(50)
        assert timer.due(110)

    @pytest.mark.parametrize("period_ns", [0, -1])
    def test_a_period_takes_time(self, period_ns: int) -> None:
        with pytest.raises(ValueError, match="at least 1 ns"):
            Periodic(period_ns=period_ns, start_ns=0)


class TestTimerQueue:
    def test_expires_in_the_order_of_deadlines(self) -> None:
        queue: TimerQueue[str] = TimerQueue()
        for key, deadline in [("late", 30), ("early", 10), ("middle", 20)]:
            queue.set(key, deadline)

        assert queue.expire(25) == ["early", "middle"]
        assert queue.expire(30) == ["late"]
        assert queue.expire(1_000) == []

    def test_equal_deadlines_expire_in_the_order_they_were_set(self) -> None:
        queue: TimerQueue[object] = TimerQueue()
        keys = [object() for _ in range(5)]  # no order of their own
        for key in keys:
            queue.set(key, 7)

        assert queue.expire(7) == keys

    def test_setting_again_moves_the_deadline_either_way(self) -> None:
        queue: TimerQueue[str] = TimerQueue()
        queue.set("lease", 10)
        queue.set("lease", 50)
        assert queue.expire(49) == []
        queue.set("lease", 20)

        assert queue.deadline_ns("lease") == 20
        assert queue.expire(20) == ["lease"]
        assert len(queue) == 0

    def test_cancelled_keys_never_expire(self) -> None:
        queue: TimerQueue[str] = TimerQueue()
        queue.set("lease", 10)

        assert queue.cancel("lease")
        assert not queue.cancel("lease")
        assert queue.expire(1_000) == []
        assert queue.next_deadline_ns() is None

    def test_a_key_set_again_after_cancel_has_only_its_new_deadline(self) -> None:
        queue: TimerQueue[str] = TimerQueue()
        queue.set("lease", 10)
        queue.cancel("lease")
        queue.set("lease", 100)

        assert queue.expire(99) == []
        assert queue.expire(100) == ["lease"]

    def test_next_deadline_is_that_of_the_earliest_key_that_counts(self) -> None:
        queue: TimerQueue[str] = TimerQueue()
        queue.set("a", 10)
        queue.set("b", 20)
        queue.set("a", 30)

        assert queue.next_deadline_ns() == 20
        assert "a" in queue
        assert "c" not in queue
        assert queue.deadline_ns("c") is None

    def test_memory_follows_the_keys_not_how_often_they_move(self) -> None:
        queue: TimerQueue[int] = TimerQueue()
        for deadline in range(100_000):
            queue.set(deadline % 10, deadline)

        assert len(queue) == 10
        assert len(queue._heap) <= 64
        assert sorted(queue.expire(100_000)) == list(range(10))

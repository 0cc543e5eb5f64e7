"""Timers against the simplest thing that could be right."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tensor_pool.runtime import Periodic, TimerQueue

keys = st.integers(0, 20)


class TimerQueueModel(RuleBasedStateMachine):
    """A queue beside a plain dictionary of deadlines."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: TimerQueue[int] = TimerQueue()
        self.model: dict[int, int] = {}
        self.now = 0

    @rule(key=keys, delay=st.integers(-10, 1_000))
    def set(self, key: int, delay: int) -> None:
        self.queue.set(key, self.now + delay)
        self.model[key] = self.now + delay

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        assert self.queue.cancel(key) == (self.model.pop(key, None) is not None)

    @rule(passed=st.integers(0, 500))
    def expire(self, passed: int) -> None:
        self.now += passed
        expired = self.queue.expire(self.now)
        due = {key: deadline for key, deadline in self.model.items() if deadline <= self.now}
        assert set(expired) == set(due)
        assert [due[key] for key in expired] == sorted(due.values())
        for key in due:
            del self.model[key]

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.model)
        assert self.queue.next_deadline_ns() == min(self.model.values(), default=None)
        assert len(self.queue._heap) <= max(64, 2 * len(self.model)) + 1


TestTimerQueueModel = TimerQueueModel.TestCase


@given(st.integers(1, 100), st.lists(st.integers(0, 1_000), min_size=1, max_size=50))
def test_a_period_is_delivered_at_most_once_and_none_is_lost_without_being_counted(
    period_ns: int, steps: list[int]
) -> None:
    timer = Periodic(period_ns=period_ns, start_ns=0)
    now = delivered = 0
    for step in steps:
        now += step
        delivered += timer.due(now)
        assert not timer.due(now)

    assert delivered + timer.skipped == now // period_ns + 1
    assert timer.next_ns % period_ns == 0
    assert now < timer.next_ns <= now + period_ns

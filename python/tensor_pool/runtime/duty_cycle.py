"""One agent with its clock and its counters: what `runner` and `invoker` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.runtime.clock import SystemClock
from tensor_pool.runtime.counters import CounterSet, CounterType, LocalCounters

if TYPE_CHECKING:
    from tensor_pool.runtime.agent import Agent
    from tensor_pool.runtime.clock import CachedClock, Clock
    from tensor_pool.runtime.counters import CounterFactory

__all__ = ["DutyCycle"]

_COUNTED: Final = (
    CounterType.AGENT_CYCLES,
    CounterType.AGENT_WORK,
    CounterType.AGENT_ERRORS,
    CounterType.AGENT_OVERRUNS,
    CounterType.AGENT_LONGEST_CYCLE,
)


class DutyCycle:
    """Calls an agent and measures how long it takes and what it does.

    Args:
        agent: What to call.
        clock: What cycles are measured with; the system's by default.
        cycle_clock: The agent's cached clock, refreshed before each duty cycle.
        counters: Where the counters come from; this process by default.
        overrun_ms: A duty cycle longer than this counts as an overrun.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        clock: Clock | None,
        cycle_clock: CachedClock | None,
        counters: CounterFactory | None,
        overrun_ms: float,
    ) -> None:
        self.agent = agent
        self._clock = SystemClock() if clock is None else clock
        self._cycle_clock = cycle_clock
        self._overrun_ns = int(overrun_ms * 1_000_000)
        self.counters = CounterSet(LocalCounters() if counters is None else counters, agent.name, _COUNTED)
        self._cycles, self._work, self.errors, self._overruns, self._longest = (
            self.counters[kind] for kind in _COUNTED
        )
        self._longest_ns = 0

    def run(self) -> int:
        """One duty cycle, measured; raises what the agent raises."""
        if self._cycle_clock is not None:
            self._cycle_clock.refresh()
        started_ns = self._clock.monotonic_ns()
        try:
            work_count = self.agent.do_work()
            if work_count:
                self._work.add(work_count)
            return work_count
        finally:
            self._cycles.add()
            taken_ns = self._clock.monotonic_ns() - started_ns
            if taken_ns > self._longest_ns:
                self._longest_ns = taken_ns
                self._longest.set(taken_ns)
            if taken_ns > self._overrun_ns:
                self._overruns.add()

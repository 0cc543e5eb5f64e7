"""An agent that its owner calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError
from tensor_pool.runtime.agent import StopAgent
from tensor_pool.runtime.duty_cycle import DutyCycle

if TYPE_CHECKING:
    from tensor_pool.runtime.agent import Agent
    from tensor_pool.runtime.clock import CachedClock, Clock
    from tensor_pool.runtime.counters import CounterFactory, CounterSet

__all__ = ["AgentInvoker"]


class AgentInvoker(Closing):
    """Runs an agent on the caller's thread, one duty cycle a call: for tests and for hosts with a loop.

    What the agent raises reaches the caller; the agent goes on with the next `invoke`.

    Args:
        agent: What to run.
        clock: What cycles are measured with.
        cycle_clock: The agent's cached clock, refreshed before each duty cycle.
        counters: Where the counters come from.
        overrun_ms: A duty cycle longer than this counts as an overrun.

    Example:
        >>> class Echo:
        ...     name = "echo"
        ...     def on_start(self) -> None: pass
        ...     def do_work(self) -> int: return 2
        ...     def on_close(self) -> None: pass
        >>> with AgentInvoker(Echo()) as echo:
        ...     echo.invoke() + echo.invoke()
        4
    """

    def __init__(
        self,
        agent: Agent,
        *,
        clock: Clock | None = None,
        cycle_clock: CachedClock | None = None,
        counters: CounterFactory | None = None,
        overrun_ms: float = 100.0,
    ) -> None:
        self._cycle = DutyCycle(
            agent,
            clock=clock,
            cycle_clock=cycle_clock,
            counters=counters,
            overrun_ms=overrun_ms,
        )
        self._is_started = False
        self._is_closed = False

    @property
    def agent(self) -> Agent:
        """The agent that this runs."""
        return self._cycle.agent

    @property
    def counters(self) -> CounterSet:
        """Cycles, work, errors, overruns and the longest cycle."""
        return self._cycle.counters

    @property
    def is_running(self) -> bool:
        """Whether the agent was started and is not closed."""
        return self._is_started and not self._is_closed

    def start(self) -> Self:
        """Start the agent; closes it again when that fails."""
        if self._is_started or self._is_closed:
            raise ClosedError(f"the invoker of {self.agent.name} was started or closed before")
        self._is_started = True
        try:
            self.agent.on_start()
        except BaseException:
            self.close()
            raise
        return self

    def invoke(self) -> int:
        """One duty cycle; 0 and a closed agent once its work is done."""
        if not self.is_running:
            raise ClosedError(f"{self.agent.name} is not running", hint="call start() before invoke()")
        try:
            return self._cycle.run()
        except StopAgent:
            self.close()
            return 0
        except Exception:
            self._cycle.errors.add()
            raise

    def close(self) -> None:
        """Close the agent if it was started; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._is_started:
                self.agent.on_close()
        finally:
            self.counters.close()

    def __enter__(self) -> Self:
        return self.start()

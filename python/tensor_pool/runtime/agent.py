"""Agents: the services of the pool, written as duty cycles.

An agent never owns a thread. `do_work` does what is there to do, without waiting, and says how much that was;
a `runner.AgentRunner` calls it from a thread of its own, an `invoker.AgentInvoker` from wherever a test or a
host's loop wants it. What an agent decides lives in state machines that know neither threads nor sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Agent", "CompositeAgent", "StopAgent"]


class StopAgent(Exception):  # noqa: N818 - like StopIteration: the end of the work, not an error
    """Raised by `Agent.do_work` when there will be no more work: the agent is closed, nothing is logged.

    Example:
        >>> class Once:
        ...     name = "once"
        ...     def on_start(self) -> None: pass
        ...     def do_work(self) -> int: raise StopAgent
        ...     def on_close(self) -> None: print("closed")
        >>> from tensor_pool.runtime import AgentInvoker
        >>> AgentInvoker(Once()).start().invoke()
        closed
        0
    """


class Agent(Protocol):
    """A service, one duty cycle at a time. All methods are called from one thread."""

    @property
    def name(self) -> str:
        """What logs, threads and counters call it."""
        ...

    def on_start(self) -> None:
        """Called once, before the first duty cycle; opens what the agent needs."""
        ...

    def do_work(self) -> int:
        """One duty cycle: do what can be done now, never wait, return how many things were done."""
        ...

    def on_close(self) -> None:
        """Called exactly once, last, on the thread that called `on_start`, and also when that failed."""
        ...


class CompositeAgent:
    """Several agents on one thread, as one agent.

    Each duty cycle gives every agent its turn, also when one of them fails: the failure is raised after the
    round. They start in the given order and close in the reverse one.

    Args:
        agents: At least one agent.
        name: What to call the whole; the members' names joined by "+" when left out.

    Example:
        >>> class Counting:
        ...     name = "counting"
        ...     turns = 0
        ...     def on_start(self) -> None: pass
        ...     def do_work(self) -> int:
        ...         self.turns += 1
        ...         return 1
        ...     def on_close(self) -> None: pass
        >>> both = CompositeAgent([Counting(), Counting()])
        >>> both.name, both.do_work()
        ('counting+counting', 2)
    """

    def __init__(self, agents: Sequence[Agent], *, name: str | None = None) -> None:
        if not agents:
            raise ValueError("a composite agent needs at least one agent")
        self._agents = tuple(agents)
        self._started: list[Agent] = []
        self._name = "+".join(agent.name for agent in agents) if name is None else name

    @property
    def name(self) -> str:
        """What logs, threads and counters call the whole."""
        return self._name

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The members, in their order."""
        return self._agents

    def on_start(self) -> None:
        """Start the members; stops at the first that fails."""
        for agent in self._agents:
            # Before the call: an agent whose start failed half-way must be closed too.
            self._started.append(agent)
            agent.on_start()

    def do_work(self) -> int:
        """Give each member its turn and add up what they did.

        Raises:
            StopAgent: A member's work is done, and so is that of the whole.
            ExceptionGroup: Several members failed; a single failure is raised as it is.
        """
        work_count = 0
        errors: list[Exception] = []
        for agent in self._agents:
            try:
                work_count += agent.do_work()
            except Exception as e:  # one member's failure must not starve the others
                errors.append(e)
        _raise_all(f"members of {self.name} failed", errors)
        return work_count

    def on_close(self) -> None:
        """Close the members that were started, last first, whatever some of them raise."""
        errors: list[Exception] = []
        while self._started:
            try:
                self._started.pop().on_close()
            except Exception as e:  # all of them get their turn
                errors.append(e)
        _raise_all(f"members of {self.name} failed to close", errors)


def _raise_all(what: str, errors: list[Exception]) -> None:
    failures = [e for e in errors if not isinstance(e, StopAgent)]
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(what, failures)
    if errors:
        raise StopAgent

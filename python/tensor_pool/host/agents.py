"""Agents as configured: the one place where the section `agents` becomes runners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.runtime import AgentRunner, ErrorPolicy, make_idle

if TYPE_CHECKING:
    from tensor_pool.config import AgentsSection
    from tensor_pool.runtime import Agent, Bell, CachedClock, CounterFactory, ErrorLog

__all__ = ["make_runner"]


def make_runner(
    section: AgentsSection,
    agent: Agent,
    *,
    bell: Bell | None = None,
    error_log: ErrorLog | None = None,
    cycle_clock: CachedClock | None = None,
    counters: CounterFactory | None = None,
) -> AgentRunner:
    """A runner with the section's settings; not started yet.

    Args:
        section: How agents run.
        agent: What to run.
        bell: What the idle strategy `doorbell` waits for.
        error_log: Where errors are noted; one of its own when left out.
        cycle_clock: The agent's cached clock, refreshed before each duty cycle.
        counters: Where the counters come from.

    Example:
        >>> from tensor_pool.config import AgentsSection
        >>> class Nothing:
        ...     name = "nothing"
        ...     def on_start(self) -> None: pass
        ...     def do_work(self) -> int: return 0
        ...     def on_close(self) -> None: pass
        >>> with make_runner(AgentsSection(), Nothing()) as runner:
        ...     runner.is_running
        True
    """
    return AgentRunner(
        agent,
        idle=make_idle(section.idle, bell=bell, max_pause_s=section.idle_max_pause_ms / 1_000),
        error_log=error_log,
        policy=ErrorPolicy(limit=section.error_limit),
        cycle_clock=cycle_clock,
        counters=counters,
        overrun_ms=section.overrun_ms,
        close_timeout_s=section.close_timeout_ms / 1_000,
    )

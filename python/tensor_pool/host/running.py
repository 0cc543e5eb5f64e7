"""An agent that runs by itself: a connection, a drain and a thread of its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.host import aeron as host_aeron
from tensor_pool.runtime import AgentRunner, ErrorPolicy, make_idle
from tensor_pool.transport import AeronClient, AeronCounters
from tensor_pool.transport.drain import Drain

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.config import Config
    from tensor_pool.runtime import Agent, CounterFactory

__all__ = ["RunningAgent"]

_LONGEST_NAP_S: Final = 0.1


class RunningAgent(Closing):
    """Runs an agent from construction to `close`.

    Args:
        config: The sections ``agents`` and ``aeron``.
        name: What its connection and its threads are called.
        make: Makes the agent, from what receives for it and from where its counters come.
        longest_pause_ms: How late a message may be noticed.

    Raises:
        NoMediaDriverError: Nobody runs a media driver here.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        make: Callable[[Drain, CounterFactory], Agent],
        *,
        longest_pause_ms: float = 10,
    ) -> None:
        with contextlib.ExitStack() as opening:
            client = opening.enter_context(
                AeronClient.connect(
                    host_aeron.aeron_dir(config.aeron),
                    name=name,
                    driver_timeout_ms=config.aeron.driver_timeout_ms,
                    channel_defaults=config.aeron.channel_defaults,
                )
            )
            drain = opening.enter_context(
                Drain(client, name=f"{name} drain", longest_pause_ms=longest_pause_ms)
            )
            counters = AeronCounters(client)
            self._runner = opening.enter_context(
                AgentRunner(
                    make(drain, counters),
                    idle=make_idle("doorbell", bell=drain, max_pause_s=_LONGEST_NAP_S),
                    policy=ErrorPolicy(limit=config.agents.error_limit),
                    counters=counters,
                )
            )
            self._own = opening.pop_all()

    @property
    def is_running(self) -> bool:
        """Whether it does its work."""
        return self._runner.is_running

    @property
    def error(self) -> BaseException | None:
        """What ended it, unless it was closed."""
        return self._runner.error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it has ended; says whether it has."""
        return self._runner.wait(timeout_s)

    def close(self) -> None:
        """Ends. May be called again."""
        self._own.close()

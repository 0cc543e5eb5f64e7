"""The supervisor of a host, from its configuration."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.control.supervisor.agent import SupervisorAgent
from tensor_pool.control.supervisor.config import Setting
from tensor_pool.host import aeron as host_aeron
from tensor_pool.runtime import AgentRunner, ErrorPolicy, make_idle
from tensor_pool.transport import AeronClient, AeronCounters
from tensor_pool.transport.drain import Drain

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.control.supervisor.journal import Journal
    from tensor_pool.control.supervisor.view import SupervisorView

__all__ = ["Supervisor"]

_LONGEST_NAP_S: Final = 0.1


class Supervisor(Closing):
    """Watches the streams of this host and moves consumers that can't keep up, from construction to `close`.

    Args:
        config: The sections ``supervisor``, ``streams``, ``driver``, ``client``, ``shm``, ``agents`` and
            ``aeron``.

    Raises:
        NoMediaDriverError: Nobody runs a media driver here.

    Example:
        >>> import tensor_pool as tp
        >>> from tensor_pool.testing import wait_until
        >>> with tp.connect(embedded=True) as pool, pool.producer("camera", dtype="uint8", shape=(4,)):
        ...     config = tp.load_config(overrides={"aeron.dir": pool.aeron_dir}, environ={}, search=False)
        ...     with Supervisor(config) as supervisor:
        ...         wait_until(lambda: [stream.name for stream in supervisor.view().streams])
        ['camera']
    """

    def __init__(self, config: Config) -> None:
        self.setting: Final = Setting.of(config)
        with contextlib.ExitStack() as opening:
            client = opening.enter_context(
                AeronClient.connect(
                    host_aeron.aeron_dir(config.aeron),
                    name="supervisor",
                    driver_timeout_ms=config.aeron.driver_timeout_ms,
                    channel_defaults=config.aeron.channel_defaults,
                )
            )
            drain = opening.enter_context(Drain(client, name="supervisor drain"))
            counters = AeronCounters(client)
            self._agent = SupervisorAgent(
                drain.client, self.setting, counters=counters, subscribe=drain.subscribe
            )
            self._runner = opening.enter_context(
                AgentRunner(
                    self._agent,
                    idle=make_idle("doorbell", bell=drain, max_pause_s=_LONGEST_NAP_S),
                    policy=ErrorPolicy(limit=config.agents.error_limit),
                    counters=counters,
                )
            )
            self._own = opening.pop_all()

    def view(self) -> SupervisorView:
        """All streams and consumers, as of the last look."""
        return self._agent.view()

    @property
    def journal(self) -> Journal:
        """What was decided and noticed."""
        return self._agent.journal

    @property
    def dry_run(self) -> bool:
        """Whether decisions are only logged; may be set while it runs."""
        return self._agent.dry_run

    @dry_run.setter
    def dry_run(self, dry_run: bool) -> None:
        self._agent.dry_run = dry_run

    @property
    def is_running(self) -> bool:
        """Whether it watches."""
        return self._runner.is_running

    @property
    def error(self) -> BaseException | None:
        """What ended it, unless it was closed."""
        return self._runner.error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it has ended; says whether it has."""
        return self._runner.wait(timeout_s)

    def close(self) -> None:
        """Ends. Consumers stay as they were told. May be called again."""
        self._own.close()

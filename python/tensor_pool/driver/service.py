"""The driver with everything around it: a client of Aeron and a thread."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

import tensor_pool
from tensor_pool.closing import Closing
from tensor_pool.driver.agent import DriverAgent
from tensor_pool.driver.config import DriverSection
from tensor_pool.driver.files import namespace_directory
from tensor_pool.driver.lock import is_held
from tensor_pool.driver.rivals import check_alone
from tensor_pool.runtime import AgentRunner, CompositeAgent, ErrorPolicy, make_idle
from tensor_pool.transport import AeronClient, AeronCounters
from tensor_pool.transport.drain import Drain
from tensor_pool.wire.messages import (
    DataSourceAnnounce,
    DataSourceMeta,
    QosProducer,
    ShmLeaseKeepalive,
    ShmPoolAnnounce,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from tensor_pool.config import Config
    from tensor_pool.runtime import Agent, Bell, CounterFactory, ErrorLog
    from tensor_pool.transport import Client, Subscribe
    from tensor_pool.wire.messages import DriverStatus

    Companion = Callable[[DriverAgent, Client, Subscribe | None, CounterFactory], Agent]

__all__ = ["Companion", "Driver"]

_REPLAY_WINDOW_NS: Final = 200_000_000
_CLIENT_SLEEP_MS: Final = 50
"""How late the driver may learn of a new client's publication; its messages wait meanwhile."""

_SIGNS_OF_LIFE: Final = (
    ShmLeaseKeepalive,
    QosProducer,
    ShmPoolAnnounce,
    DataSourceAnnounce,
    DataSourceMeta,
)
"""What comes all the time and can wait until somebody asks for something."""
_LOOKS_A_KEEPALIVE: Final = 4
_LONGEST_PAUSE_MS: Final = 20
"""While nobody asks for anything: waking up is most of what an idle driver costs."""
_MORE_REQUESTS_MS: Final = 50
"""After a request the driver looks for the next without growing pauses for so long."""


class Driver(Closing):
    """A running SHM driver; it runs from construction to `close`.

    Args:
        config: The sections `driver`, `streams`, `shm`, `agents` and `aeron`.
        aeron_dir: The media driver's directory, where it is not the configured one.
        client: A client of that media driver to use instead of one of its own; stays open.
        bell: What the idle strategy `doorbell` waits for.
        error_log: Where errors are noted; one of its own when left out.
        companions: Make agents that share the driver's thread and its connection.

    Raises:
        NoMediaDriverError: Nobody runs a media driver there.
        RegionError: Another SHM driver serves the directory, or it can't be used.
        ConfigError: Another SHM driver serves the control stream.

    Example:
        >>> import tempfile
        >>> from tensor_pool.config import load_config
        >>> from tensor_pool.transport import EmbeddedMediaDriver
        >>> shm = tempfile.TemporaryDirectory(dir="/dev/shm")
        >>> with EmbeddedMediaDriver.temporary() as media, shm as base:
        ...     config = load_config(overrides={"shm.shm_base_dir": base}, environ={}, search=False)
        ...     with Driver(config, aeron_dir=media.aeron_dir) as driver:
        ...         driver.status().state.name
        'RUNNING'
    """

    def __init__(
        self,
        config: Config,
        *,
        aeron_dir: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        bell: Bell | None = None,
        error_log: ErrorLog | None = None,
        companions: Sequence[Companion] = (),
    ) -> None:
        self._own = contextlib.ExitStack()
        subscribe: Subscribe | None = None
        on_request: Callable[[], object] | None = None
        if client is None:
            connection = self._own.enter_context(
                AeronClient.connect(
                    aeron_dir if aeron_dir is not None else config.aeron.dir or None,
                    name="SHM driver",
                    driver_timeout_ms=config.aeron.driver_timeout_ms,
                    idle_sleep_ms=_CLIENT_SLEEP_MS,
                    channel_defaults=config.aeron.channel_defaults,
                )
            )
            self._check_alone(connection, config)
            # Received on a native thread: an embedded driver shares the interpreter with a program that may
            # keep it busy for seconds, and the clients of others must not pay for that (pitfall 36).
            bell = drain = self._own.enter_context(
                Drain(
                    connection,
                    name="tp-driver-drain",
                    shortest_pause_ms=0.5,
                    longest_pause_ms=_LONGEST_PAUSE_MS,
                )
            )
            client = drain.client
            # Hundreds of streams are alive without waking the driver for each of them.
            subscribe = partial(drain.subscribe, quiet=_SIGNS_OF_LIFE)
            on_request = partial(drain.hurry, _MORE_REQUESTS_MS)
        self._client = client
        try:
            counters = AeronCounters(client)
            self._agent = DriverAgent(
                client,
                config[DriverSection],
                config.streams,
                config.shm,
                counters=counters,
                software_version=tensor_pool.__version__,
                replay_window_ns=_REPLAY_WINDOW_NS,
                subscribe=subscribe,
                on_request=on_request,
            )
            agents, section = config.agents, config[DriverSection]
            # Keepalives wake nobody: the driver looks for them several times before the next are due, and
            # never takes its own pause for a stall.
            pause_ms = min(agents.idle_max_pause_ms, section.keepalive_interval_ms / _LOOKS_A_KEEPALIVE)
            beside = [make(self._agent, client, subscribe, counters) for make in companions]
            self._runner = AgentRunner(
                CompositeAgent([self._agent, *beside], name=self._agent.name) if beside else self._agent,
                idle=make_idle(agents.idle, bell=bell, max_pause_s=pause_ms / 1_000),
                error_log=error_log,
                policy=ErrorPolicy(limit=agents.error_limit),
                counters=counters,
                overrun_ms=agents.overrun_ms,
                close_timeout_s=agents.close_timeout_ms / 1_000,
            ).start()
        except BaseException:
            self._own.close()
            raise

    def _check_alone(self, connection: AeronClient, config: Config) -> None:
        if is_held(namespace_directory(config.shm, config[DriverSection].instance_id)):
            return  # the agent finds out, and can say whose it is
        try:
            check_alone(connection, config.streams)
        except BaseException:
            self._own.close()
            raise

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return str(getattr(self._client, "aeron_dir", ""))

    @property
    def directory(self) -> str:
        """Where its streams lie."""
        return self._agent.directory

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._runner.is_running

    @property
    def error(self) -> BaseException | None:
        """What ended it, unless it was closed or asked to end."""
        return self._runner.error

    @property
    def error_log(self) -> ErrorLog:
        """The errors that it met."""
        return self._runner.error_log

    def status(self) -> DriverStatus:
        """What it is, does and allows."""
        return self._agent.status()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it has ended, by a shutdown request, an error or `close`; says whether it has."""
        return self._runner.wait(timeout_s)

    def close(self) -> None:
        """Tells its clients that it ends, and ends; may be called again."""
        self._runner.close()
        self._own.close()

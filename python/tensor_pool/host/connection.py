"""`tensor_pool.connect`: from a configuration to a pool."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.bridging.config import BridgeSection
from tensor_pool.config import Config, load_config
from tensor_pool.driver.config import DriverSection
from tensor_pool.errors import ConfigError, NoDriverError, NoMediaDriverError
from tensor_pool.host import aeron as host_aeron
from tensor_pool.host.agents import make_runner
from tensor_pool.host.ending import Belongings, close_at_exit, close_when_dropped
from tensor_pool.host.neighbours import Neighbours
from tensor_pool.pool.arguments import check_flag
from tensor_pool.pool.config import ClientSection
from tensor_pool.pool.pool import Pool
from tensor_pool.pool.refusals import no_driver_error
from tensor_pool.pool.sessions.agent import ClientAgent
from tensor_pool.pool.sessions.descriptors import DescriptorFeeds
from tensor_pool.pool.sessions.session import SessionContext
from tensor_pool.runtime import SystemClock
from tensor_pool.transport import AeronPublication
from tensor_pool.transport.drain import Drain
from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta, QosConsumer, QosProducer

if TYPE_CHECKING:
    from tensor_pool.pool.fallback_uri import ChunkPlace
    from tensor_pool.pool.sessions.attachment import Attachment
    from tensor_pool.pool.sessions.fallback import ChunkFeed
    from tensor_pool.pool.sessions.lease import StreamWish
    from tensor_pool.pool.sessions.session import Keepalive
    from tensor_pool.transport import AeronClient

__all__ = ["configured", "connect"]

_ANSWER_S: Final = 0.2
_ANSWER_SOON_MS: Final = 50

_DRAIN_PAUSES_MS: Final = {"latency": (0.05, 20.0), "balanced": (0.5, 30.0), "eco": (2.0, 50.0)}
"""The shortest and the longest pause between two looks at Aeron's streams."""


def connect(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    embedded: bool = False,
    config: Config | str | os.PathLike[str] | None = None,
    driver: bool = True,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Pool:
    """Connects to the streams of this host.

    Args:
        aeron_dir: The directory of the media driver to use; the configured or Aeron's own default one when
            left out. With `embedded` and nothing configured, a temporary one.
        embedded: Start a media driver and an SHM driver inside this process. Others join with
            ``connect(aeron_dir=pool.aeron_dir)``.
        config: A configuration, or the path of a ``tensor-pool.toml``; found as usual when left out.
        driver: False if there is no SHM driver: only ``attach=False`` works then, and what needs a driver is
            refused after half a second.
        name: What `tpool clients` and Aeron's tools call this process.
        settings: Configuration keys with their values, such as ``{"client.wake_profile": "latency"}``.

    Raises:
        ConfigError: An argument or the configuration makes no sense.
        NoDriverError: There is no driver; the text says how to start one.
        TransportError: With `embedded`: a media driver serves the configured directory already.

    Example:
        >>> import tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool:
        ...     pool.streams()
        []
    """
    check_flag("embedded", embedded)
    check_flag("driver", driver)
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"name={name!r:.80}", hint="a text, such as 'camera'")
    loaded = configured(config, aeron_dir, settings)
    with contextlib.ExitStack() as resources:
        if embedded:
            from tensor_pool.host.embedded import start_drivers  # noqa: PLC0415 - a client carries no server

            loaded = start_drivers(loaded, resources)
        pool = _open(loaded, resources, name=name, brings_drivers=embedded, expects_driver=driver)
    if driver:
        try:
            _await_driver(pool, timeout_s=loaded[ClientSection].attach_timeout_ms / 1000)
        except BaseException:
            pool.close()
            raise
    return pool


def configured(
    config: Config | str | os.PathLike[str] | None,
    aeron_dir: str | os.PathLike[str] | None,
    settings: Mapping[str, Any] | None,
) -> Config:
    """The configuration that arguments of `connect` mean.

    Raises:
        ConfigError: They make no sense.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings={settings!r:.80}",
            hint="a dict of keys with their values, such as {'log.level': 'debug'}",
        )
    overrides = dict(settings or {})
    if aeron_dir is not None:
        overrides["aeron.dir"] = str(aeron_dir)
    if isinstance(config, Config):
        return config.replace(overrides)
    if config is not None and not isinstance(config, str | os.PathLike):
        raise ConfigError(f"config={config!r:.80}", hint="what load_config returned, or the path of a file")
    return load_config(None if config is None else Path(config), overrides=overrides)


class _Pulses:
    """Keepalives from the drain's own thread."""

    def __init__(self, drain: Drain, publication: AeronPublication) -> None:
        self._drain = drain
        self._publication = publication

    def start(self, message: bytes, *, timestamp_offset: int, period_ns: int) -> Keepalive:
        return self._drain.native.pulse(
            self._publication.native, message, timestamp_offset=timestamp_offset, period_ns=period_ns
        )


def _is_forbidden(aeron_dir: str) -> bool:
    """Whether there is a media driver that this user must not use."""
    file = Path(aeron_dir, "cnc.dat")
    try:
        file.stat()
    except OSError as e:
        return isinstance(e, PermissionError)
    return not os.access(file, os.R_OK | os.W_OK)


def _open(
    config: Config,
    resources: contextlib.ExitStack,
    *,
    name: str | None,
    brings_drivers: bool,
    expects_driver: bool,
) -> Pool:
    """The client's threads and their pool; whoever holds `resources` owns it all until it is handed over."""
    section = config[ClientSection]
    directory = host_aeron.aeron_dir(config.aeron)
    try:
        client = resources.enter_context(host_aeron.connect(config.aeron, name=name))
    except NoMediaDriverError as e:
        if _is_forbidden(directory):
            raise NoDriverError(e.message, where=directory, hint=e.hint) from None
        # One traceback is enough: what was found says all that the other one would.
        raise no_driver_error(directory, found=e.message) from None
    shortest_ms, longest_ms = _DRAIN_PAUSES_MS[section.wake_profile]
    drain = resources.enter_context(
        Drain(client, name="pool drain", shortest_pause_ms=shortest_ms, longest_pause_ms=longest_ms)
    )
    # What everybody says once a second about themselves is looked at with whatever comes next, within 0.1 s.
    subscribe = partial(drain.subscribe, quiet=(QosConsumer, QosProducer, DataSourceAnnounce, DataSourceMeta))
    agent = ClientAgent(drain.client, config.streams, clock=SystemClock(), subscribe=subscribe)
    feeds = resources.enter_context(DescriptorFeeds(drain.descriptors))
    runner = make_runner(config.agents, agent, bell=drain)
    resources.enter_context(runner)
    control = agent.publication(config.streams.control_channel, config.streams.control_stream_id)
    assert isinstance(control, AeronPublication)
    context = SessionContext(
        agent=agent,
        keepalives=_Pulses(drain, control),
        section=section,
        shm=config.shm,
        feeds=feeds,
        descriptor_stream_ids=_ids(config, "descriptor_stream_id_range"),
        control_stream_ids=_ids(config, "control_stream_id_range"),
        answers_hellos=config[DriverSection].hello_authority == "producer",
        own_stream=lambda wish: _own_stream(wish, agent, config),
        surroundings=resources.enter_context(Neighbours(client, config, lambda other: connect(config=other))),
        open_chunks=lambda place, stream_id: _open_chunks(place, stream_id, client, config),
        chunk_stream_id=config[BridgeSection].payload_stream_id,
        wake=lambda: _wake(drain),
        is_running=lambda: runner.is_running,
    )
    belongings = Belongings(resources.pop_all())
    pool = Pool(context, aeron_dir=directory, close=belongings.close, expects_driver=expects_driver)
    close_at_exit(pool)
    if brings_drivers:
        close_when_dropped(pool, belongings)
    return pool


def _wake(drain: Drain) -> None:
    """Has the agent look at what a program wants; mostly somebody is asked for it, and answers soon."""
    drain.hurry(_ANSWER_SOON_MS)
    drain.wake()


def _own_stream(wish: StreamWish, agent: ClientAgent, config: Config) -> Attachment:
    from tensor_pool.host.driverless import OwnedStream  # noqa: PLC0415 - a client carries no server

    return OwnedStream(wish, ids=agent, shm=config.shm, announce=agent.send_announce, clock=agent.clock)


def _open_chunks(place: ChunkPlace, stream_id: int, client: AeronClient, config: Config) -> ChunkFeed:
    from tensor_pool.bridging.feeding import ConsumerChunks  # noqa: PLC0415 - few need it

    return ConsumerChunks(client, place, stream_id, config[BridgeSection])


def _ids(config: Config, key: str) -> range:
    """A range of Aeron streams; producers and the driver agree on it (decision D1)."""
    ids = config[DriverSection].ranges.get(key)
    return range(0) if ids is None else range(ids.first, ids.last + 1)


def _await_driver(pool: Pool, *, timeout_s: float) -> None:
    """Makes sure that there is a driver: ours answers, others announce."""
    deadline = time.monotonic() + timeout_s
    while not pool.heard_driver:
        try:
            pool.driver_status(timeout_s=_ANSWER_S)
        except NoDriverError:
            if time.monotonic() > deadline:
                raise

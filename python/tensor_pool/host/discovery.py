"""Discovery on this host: beside its driver, and as a registry of many drivers."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.channels import Endpoint
from tensor_pool.closing import Closing
from tensor_pool.discovery.agent import DiscoveryAgent
from tensor_pool.discovery.authority import Authority
from tensor_pool.discovery.config import DiscoverySection, registry_endpoint
from tensor_pool.discovery.places import HeardDriver
from tensor_pool.errors import ConfigError, NoMediaDriverError, TensorPoolError
from tensor_pool.host import aeron as host_aeron
from tensor_pool.host.connection import configured
from tensor_pool.host.neighbours import optional_providers, providers
from tensor_pool.host.running import RunningAgent
from tensor_pool.pool.discovering import DiscoveryClient
from tensor_pool.pool.refusals import no_driver_error

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from tensor_pool.config import Config
    from tensor_pool.discovery.config import DriverSource
    from tensor_pool.pool.discovering import FoundStream, Search
    from tensor_pool.runtime import CounterFactory
    from tensor_pool.transport.drain import Drain

__all__ = ["Registry", "Searching", "discover"]

_LOG: Final = logging.getLogger(__name__)
_LONGEST_PAUSE_MS: Final = 2
"""How late a registry may notice a question: many ask it, and wait."""


def discover(
    *,
    name: str = "",
    tag: str | Iterable[str] = (),
    stream_id: int | None = None,
    data_source_id: int | None = None,
    aeron_dir: str | os.PathLike[str] | None = None,
    config: Config | str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout_s: float = 1.0,
) -> list[FoundStream]:
    """Finds streams on this host and on those that the configured registries know.

    What is found is advice: attach to it with `tensor_pool.connect`; a stream of another host
    (`FoundStream.host`) needs a bridge first. The log warns of providers that don't answer, or can't.

    Args:
        name: The stream's name, exactly.
        tag: A tag, or several that it must all have. ``host:NAME`` is a tag of every stream of that host.
        stream_id: Its id.
        data_source_id: What it carries, as its producer numbers it.
        aeron_dir: The directory of this host's media driver.
        config: A configuration, or the path of a ``tensor-pool.toml``; found as usual when left out.
        settings: Configuration keys with their values.
        timeout_s: How long to wait for all providers.

    Raises:
        NoDriverError: Nobody answers; the text says how to start a driver.

    Example:
        >>> import tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool:
        ...     out = pool.producer("camera", dtype="uint8", shape=(4,), metadata={"tags": "lab,left"})
        ...     [found.name for found in tp.discover(tag="left", aeron_dir=pool.aeron_dir)]
        ['camera']
    """
    with Searching(configured(config, aeron_dir, settings)) as searching:
        tags = [tag] if isinstance(tag, str) else tag
        return searching.find(
            name=name, tags=tags, stream_id=stream_id, data_source_id=data_source_id, timeout_s=timeout_s
        )


class Searching(Closing):
    """A connection over which streams are looked for, again and again.

    Args:
        config: The sections ``discovery``, ``streams`` and ``aeron``.

    Raises:
        NoDriverError: There is no media driver.
    """

    def __init__(self, config: Config) -> None:
        self._aeron_dir = host_aeron.aeron_dir(config.aeron)
        with contextlib.ExitStack() as opening:
            try:
                client = opening.enter_context(host_aeron.connect(config.aeron, name="discover"))
            except NoMediaDriverError as e:
                raise no_driver_error(self._aeron_dir) from e
            self._client = opening.enter_context(
                DiscoveryClient(
                    client,
                    providers(config),
                    optional=optional_providers(config),
                    client_id=config[DiscoverySection].client_id,
                )
            )
            self._own = opening.pop_all()

    def find(self, *, timeout_s: float = 1.0, **filters: Any) -> list[FoundStream]:
        """What matches now; filters are those of `DiscoveryClient.ask`. Warns of providers that failed.

        Raises:
            NoDriverError: Nobody answers.
            TensorPoolError: All who answer say that they can't.
        """
        found = self.search(timeout_s=timeout_s, **filters)
        for complaint in found.complaints:
            _LOG.warning("there may be more streams: %s", complaint)
        return list(found.streams)

    def search(self, *, timeout_s: float = 1.0, **filters: Any) -> Search:
        """The same, with what providers say that failed instead of warnings.

        Raises:
            NoDriverError: Nobody answers.
            TensorPoolError: All who answer say that they can't.
        """
        found = self._client.ask(timeout_s=timeout_s, **filters)
        if not found.answered:
            raise no_driver_error(self._aeron_dir)
        if len(found.errors) == found.answered:
            raise TensorPoolError(found.errors[0], hint="ask for a name, or for a few tags")
        return found

    def close(self) -> None:
        """Ends the connection. May be called again."""
        self._own.close()


def _heard(source: DriverSource) -> HeardDriver:
    return HeardDriver(
        announces=Endpoint(source.channel, source.stream_id),
        metadata=Endpoint(
            source.metadata_channel or source.channel, source.metadata_stream_id or source.stream_id
        ),
        authority=Authority(source.instance_id, source.control_channel, source.control_stream_id, source.host)
        if source.names_its_driver
        else None,
    )


class Registry(RunningAgent):
    """A registry of the streams of many drivers; it runs from construction to `close`.

    Args:
        config: The sections ``discovery``, ``agents`` and ``aeron``.

    Raises:
        ConfigError: It would hear of nothing.
        NoMediaDriverError: Nobody runs a media driver here.
    """

    def __init__(self, config: Config) -> None:
        section = config[DiscoverySection]
        if not section.sources:
            raise ConfigError(
                "the registry has nobody to listen to",
                hint="a table [[discovery.sources]] with the channel where drivers tell of their streams",
            )
        self.requests = registry_endpoint(section)

        def make(drain: Drain, counters: CounterFactory) -> DiscoveryAgent:
            return DiscoveryAgent(
                drain.client,
                section,
                requests=self.requests,
                drivers=[_heard(source) for source in section.sources],
                expiry_ns=section.expiry_ns,
                counters=counters,
                subscribe=drain.subscribe,
            )

        super().__init__(config, "registry", make, longest_pause_ms=_LONGEST_PAUSE_MS)

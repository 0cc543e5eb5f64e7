"""Other drivers that a pool's consumers may need: found by discovery, asked where it says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tensor_pool.channels import Channel
from tensor_pool.closing import Closing
from tensor_pool.discovery.config import DiscoverySection, registry_endpoint, requests_endpoint
from tensor_pool.errors import NoStreamError
from tensor_pool.host.naming import is_elsewhere
from tensor_pool.pool.discovering import DiscoveryClient, ProviderAddress
from tensor_pool.pool.refusals import no_driver_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool.config import Config
    from tensor_pool.pool.discovering import FoundStream
    from tensor_pool.pool.pool import Pool
    from tensor_pool.transport import AeronClient

__all__ = ["Neighbours", "optional_providers", "providers"]


def providers(config: Config) -> list[ProviderAddress]:
    """Whom to ask: this host's driver, the registry that the same configuration is of, and others."""
    section = config[DiscoverySection]
    registry = [ProviderAddress(*registry_endpoint(section))] if section.sources else []
    others = [ProviderAddress(each.channel, each.stream_id) for each in section.providers]
    return [ProviderAddress(*requests_endpoint(config)), *registry, *others]


def optional_providers(config: Config) -> list[ProviderAddress]:
    """Those of them that need not be there: a registry's host may have no driver."""
    section = config[DiscoverySection]
    own = requests_endpoint(config)
    is_registry_host = bool(section.sources) and own != registry_endpoint(section)
    return [ProviderAddress(*own)] if is_registry_host else []


class Neighbours(Closing):
    """What a pool knows beyond its own driver; nothing is opened before somebody asks.

    Args:
        client: The pool's connection to the media driver; stays open.
        config: The pool's configuration.
        connect: Opens a pool of another driver.
    """

    def __init__(self, client: AeronClient, config: Config, connect: Callable[[Config], Pool]) -> None:
        self._client = client
        self._config = config
        self._connect = connect
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, int], Pool] = {}

    def own_streams(self, tags: Sequence[str], data_source_id: int | None) -> set[tuple[int, int | None]]:
        """See `Surroundings.own_streams`; only streams that are announced are known."""
        with self._asking([ProviderAddress(*requests_endpoint(self._config))]) as asking:
            found = asking.ask(tags=tags, data_source_id=data_source_id)
        if not found.answered:
            raise no_driver_error(self._client.aeron_dir)
        return {(stream.stream_id, stream.epoch) for stream in found.streams}

    def find(self, name: str) -> FoundStream | None:
        """See `Surroundings.find`."""
        found = self._named(name, self._is_own)  # whatever a registry says, which may be dead
        if any(self._is_own(stream) for stream in found):
            return None
        return next((stream for stream in found if not self._is_remote(stream)), None)

    def explain(self, name: str, error: NoStreamError) -> NoStreamError:
        """See `Surroundings.explain`."""
        found = self._named(name, self._is_remote)
        remote = next((stream for stream in found if self._is_remote(stream)), None)
        return error if remote is None else _needs_bridge(remote)

    def _named(self, name: str, is_enough: Callable[[FoundStream], bool]) -> tuple[FoundStream, ...]:
        if not name or not self._config[DiscoverySection].providers:
            return ()  # the driver itself knows its streams best
        with self._asking(providers(self._config)) as asking:
            return asking.ask(name=name, is_enough=is_enough).streams

    def _asking(self, whom: Sequence[ProviderAddress]) -> DiscoveryClient:
        return DiscoveryClient(
            self._client,
            whom,
            optional=optional_providers(self._config) if len(whom) > 1 else (),
            client_id=self._config[DiscoverySection].client_id,
        )

    def pool_of(self, stream: FoundStream) -> Pool | None:
        """See `Surroundings.pool_of`."""
        if self._is_remote(stream):
            raise _needs_bridge(stream)
        if self._is_own(stream):
            return None
        where = (stream.driver_control_channel, stream.driver_control_stream_id)
        with self._lock:
            if where not in self._pools or not self._pools[where].is_connected:
                self._pools[where] = self._connect(
                    self._config.replace(
                        {"streams.control_channel": where[0], "streams.control_stream_id": where[1]}
                    )
                )
            return self._pools[where]

    def close(self) -> None:
        """Closes the pools of other drivers. May be called again."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    def _is_remote(self, stream: FoundStream) -> bool:
        return is_elsewhere(self._config, stream)

    def _is_own(self, stream: FoundStream) -> bool:
        streams = self._config.streams
        return (
            not self._is_remote(stream)
            and stream.driver_control_stream_id == streams.control_stream_id
            and _place(stream.driver_control_channel) == _place(streams.control_channel)
        )


def _place(channel: str) -> tuple[str, str]:
    """Equal for channels that lead to the same place, whatever else they say."""
    parsed = Channel.parse(channel)
    return parsed.media, parsed.params.get("endpoint", "")


def _needs_bridge(stream: FoundStream) -> NoStreamError:
    return NoStreamError(
        f"stream {stream.name or stream.stream_id} is on host {stream.host} "
        f"(driver {stream.driver_instance_id}), not here",
        hint=f"a bridge from {stream.host} with source_stream_id = {stream.stream_id} brings it here "
        "(`tpool bridge run`); a consumer with shm=False reads the chunks of one",
    )

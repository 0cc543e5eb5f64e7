"""The SHM driver as a host runs it, with what shares its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.channels import Endpoint
from tensor_pool.control.config import ControlSection
from tensor_pool.discovery.agent import DiscoveryAgent
from tensor_pool.discovery.authority import Authority
from tensor_pool.discovery.config import DiscoverySection, requests_endpoint
from tensor_pool.discovery.feed import RegistryFeed
from tensor_pool.discovery.places import HeardDriver
from tensor_pool.driver import Driver, DriverSection
from tensor_pool.host.driver_service import DriverServiceAgent
from tensor_pool.host.naming import driver_name

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.driver.agent import DriverAgent
    from tensor_pool.driver.service import Companion
    from tensor_pool.runtime import Agent, CounterFactory
    from tensor_pool.transport import Client, Subscribe

__all__ = ["open_driver"]


def open_driver(config: Config) -> Driver:
    """An SHM driver with what shares its thread: discovery, and the service that others can command."""
    return Driver(config, companions=_companions(config))


def _companions(config: Config) -> list[Companion]:
    section = config[DiscoverySection]
    period_ns = config[DriverSection].announce_interval_ms * 1_000_000

    def provider(
        driver: DriverAgent, client: Client, subscribe: Subscribe | None, counters: CounterFactory
    ) -> Agent:
        return DiscoveryAgent(
            client,
            section,
            requests=requests_endpoint(config),
            drivers=[_own_driver(config, driver)],
            expiry_ns=3 * period_ns,
            counters=counters,
            subscribe=subscribe,
        )

    def feed(
        driver: DriverAgent, client: Client, subscribe: Subscribe | None, _counters: CounterFactory
    ) -> Agent:
        registries = [Endpoint(registry.channel, registry.stream_id) for registry in section.registries]
        return RegistryFeed(
            client, _own_driver(config, driver), registries, period_ns=period_ns, subscribe=subscribe
        )

    def service(
        driver: DriverAgent, client: Client, _subscribe: Subscribe | None, counters: CounterFactory
    ) -> Agent:
        return DriverServiceAgent(client, config, driver, counters)

    return (
        [provider] * section.embedded
        + [feed] * bool(section.registries)
        + [service] * config[ControlSection].enabled
    )


def _own_driver(config: Config, driver: DriverAgent) -> HeardDriver:
    streams, host = config.streams, config[DiscoverySection].host_name
    return HeardDriver(
        announces=Endpoint(streams.announce_channel, streams.announce_stream_id),
        metadata=Endpoint(streams.metadata_channel, streams.metadata_stream_id),
        authority=Authority(
            driver_name(config),
            streams.control_channel,
            streams.control_stream_id,
            host,
        ),
        speaks=lambda session_id: session_id == driver.announce_session_id,
    )

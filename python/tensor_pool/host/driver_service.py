"""The SHM driver as a service: what it does can be read, and leases ended, by events too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tensor_pool.control.declared import Command, Property, reading
from tensor_pool.control.desk import ServiceDesk
from tensor_pool.control.service import ServiceAgent
from tensor_pool.control.tags import service_tag
from tensor_pool.driver import DriverSection
from tensor_pool.runtime import Periodic, SystemClock

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.driver.agent import DriverAgent
    from tensor_pool.runtime import CounterFactory
    from tensor_pool.transport import Client

__all__ = ["DriverServiceAgent"]

_LOOK_NS: Final = 500_000_000
_LEVELS: Final = ("debug", "info", "warning", "error")


class DriverServiceAgent(ServiceAgent):
    """``service:driver``, on the driver's own thread.

    Args:
        client: The driver's connection.
        config: The sections ``control``, ``streams`` and ``driver``.
        driver: What is told of and commanded.
        counters: Where its counters come from.
    """

    def __init__(self, client: Client, config: Config, driver: DriverAgent, counters: CounterFactory) -> None:
        self._driver = driver
        logger = logging.getLogger("tensor_pool")
        level = logging.getLevelName(logger.getEffectiveLevel()).lower()
        desk = ServiceDesk(
            {
                "log.level": Property(
                    str,
                    default=level if level in _LEVELS else "warning",
                    choices=_LEVELS,
                    on_change=lambda name: logger.setLevel(name.upper()),
                    doc="How much the driver's process logs.",
                ),
                "driver.state": reading(str, "running or draining."),
                "driver.streams": reading(int, "Streams that it knows."),
                "driver.producers": reading(int, "Leases of producers."),
                "driver.consumers": reading(int, "Leases of consumers."),
                "driver.region_bytes": reading(int, "Memory that all epochs take."),
                "lease.revoke": Command(driver.revoke, kind=int, least=1, doc="Ends the lease of this id."),
            }
        )
        super().__init__(
            client,
            config,
            service_tag("driver", config[DriverSection].instance_id),
            desk,
            doc="Owns shared memory, and gives leases.",
            counters=counters,
        )
        self._looking = Periodic(period_ns=_LOOK_NS, start_ns=SystemClock().monotonic_ns())

    def do_work(self) -> int:
        """One duty cycle."""
        if self._looking.due(SystemClock().monotonic_ns()):
            self._look()
        return super().do_work()

    def _look(self) -> None:
        status = self._driver.status()
        for key, value in {
            "state": status.state.name.lower(),
            "streams": status.stream_count,
            "producers": status.producer_count,
            "consumers": status.consumer_count,
            "region_bytes": status.region_bytes,
        }.items():
            self.desk.set(f"driver.{key}", value)

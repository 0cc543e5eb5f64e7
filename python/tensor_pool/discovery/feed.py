"""Tells registries on other hosts what a driver's host has."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import TensorPoolError
from tensor_pool.runtime import Periodic, SystemClock
from tensor_pool.wire import encode
from tensor_pool.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.channels import Endpoint
    from tensor_pool.discovery.places import HeardDriver
    from tensor_pool.runtime import Clock
    from tensor_pool.transport import Client, Header, Publication, Subscribe, Subscription

__all__ = ["RegistryFeed"]

_LOG: Final = logging.getLogger(__name__)
_OF_DRIVER: Final = (m.ShmPoolAnnounce, m.ShmDriverShutdown)
_OF_PRODUCERS: Final = (m.DataSourceAnnounce, m.DataSourceMeta)
_POLL_LIMIT: Final = 256


class RegistryFeed:
    """An agent that repeats a driver's announces and its producers' metadata where registries listen.

    Before each round it says whose they are. Nothing waits: a registry that does not listen misses a round,
    and the next comes within an announce period. When it ends, so does the driver, and registries are told.

    Args:
        client: Aeron, or what stands for it.
        driver: The driver, and where it is heard.
        registries: Where to repeat it.
        period_ns: How often to say whose announces these are.
        clock: The time.
        subscribe: Opens a subscription to certain messages.
    """

    name = "registry feed"

    def __init__(
        self,
        client: Client,
        driver: HeardDriver,
        registries: Sequence[Endpoint],
        *,
        period_ns: int,
        clock: Clock | None = None,
        subscribe: Subscribe | None = None,
    ) -> None:
        assert driver.authority is not None
        self._client = client
        self._driver = driver
        self._authority = driver.authority
        self._registries = tuple(registries)
        self._period_ns = period_ns
        self._clock = SystemClock() if clock is None else clock
        self._subscribe = subscribe or (lambda *endpoint: client.add_subscription(*endpoint[:2]))
        self._subscriptions: list[Subscription] = []
        self._publications: list[Publication] = []

    def on_start(self) -> None:
        """Opens the streams."""
        self._announces = self._subscribe(*self._driver.announces, _OF_DRIVER)
        self._subscriptions.append(self._announces)
        self._metadata = self._subscribe(*self._driver.metadata, _OF_PRODUCERS)
        self._subscriptions.append(self._metadata)
        for registry in self._registries:
            self._publications.append(self._client.add_publication(*registry))
        # Twice a period: a registry that has just begun takes the first announces already.
        self._due = Periodic(period_ns=max(1, self._period_ns // 2), start_ns=self._clock.monotonic_ns())

    def do_work(self) -> int:
        """One duty cycle."""
        if self._due.due(self._clock.monotonic_ns()):
            self._say_who()
        announces = self._announces.poll(self._on_announce, _POLL_LIMIT)
        return announces + self._metadata.poll(self._tell, _POLL_LIMIT)

    def on_close(self) -> None:
        """Says goodbye for the driver, and closes the streams."""
        try:
            self._say_goodbye()
        except TensorPoolError as e:  # the media driver may be gone first
            _LOG.warning("no registry was told that the driver ends: %s", e.message)
        finally:
            for end in (*self._subscriptions, *self._publications):
                end.close()

    def _on_announce(self, data: bytes, header: Header) -> None:
        if self._driver.speaks(header.session_id):
            self._tell(data)

    def _tell(self, data: bytes, _header: Header | None = None) -> None:
        for publication in self._publications:
            publication.offer(data)

    def _say_who(self) -> None:
        who = m.DriverAnnounce(
            timestamp_ns=self._clock.monotonic_ns(),
            control_stream_id=self._authority.control_stream_id,
            announce_interval_ms=self._period_ns // 1_000_000,
            instance_id=self._authority.instance_id,
            control_channel=self._authority.control_channel,
            host=self._authority.host,
        )
        self._tell(encode(who))

    def _say_goodbye(self) -> None:
        # The driver's own notice comes too late to be repeated: what shares its thread closes before it does.
        self._tell(encode(m.ShmDriverShutdown(self._clock.monotonic_ns(), m.ShutdownReason.NORMAL)))

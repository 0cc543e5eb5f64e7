"""Aeron under Python: a media driver, clients, publications, subscriptions and counters.

    from tensor_pool.transport import AeronClient, EmbeddedMediaDriver

    with EmbeddedMediaDriver.temporary() as driver, AeronClient.connect(driver.aeron_dir) as client:
        subscription = client.add_subscription("aeron:ipc", 1100)
        publication = client.add_publication("aeron:ipc", 1100)
        publication.wait_connected(1_000)
        publication.offer(b"hello")
        subscription.receive()

Agents depend on the protocols (`Client`, `Publication`, `Subscription`) only; `tensor_pool.transport.memory`
has the same in memory for tests of their logic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.channels import (
    Channel,
    ChannelDefaults,
    for_publication,
    for_subscription,
    ipc,
    udp,
)
from tensor_pool.transport.backpressure import (
    DROP,
    RAISE,
    BackPressurePolicy,
    OfferCounts,
    OfferResult,
    retry_for,
)
from tensor_pool.transport.client import AeronClient, ConductorError
from tensor_pool.transport.counters import (
    AeronCounters,
    CounterReading,
    read_counters,
    received_positions,
)
from tensor_pool.transport.drain import Drain, DrainedClient, DrainedSubscription
from tensor_pool.transport.endpoints import AeronPublication, AeronSubscription
from tensor_pool.transport.media import (
    EmbeddedMediaDriver,
    ExternalMediaDriver,
    MediaDriver,
    MediaDriverOptions,
    MediaDriverStatus,
    default_aeron_dir,
    is_alive,
    media_driver_status,
)
from tensor_pool.transport.protocol import (
    Client,
    CounterCell,
    Header,
    Image,
    ImageEvent,
    Message,
    MessageHandler,
    Publication,
    Subscribe,
    Subscription,
)

if TYPE_CHECKING:
    from tensor_pool.transport.spawned import SpawnedMediaDriver

__all__ = [
    # what agents depend on
    "Client",
    "CounterCell",
    "Header",
    "Image",
    "ImageEvent",
    "Message",
    "MessageHandler",
    "Publication",
    "Subscribe",
    "Subscription",
    # Aeron
    "AeronClient",
    "AeronPublication",
    "AeronSubscription",
    "ConductorError",
    # Aeron, received on a native thread
    "Drain",
    "DrainedClient",
    "DrainedSubscription",
    # back-pressure
    "DROP",
    "RAISE",
    "BackPressurePolicy",
    "OfferCounts",
    "OfferResult",
    "retry_for",
    # channels
    "Channel",
    "ChannelDefaults",
    "for_publication",
    "for_subscription",
    "ipc",
    "udp",
    # media driver
    "EmbeddedMediaDriver",
    "ExternalMediaDriver",
    "MediaDriver",
    "MediaDriverOptions",
    "MediaDriverStatus",
    "SpawnedMediaDriver",
    "default_aeron_dir",
    "is_alive",
    "media_driver_status",
    # counters
    "AeronCounters",
    "CounterReading",
    "read_counters",
    "received_positions",
]


def __getattr__(name: str) -> type[SpawnedMediaDriver]:
    # What starting processes needs costs as much to import as everything else here, and few use it.
    if name == "SpawnedMediaDriver":
        from tensor_pool.transport.spawned import SpawnedMediaDriver  # noqa: PLC0415

        return SpawnedMediaDriver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

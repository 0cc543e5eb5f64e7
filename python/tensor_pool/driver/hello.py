"""Answers consumers' hellos where the driver is the one authority for them (decision D14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.wire.messages import ConsumerConfig
from tensor_pool.wire.shm import LAYOUT_VERSION

if TYPE_CHECKING:
    from tensor_pool.driver.registry import StreamRegistry
    from tensor_pool.wire.messages import ConsumerHello

__all__ = ["HelloDesk"]


class HelloDesk:
    """Says how consumers read: from shared memory, on the shared streams.

    A stream for one consumer needs a producer that publishes on it. The driver publishes no descriptors, so
    it declines every such wish: empty channel, id 0 (decision D15). Who wants them given out lets producers
    answer, which is the default.

    Args:
        streams: What there is; hellos for other streams are somebody else's.

    Example:
        >>> from tensor_pool.driver.config import DriverSection
        >>> from tensor_pool.driver.registry import StreamRegistry
        >>> from tensor_pool.wire.messages import ConsumerHello, Mode
        >>> streams = StreamRegistry(DriverSection())
        >>> _ = streams.add(10000)
        >>> hello = ConsumerHello(
        ...     stream_id=10000, consumer_id=7, supports_shm=True, supports_progress=False, mode=Mode.STREAM,
        ...     descriptor_stream_id=31005, descriptor_channel="aeron:ipc")
        >>> config = HelloDesk(streams).answer(hello)
        >>> config.use_shm, config.descriptor_channel, config.descriptor_stream_id
        (True, '', 0)
    """

    def __init__(self, streams: StreamRegistry) -> None:
        self._streams = streams

    def answer(self, hello: ConsumerHello) -> ConsumerConfig | None:
        """The answer to a hello, or None when it is for a stream that is not served here."""
        if self._streams.get(hello.stream_id) is None:
            return None
        return ConsumerConfig(
            stream_id=hello.stream_id,
            consumer_id=hello.consumer_id,
            use_shm=hello.supports_shm and hello.expected_layout_version in (0, LAYOUT_VERSION),
            mode=hello.mode,
        )

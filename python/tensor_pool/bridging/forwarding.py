"""The sender's messages beside chunks: announces, and by configuration metadata, reports and progress."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from tensor_pool import wire
from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire.messages import (
    DataSourceAnnounce,
    DataSourceMeta,
    FrameProgress,
    MetaBlobAnnounce,
    MetaBlobChunk,
    MetaBlobComplete,
    QosConsumer,
    QosProducer,
    ShmPoolAnnounce,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool.bridging.config import Route
    from tensor_pool.bridging.ports import Ports
    from tensor_pool.config import StreamsSection
    from tensor_pool.transport import Header, Publication, Subscription

__all__ = ["METADATA", "Forwarder", "Listening"]

_LOG: Final = logging.getLogger(__name__)
_LIMIT: Final = 64
METADATA: Final = (DataSourceAnnounce, DataSourceMeta, MetaBlobAnnounce, MetaBlobChunk, MetaBlobComplete)
"""What is told of a stream on its metadata stream."""


class Listening:
    """Subscriptions whose messages go to functions by kind; what can't be read is counted."""

    def __init__(self) -> None:
        self._heard: list[tuple[Subscription, Callable[[wire.Message], None]]] = []
        self.malformed = 0

    def add(self, subscription: Subscription, on_message: Callable[[wire.Message], None]) -> None:
        """Hands what comes from it to `on_message`."""
        self._heard.append((subscription, on_message))

    def poll(self) -> int:
        """Takes what is there; how many messages that were."""
        return sum(
            subscription.poll(lambda data, header, handle=handle: self._decode(data, header, handle), _LIMIT)
            for subscription, handle in self._heard
        )

    def _decode(self, data: bytes, _header: Header, handle: Callable[[wire.Message], None]) -> None:
        try:
            message = wire.decode(data)
        except MalformedMessageError as e:
            self.malformed += 1
            _LOG.debug("a message that can't be read: %s", e)
            return
        handle(message)


class Forwarder:
    """An agent that tells the other host of the streams that are sent to it.

    Messages keep the number of the source's stream (decision R1), and everything else that they say.

    Args:
        ports: Makes publications and subscriptions.
        streams: Where the local messages are.
        routes: The mappings that are sent.
    """

    name: Final = "bridge forward"

    def __init__(self, ports: Ports, streams: StreamsSection, routes: Sequence[Route]) -> None:
        self._listening = Listening()
        self._control: dict[int, Publication] = {}
        self._metadata: dict[int, Publication] = {}
        self._with_progress: set[int] = set()
        self._with_qos: set[int] = set()
        self.forwarded: Counter[str] = Counter()
        """Messages, by kind."""
        for route in routes:
            source = route.source_stream_id
            self._control[source] = ports.publication(*route.control)
            if route.metadata is not None:
                self._metadata[source] = ports.publication(*route.metadata)
            if route.forward_progress:
                self._with_progress.add(source)
            if route.forward_qos:
                self._with_qos.add(source)
        self._listen(ports, streams, routes)

    def _listen(self, ports: Ports, streams: StreamsSection, routes: Sequence[Route]) -> None:
        announces = ports.subscription(
            streams.announce_channel, streams.announce_stream_id, [ShmPoolAnnounce]
        )
        self._listening.add(announces, self._on_announce)
        for stream_id in {route.source_metadata_stream_id for route in routes if route.metadata is not None}:
            metadata = ports.subscription(streams.metadata_channel, stream_id, METADATA)
            self._listening.add(metadata, self._on_metadata)
        wanted = [route for route in routes if route.forward_progress or route.forward_qos]
        for stream_id in {route.source_control_stream_id for route in wanted}:
            control = ports.subscription(
                streams.control_channel, stream_id, [FrameProgress, QosProducer, QosConsumer]
            )
            self._listening.add(control, self._on_control)

    # --- the agent ----------------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Everything was opened before."""

    def do_work(self) -> int:
        """See `tensor_pool.runtime.Agent.do_work`."""
        return self._listening.poll()

    def on_close(self) -> None:
        """What was opened belongs to who made it."""

    # --- messages -----------------------------------------------------------------------------------------

    def _on_announce(self, message: wire.Message) -> None:
        if isinstance(message, ShmPoolAnnounce):
            self._forward(message, self._control.get(message.stream_id))

    def _on_metadata(self, message: wire.Message) -> None:
        if isinstance(message, METADATA):
            self._forward(message, self._metadata.get(message.stream_id))

    def _on_control(self, message: wire.Message) -> None:
        match message:
            case FrameProgress() if message.stream_id in self._with_progress:
                self._forward(message, self._control[message.stream_id])
            case QosProducer() | QosConsumer() if message.stream_id in self._with_qos:
                self._forward(message, self._control[message.stream_id])

    def _forward(self, message: wire.Message, publication: Publication | None) -> None:
        if publication is not None:
            publication.offer(wire.encode(message))
            self.forwarded[type(message).__name__] += 1

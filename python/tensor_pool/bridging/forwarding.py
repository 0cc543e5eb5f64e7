"""The sender's messages beside chunks: announces, and by configuration metadata, reports and progress."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool import wire
from tensor_pool.bridging.source_life import SourceLife
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

    from tensor_pool.bridging.config import BridgeSection, ResolvedMapping
    from tensor_pool.bridging.mapping import ChannelStream
    from tensor_pool.bridging.ports import Ports
    from tensor_pool.config import StreamsSection
    from tensor_pool.transport import Header, Subscription

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
        count = 0
        for subscription, on_message in self._heard:
            count += subscription.poll(partial(self._decode, on_message), _LIMIT)
        return count

    def _decode(self, on_message: Callable[[wire.Message], None], data: bytes, _header: Header) -> None:
        try:
            message = wire.decode(data)
        except MalformedMessageError as e:
            self.malformed += 1
            _LOG.debug("a message that can't be read: %s", e)
            return
        on_message(message)


class Forwarder:
    """An agent that tells the other host of the streams that are sent to it.

    Messages keep everything that they say; the number of the stream is that of its chunks (decision R1).

    Args:
        ports: Makes publications and subscriptions.
        streams: Where the local messages are.
        section: The bridge.
        routes: The mappings that are sent.
        fresh_s: How long a stream counts as there after it was announced.
    """

    name: Final = "bridge forward"

    def __init__(
        self,
        ports: Ports,
        streams: StreamsSection,
        section: BridgeSection,
        routes: Sequence[ResolvedMapping],
        *,
        fresh_s: float,
    ) -> None:
        self._ports = ports
        self._listening = Listening()
        self._routes: dict[int, list[ResolvedMapping]] = defaultdict(list)
        for route in routes:  # one stream may go to several hosts
            self._routes[route.source_stream_id].append(route)
        now_s = time.monotonic()
        self._lives = {
            stream_id: SourceLife(fresh_s=fresh_s, silent_s=fresh_s, now_s=now_s)
            for stream_id in self._routes
        }
        self.forwarded: Counter[str] = Counter()
        """Messages, by kind."""
        announces = ports.subscription(
            streams.announce_channel, streams.announce_stream_id, [ShmPoolAnnounce]
        )
        self._listening.add(announces, self._on_announce)
        if any(route.forwards_metadata for route in routes):
            metadata = ports.subscription(
                streams.metadata_channel, section.source_metadata_id(streams), METADATA
            )
            self._listening.add(metadata, self._on_metadata)
        wanted = [route for route in routes if route.forwards_progress or route.forwards_qos]
        places = {(streams.control_channel, route.mapping.source_control_stream_id) for route in wanted}
        if any(route.forwards_qos for route in routes):
            places.add((streams.qos_channel, streams.qos_stream_id))  # where our own clients tell it
        for channel, stream_id in places:
            control = ports.subscription(channel, stream_id, [FrameProgress, QosProducer, QosConsumer])
            self._listening.add(control, self._on_control)

    def source_trouble(self, stream_id: int) -> str | None:
        """Why there is nothing to send of a stream, if that is up to whoever produces it."""
        match self._lives[stream_id].trouble(time.monotonic()):
            case None:
                return None
            case "absent":
                return f"there is no stream {stream_id} here that somebody produces (see `tpool streams`)"
            case _:
                return f"stream {stream_id} has no producer any more"

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
            if message.stream_id in self._lives:
                is_produced = message.producer_id != 0
                self._lives[message.stream_id].on_announce(produced=is_produced, now_s=time.monotonic())
            self._forward(message, [(route, route.control) for route in self._routes_of(message)])

    def _on_metadata(self, message: wire.Message) -> None:
        if isinstance(message, METADATA):
            places = [(route, route.metadata) for route in self._routes_of(message)]
            self._forward(message, [(route, place) for route, place in places if place is not None])

    def _on_control(self, message: wire.Message) -> None:
        routes = self._routes_of(message)
        if isinstance(message, FrameProgress):
            self._forward(message, [(route, route.control) for route in routes if route.forwards_progress])
        elif isinstance(message, (QosProducer, QosConsumer)):
            self._forward(message, [(route, route.control) for route in routes if route.forwards_qos])

    def _routes_of(self, message: wire.Message) -> Sequence[ResolvedMapping]:
        return self._routes.get(getattr(message, "stream_id", -1), ())

    def _forward(self, message: wire.Message, to: list[tuple[ResolvedMapping, ChannelStream]]) -> None:
        """Once to each place, whichever mappings share it."""
        for stream_id, place in dict.fromkeys((route.wire_stream_id, place) for route, place in to):
            on_wire = msgspec.structs.replace(message, stream_id=stream_id)
            self._ports.publication(*place).offer(wire.encode(on_wire))
            self.forwarded[type(message).__name__] += 1

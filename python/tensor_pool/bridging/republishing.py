"""The receiver's messages beside chunks: what the source tells of its streams, told again on this host."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool import wire
from tensor_pool.bridging.forwarding import METADATA, Listening
from tensor_pool.datatypes import MAX_DIMS
from tensor_pool.pool.summary import parse_summary
from tensor_pool.transport import OfferResult
from tensor_pool.wire.messages import (
    DataSourceAnnounce,
    FrameProgress,
    QosConsumer,
    QosProducer,
    ResolveStream,
    Role,
    ShmPoolAnnounce,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.bridging.ports import Ports
    from tensor_pool.bridging.receiving import ReceiveLane
    from tensor_pool.config import StreamsSection

__all__ = ["Republisher"]

_CONTROL: Final = (ShmPoolAnnounce, FrameProgress, QosProducer, QosConsumer)


class Republisher:
    """An agent that hears what senders tell of their streams.

    Announces tell the lanes which frames to accept and are never told again: local consumers hear their own
    driver's. Everything else is told under the local stream's number and epoch.

    Args:
        ports: Makes publications and subscriptions.
        streams: Where local messages go.
        lanes: The mappings that are received.
    """

    name: Final = "bridge republish"

    def __init__(self, ports: Ports, streams: StreamsSection, lanes: Sequence[ReceiveLane]) -> None:
        self._listening = Listening()
        self._lanes = {lane.route.wire_stream_id: lane for lane in lanes}
        self._metadata = ports.publication(streams.metadata_channel, streams.metadata_stream_id)
        self._control = {
            lane.route.mapping.dest_control_stream_id: ports.publication(
                streams.control_channel, lane.route.mapping.dest_control_stream_id
            )
            for lane in lanes
            if lane.route.forwards_progress or lane.route.forwards_qos
        }
        self._driver = ports.publication(streams.control_channel, streams.control_stream_id)
        self._described: dict[int, tuple[int, str]] = {}
        """What the driver was told of the frames of each lane, and as which producer."""
        self.republished: Counter[str] = Counter()
        """Messages, by kind."""
        self.dropped: Counter[str] = Counter()
        """Messages that nothing was done with, by reason."""
        for channel, stream_id in {lane.route.control for lane in lanes}:
            self._listening.add(ports.subscription(channel, stream_id, _CONTROL), self._on_control)
        for channel, stream_id in {lane.route.metadata for lane in lanes if lane.route.metadata is not None}:
            self._listening.add(ports.subscription(channel, stream_id, METADATA), self._on_metadata)

    # --- the agent ----------------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Everything was opened before."""

    def do_work(self) -> int:
        """See `tensor_pool.runtime.Agent.do_work`."""
        return self._listening.poll()

    def on_close(self) -> None:
        """What was opened belongs to who made it."""

    # --- messages -----------------------------------------------------------------------------------------

    def _on_control(self, message: wire.Message) -> None:
        lane = self._lane_of(message)
        if lane is None:
            return
        match message:
            case ShmPoolAnnounce():
                lane.on_announce(message)
            case FrameProgress() if lane.route.forwards_progress:
                self._on_progress(message, lane)
            case QosProducer() | QosConsumer() if lane.route.forwards_qos:
                self._tell(message, lane)

    def _on_progress(self, message: FrameProgress, lane: ReceiveLane) -> None:
        """At most what came of the frame so far is told, as there is no more to read (decision R8)."""
        prefix = lane.prefix(message.seq)
        if message.epoch != lane.source_epoch or prefix is None:
            self.dropped["progress_of_no_frame"] += 1
            return
        filled = min(message.payload_bytes_filled, prefix)
        clamped = msgspec.structs.replace(message, payload_bytes_filled=filled)
        self._tell(clamped, lane)

    def _tell(self, message: FrameProgress | QosProducer | QosConsumer, lane: ReceiveLane) -> None:
        if lane.stream_id is None or lane.epoch is None:
            self.dropped["no_local_stream"] += 1
            return
        local = msgspec.structs.replace(message, stream_id=lane.stream_id, epoch=lane.epoch)
        self._control[lane.route.mapping.dest_control_stream_id].offer(wire.encode(local))
        self.republished[type(message).__name__] += 1

    def _on_metadata(self, message: wire.Message) -> None:
        lane = self._lane_of(message)
        if lane is None or not isinstance(message, METADATA) or lane.route.metadata is None:
            return
        stream_id, epoch = lane.route.mapping.metadata_stream_id or lane.stream_id, lane.epoch
        if stream_id is None or epoch is None:
            self.dropped["no_local_stream"] += 1
            return
        changes: dict[str, Any] = {}
        if isinstance(message, DataSourceAnnounce):
            # One name for all who look: the driver knows the stream by that of the mapping.
            changes = {"epoch": epoch, "name": lane.route.mapping.name or message.name}
            self._describe(message.summary, lane)
        local = msgspec.structs.replace(message, stream_id=stream_id, **changes)
        self._metadata.offer(wire.encode(local))
        self.republished[type(message).__name__] += 1

    def _describe(self, text: str, lane: ReceiveLane) -> None:
        """Tells the driver what the frames are like: nobody could when the lane attached."""
        summary, producer_id = parse_summary(text), lane.producer_id
        if summary is None or producer_id is None:
            return
        if self._described.get(lane.route.wire_stream_id) == (producer_id, text):
            return
        request = ResolveStream(
            correlation_id=secrets.randbits(63),
            client_id=producer_id,
            stream_id=lane.stream_id,
            role=Role.PRODUCER,
            dtype=summary.dtype,
            major_order=summary.order,
            ndims=len(summary.shape),
            dims=(*summary.shape, *(0,) * (MAX_DIMS - len(summary.shape))),
        )
        if self._driver.offer(wire.encode(request)) is OfferResult.SENT:
            self._described[lane.route.wire_stream_id] = (producer_id, text)

    def _lane_of(self, message: wire.Message) -> ReceiveLane | None:
        lane = self._lanes.get(getattr(message, "stream_id", -1))
        if lane is None:
            self.dropped["unknown_stream"] += 1
        return lane

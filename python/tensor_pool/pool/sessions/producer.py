"""A producer's part on the agent's thread: its ring, its consumers, its metadata, its quality of service."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool import _native, wire
from tensor_pool.errors import ClosedError
from tensor_pool.pool.consumer_desk import ConsumerDesk
from tensor_pool.pool.metadata import MetadataSource
from tensor_pool.pool.progress.throttle import ProgressPolicy, ProgressThrottle
from tensor_pool.pool.qos import ConsumerWatch, qos_producer
from tensor_pool.pool.sessions.attachment import FOR_EVER_NS
from tensor_pool.pool.sessions.blob_shelf import BlobShelf
from tensor_pool.pool.sessions.private_sinks import PrivateSinks
from tensor_pool.pool.sessions.progress_reporter import ProgressReporter
from tensor_pool.pool.sessions.session import StreamSession
from tensor_pool.pool.stats import ProducerStats
from tensor_pool.pool.summary import format_summary
from tensor_pool.pool.told_assignments import ToldAssignments
from tensor_pool.runtime import Periodic
from tensor_pool.runtime.clock import realtime_offset_ns
from tensor_pool.transport import AeronPublication
from tensor_pool.wire.messages import (
    ClockDomain,
    ConsumerConfig,
    ConsumerHello,
    QosConsumer,
    Role,
    ShmLeaseRevoked,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tensor_pool.pool.sessions.lease import Lease, StreamWish
    from tensor_pool.pool.sessions.session import SessionContext
    from tensor_pool.transport import Header
    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import FrameProgress

__all__ = ["ProducerOptions", "ProducerSession"]

_STALE_INTERVALS: Final = 4
_PROGRESS_POLICY: Final = ProgressPolicy()


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer publishes."""

    name: str = ""
    """What the stream is called, where the wish has only an id."""
    attach: bool = True
    metadata: dict[str, Any] = {}
    flush: Callable[[NDArray[Any]], object] | None = None
    realtime: bool = False
    lock_memory: bool = False
    stamp_descriptors: bool = False
    fallback_uri: str = ""
    """Where consumers without shared memory find the stream's chunks."""
    relays: bool = False
    """Frames and metadata are those of a stream elsewhere: it tells nothing of its own, and gives nobody a
    stream of one's own [BRG-4-4]."""


class ProducerSession(StreamSession):
    """Holds the ring of a producer, and answers its consumers.

    Args:
        context: The connection.
        wish: Which stream, and what its frames are like.
        options: How it publishes.
    """

    def __init__(self, context: SessionContext, wish: StreamWish, options: ProducerOptions) -> None:
        super().__init__(context, wish, None if options.attach else context.own_stream(wish))
        self.options = options
        self.outlet = _native.Outlet()
        """What user threads publish through."""
        clock = context.agent.clock
        now_ns = clock.monotonic_ns()
        self.metadata = MetadataSource(
            0,  # known when the driver has answered
            name=wish.name or options.name,
            summary=format_summary(wish.dtype, wish.shape, wish.major_order) if wish.shape else "",
            period_ns=context.section.metadata_interval_ns,
            values=options.metadata,
            realtime_offset_ns=realtime_offset_ns(clock),
            clock_domain=ClockDomain.REALTIME_SYNCED if options.realtime else ClockDomain.MONOTONIC,
        )
        self.blobs = BlobShelf(0)
        self.dead: BaseException | None = None
        self.private_sinks: PrivateSinks | None = None
        """Descriptor streams of single consumers; None when there is none, which costs publishing nothing."""
        self._progress = ProgressThrottle(0)
        self._progress_sent = 0
        self._desk: ConsumerDesk | None = None
        self._told: ToldAssignments | None = None
        """Set where somebody else decides who gets a stream of its own."""
        self._served_changes = (-1, -1)
        self._hints_ns = 0
        self._watch: ConsumerWatch | None = None
        self._qos_timer = Periodic(period_ns=context.section.hello_interval_ns, start_ns=now_ns)

        self.metadata.on_change = self.outlet.on_metadata_change
        self.outlet.on_metadata_change()
        self._serve_with(None)

    @property
    def writer(self) -> _native.RingWriter | None:
        """The ring to write to; whoever has it must bear that it is closed any time."""
        return self.outlet.writer

    @property
    def has_consumers(self) -> bool:
        """Whether anybody is known to read."""
        return self._watch is not None and bool(self._watch.consumers)

    @property
    def meta_version(self) -> int:
        """The version of the metadata that belongs to frames published now."""
        return self.metadata.meta_version

    # --- the ring ---------------------------------------------------------------------------------------

    def open_ring(self, lease: Lease, now_ns: int) -> None:  # noqa: ARG002 - consumers need the time
        """Maps the ring for writing."""
        streams = self.agent.streams
        descriptors = self.agent.publication(streams.descriptor_channel, streams.descriptor_stream_id)
        writer = _native.RingWriter(
            lease.address,
            base_dirs=self.base_dirs,
            descriptors=descriptors.native if isinstance(descriptors, AeronPublication) else None,
            stamp_descriptors=self.options.stamp_descriptors,
            outlet=self.outlet,
        )
        if self.lease_losses:
            # The first time it is done by who asked for the producer, and waits for it anyway.
            writer.prefault(lock=self.options.lock_memory)
        section, relays = self.context.section, self.options.relays
        descriptor_ids = range(0) if relays else self.context.descriptor_stream_ids
        control_ids = range(0) if relays else self.context.control_stream_ids
        self._desk = ConsumerDesk(
            lease.stream_id,
            descriptor_stream_ids=descriptor_ids,
            control_stream_ids=control_ids,
            interval_ns=section.hello_interval_ns,
            fallback_uri=self.options.fallback_uri,
        )
        self._told = None
        if not self.context.answers_hellos:
            self._told = ToldAssignments(
                lease.stream_id,
                descriptor_stream_ids=descriptor_ids,
                control_stream_ids=control_ids,
                silence_ns=_STALE_INTERVALS * section.hello_interval_ns,
                limited_rate_hz=section.limited_rate_hz,
            )
        self._watch = ConsumerWatch(
            lease.stream_id, stale_after_ns=_STALE_INTERVALS * self.context.section.hello_interval_ns
        )
        self._progress = ProgressThrottle(lease.stream_id)
        self.metadata.stream_id = lease.stream_id
        self.blobs.bind(lease.stream_id)
        self.metadata.bind(producer_id=lease.client_id, epoch=lease.epoch)
        self.outlet.writer = writer

    def drop_ring(self, reason: str) -> None:  # noqa: ARG002 - the base class logs it
        """Stops writing: a claim that is open can't be committed any more [DRV-4.7-6]."""
        writer, self.outlet.writer = self.outlet.writer, None
        if writer is not None:
            writer.close()
        if self.private_sinks is not None:
            self.private_sinks.close()
            self._serve_with(None)

    def forget(self, writer: _native.RingWriter) -> None:
        """A user thread found the ring closed before this session took it away."""
        if self.writer is writer and writer.closed:
            self.outlet.writer = None

    def on_client_lost(self, error: BaseException) -> None:
        """See `StreamSession.on_client_lost`."""
        self.dead = error
        super().on_client_lost(error)

    # --- messages -----------------------------------------------------------------------------------------

    def on_message(self, message: Message, header: Header, now_ns: int) -> bool:
        """See `StreamSession.on_message`; what a hello asks for, or its answer says, is done in this turn."""
        wants_turn = super().on_message(message, header, now_ns)
        return wants_turn or isinstance(message, ConsumerHello | ConsumerConfig)

    def on_stream_message(self, message: Message, header: Header, now_ns: int) -> None:  # noqa: ARG002
        """Answers hellos, and keeps count of who reads."""
        desk, watch = self._desk, self._watch
        if desk is None or watch is None:
            return
        if self._told is not None and isinstance(message, ConsumerConfig):
            self._told.on_config(message, desk.hello(message.consumer_id), now_ns)
            return
        if self._told is not None and isinstance(message, ConsumerHello | QosConsumer):
            self._told.on_life(message.consumer_id, now_ns)
        match message:
            case ConsumerHello():
                if message.consumer_id not in watch.consumers:
                    self.blobs.repeat()
                watch.on_hello(message, now_ns)
                config = desk.on_hello(message, now_ns)
            case QosConsumer():
                writer = self.writer
                watch.on_qos(message, now_ns, next_seq=None if writer is None else writer.next_seq)
                config = desk.on_qos(message, now_ns)
            case ShmLeaseRevoked(role=Role.CONSUMER):
                # Consumers go by the id of their lease: what one had is closed now, and not when it has been
                # silent for long enough [WIRE-5-9]. Nor does it fall behind any more.
                watch.forget(message.client_id)
                if self._told is not None:
                    self._told.on_disconnect(message.client_id)
                if desk.on_disconnect(message.client_id) is not None:
                    self._serve_privately(desk)
                return
            case _:
                return
        if config is not None and self.context.answers_hellos:
            self.agent.send(config)

    def _serve_privately(self, desk: ConsumerDesk) -> None:
        """Opens and closes publications as the desk decided."""
        self._progress.hints = _PROGRESS_POLICY.aggregate(desk.hellos)
        assigned = (desk if self._told is None else self._told).assignments.values()
        wanted = [assignment for assignment in assigned if assignment.descriptor or assignment.control]
        if wanted and self.private_sinks is None:
            self._serve_with(PrivateSinks(self.agent))
        if self.private_sinks is not None:
            self.private_sinks.match(wanted)
            if not wanted:
                self.private_sinks.close()
                self._serve_with(None)

    def _serve_with(self, sinks: PrivateSinks | None) -> None:
        self.private_sinks = sinks
        self.outlet.observed = sinks is not None or self.options.flush is not None

    # --- what is due --------------------------------------------------------------------------------------

    def is_due(self, now_ns: int) -> bool:
        """Also when a program changed the metadata, or progress was held back."""
        return (
            super().is_due(now_ns)
            or (self.metadata.has_changes and not self.options.relays)
            or self.blobs.has_waiting
            or self._progress.is_due(now_ns)
        )

    def work(self, now_ns: int) -> int:
        """Metadata, quality of service, and consumers that fell silent."""
        lease, writer, desk, watch = self.attachment.lease, self.writer, self._desk, self._watch
        if lease is None or writer is None or desk is None or watch is None:
            return FOR_EVER_NS
        desk.expire(now_ns)
        if self._told is not None:
            self._told.expire(now_ns)
        changes = (desk.changes, 0 if self._told is None else self._told.changes)
        if changes != self._served_changes or now_ns >= self._hints_ns:
            self._served_changes = changes
            self._hints_ns = now_ns + self.context.section.hello_interval_ns
            self._serve_privately(desk)
        watch.expire(now_ns)
        held_back = self._progress.tick(now_ns)
        if held_back is not None:
            self._send_progress(held_back)
        if not self.options.relays:
            realtime_ns = now_ns + realtime_offset_ns(self.agent.clock)
            for message in self.metadata.due(now_ns, realtime_ns=realtime_ns):
                self.agent.send_metadata(message)
        self.blobs.send(self.agent.send_metadata)  # who relays may have put some there
        if self._qos_timer.due(now_ns):
            self.agent.send_qos(
                qos_producer(
                    stream_id=lease.stream_id,
                    producer_id=lease.client_id,
                    epoch=lease.epoch,
                    next_seq=writer.next_seq,
                    watermark=watch.watermark(epoch=lease.epoch),
                )
            )
        return (
            self._qos_timer.next_ns
            if self.options.relays
            else min(self._qos_timer.next_ns, self.metadata.next_ns)
        )

    # --- for user threads -----------------------------------------------------------------------------------

    def tell_privately(
        self, writer: _native.RingWriter, seq: int, timestamp_ns: int, trace_id: int | None
    ) -> None:
        """Sends the frame's descriptor to consumers with streams of their own, then rings for everybody."""
        sinks, lease = self.private_sinks, self.attachment.lease
        if sinks is not None and lease is not None:
            stamp_ns = time.monotonic_ns()
            descriptor = _native.FrameDescriptor(
                stream_id=lease.stream_id,
                epoch=lease.epoch,
                seq=seq,
                timestamp_ns=stamp_ns if self.options.stamp_descriptors else None,
                meta_version=self.meta_version or None,
                trace_id=trace_id,
            )
            sinks.send_descriptor(descriptor.encode(), timestamp_ns)
        with contextlib.suppress(ClosedError):  # the frame was the ring's last
            writer.ring()

    def progress_reporter(self, writer: _native.RingWriter, claim: _native.Claim) -> ProgressReporter:
        """Tells consumers of a claim's progress."""
        return ProgressReporter(self._progress, self._send_progress, claim, epoch=writer.address.epoch)

    def _send_progress(self, message: FrameProgress) -> None:
        self.agent.send(message)
        self._progress_sent += 1
        if self.private_sinks is not None:
            self.private_sinks.send_progress(wire.encode(message))

    def stats(self) -> ProducerStats:
        """What was published so far."""
        writer, outlet = self.writer, self.outlet
        return ProducerStats(
            frames=outlet.frames,
            bytes=outlet.bytes,
            too_large=outlet.too_large,
            claims_aborted=outlet.aborted,
            descriptors_sent=outlet.descriptors_sent,
            descriptors_skipped=outlet.descriptors_skipped,
            descriptors_dropped=outlet.descriptors_dropped,
            progress_sent=self._progress_sent,
            meta_version=self.metadata.meta_version,
            reconnects=self.reconnects,
            lease_losses=self.lease_losses,
            consumers=0 if self._watch is None else len(self._watch.consumers),
            watermark=self._watermark(),
            epoch=None if self.attachment.lease is None else self.attachment.lease.epoch,
            last_seq=None if writer is None or writer.next_seq == 0 else writer.next_seq - 1,
        )

    def _watermark(self) -> int | None:
        lease, watch = self.attachment.lease, self._watch
        return None if lease is None or watch is None else watch.watermark(epoch=lease.epoch)

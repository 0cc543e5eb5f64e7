"""A consumer's part on the agent's thread: which ring is mapped, what it asks for, what it reports."""

from __future__ import annotations

import collections
import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool import _native
from tensor_pool.errors import NoStreamError, RegionError, TensorPoolError
from tensor_pool.pool.blobs import BlobAssembly
from tensor_pool.pool.mapping import Map, MappingState, Refresh, Remap, Unmap
from tensor_pool.pool.metadata import MetadataView
from tensor_pool.pool.pacing import RateGate
from tensor_pool.pool.progress import ProgressTracker
from tensor_pool.pool.qos import IdCollision, qos_consumer
from tensor_pool.pool.sessions.attachment import FOR_EVER_NS
from tensor_pool.pool.sessions.consumer_streams import ConsumerStreams
from tensor_pool.pool.sessions.session import StreamSession
from tensor_pool.pool.sessions.unattached import Unattached
from tensor_pool.pool.stats import ConsumerStats
from tensor_pool.runtime import Periodic
from tensor_pool.wire.messages import (
    ConsumerConfig,
    DataSourceAnnounce,
    DataSourceMeta,
    FrameProgress,
    MetaBlobAnnounce,
    MetaBlobChunk,
    MetaBlobComplete,
    Mode,
    QosConsumer,
    Role,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.pool.blobs import Blob
    from tensor_pool.pool.mapping import MappingAction
    from tensor_pool.pool.progress import TrackedFrame
    from tensor_pool.pool.sessions.lease import Lease, StreamWish
    from tensor_pool.pool.sessions.session import SessionContext
    from tensor_pool.transport import Header
    from tensor_pool.wire import Message

__all__ = ["ConsumerOptions", "ConsumerSession", "Start"]

_LOG: Final = logging.getLogger(__name__)

_MOST_PROGRESS: Final = 256
"""Progress messages that wait to be looked at; the oldest make room."""

Start = str | int
"""``"latest"``, ``"oldest"`` or a sequence number."""


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer reads."""

    start: Start = "latest"
    mode: Mode = Mode.STREAM
    max_rate_hz: int = 0
    progress: bool = False
    own_stream: bool = False
    attach: bool = True
    copy_mode: bool = False
    relaxed_stride: bool = False
    max_outstanding_seq_gap: int = 256


class ConsumerSession(StreamSession):
    """Keeps the right ring mapped, and everybody informed.

    Args:
        context: The connection.
        wish: Which stream.
        options: How it is read.
    """

    def __init__(self, context: SessionContext, wish: StreamWish, options: ConsumerOptions) -> None:
        super().__init__(context, wish, None if options.attach else context.attachment(wish, Unattached))
        self.options = options
        self.inlet = _native.Inlet()
        """What user threads take frames from."""
        self.blobs: dict[int, Blob] = {}
        """The newest blob of each type."""
        self._assembly = BlobAssembly()
        self.metadata = MetadataView(0)  # the stream's id is known when the driver has answered
        self.changed = threading.Condition()
        """Notified whenever `reader` changes or there is progress."""
        self._on_reader: Callable[[_native.RingReader | None], None] | None = None
        self._on_qos: Callable[[QosConsumer, bool], object] | None = None
        self.gate = RateGate(options.max_rate_hz) if options.mode is Mode.RATE_LIMITED else None
        """Thins frames out while the producer does not do it for us."""
        self.streams = ConsumerStreams(context, options)
        self.progress: collections.deque[TrackedFrame] = collections.deque(maxlen=_MOST_PROGRESS)
        self.dead: BaseException | None = None
        self.refusal: TensorPoolError | None = None
        """Why there will be no frames, as long as the stream's authority does not change its mind."""
        self._tracker = ProgressTracker(0)
        self._mapping: MappingState | None = None
        self._ids = IdCollision(0, context.agent.client_id())
        self._position: tuple[int, int] | None = None
        """Epoch and next sequence number of the last ring, to go on there when it is mapped again."""
        self._gaps = 0
        self._late = 0
        self._drops: collections.Counter[str] = collections.Counter()
        now_ns = context.agent.clock.monotonic_ns()
        interval_ns = context.section.hello_interval_ns
        self._hello_timer = Periodic(period_ns=interval_ns, start_ns=now_ns)
        self._qos_timer = Periodic(period_ns=interval_ns, start_ns=now_ns + interval_ns)

        self._guide()

    @property
    def reader(self) -> _native.RingReader | None:
        """The ring in use; whoever has it must bear that it is closed any time."""
        return self.inlet.reader

    def watch_readers(self, on_reader: Callable[[_native.RingReader | None], None]) -> None:
        """Tells of this ring and of every other one, for whoever watches the doorbell."""
        self._on_reader = on_reader
        self._guide()
        on_reader(self.reader)

    def watch_reports(self, on_qos: Callable[[QosConsumer, bool], object]) -> None:
        """Tells of every report of a consumer of the stream, and whether it is our own.

        Called from the agent's thread: whoever listens must be quick and must not raise.
        """
        self._on_qos = on_qos

    def _guide(self) -> None:
        """Says whether more than the ring decides what a poll gives, and where descriptors are found."""
        private = self.streams.private
        self.inlet.guided = private is not None or self.gate is not None or self._on_reader is not None
        self.inlet.descriptors = self.streams.log if private is None else private.log

    @property
    def consumer_id(self) -> int:
        """Its id in hellos and reports."""
        return self._ids.consumer_id

    # --- the ring ---------------------------------------------------------------------------------------

    def open_ring(self, lease: Lease, now_ns: int) -> None:
        """Maps what the driver's answer names, by the rules for announces."""
        self._ids = IdCollision(lease.stream_id, lease.client_id)
        mapping = self._mapping_of(lease.stream_id)
        action = mapping.on_announce(
            lease.announce, received_ns=now_ns, join_time_ns=0, realtime_ns=self.agent.clock.realtime_ns()
        )
        if isinstance(action, Map | Remap):
            self._map(action.address, now_ns)
            if mapping.epoch is None and mapping.failure is not None:
                raise mapping.failure

    def drop_ring(self, reason: str) -> None:
        """Lets go of the ring; frames in use are worthless from now on [DRV-4.9-6, DRV-4.9-7]."""
        if self._mapping is not None:
            self._mapping.on_lost(reason)
        self._replace_reader(None)
        self.streams.close()
        self._guide()

    def on_client_lost(self, error: BaseException) -> None:
        """See `StreamSession.on_client_lost`."""
        self.dead = error
        super().on_client_lost(error)

    def _mapping_of(self, stream_id: int) -> MappingState:
        if self._mapping is None:
            self.metadata.stream_id = self._tracker.stream_id = stream_id
            self._mapping = MappingState(stream_id, freshness_ns=self.context.section.announce_freshness_ns)
            self._due_ns = 0  # there is something to do from now on, also where no lease gave it a turn
        return self._mapping

    def _map(self, address: _native.RingAddress, now_ns: int) -> None:
        """Opens a ring, and lets go of the one in use only if that works."""
        mapping = self._mapping_of(address.stream_id)
        try:
            reader = _native.RingReader(
                address,
                base_dirs=self.base_dirs,
                mode="copy" if self.options.copy_mode else "map",
                relaxed_stride=self.options.relaxed_stride,
                inlet=self.inlet,
            )
            pid, activity_ns = reader.liveness()
        except RegionError as e:
            mapping.on_map_failed(e)
            return
        if not mapping.is_live(activity_ns, now_ns):
            mapping.on_map_failed(RegionError("nobody has kept the announced memory alive"))
            reader.close()
            return
        mapping.on_mapped(epoch=address.epoch, pid=pid)
        reader.seek(self._first_seq(reader))
        if self.gate is not None:
            self.gate.restart()
        self._tracker.set_epoch(address.epoch)
        self.streams.on_mapped(address)
        self._guide()
        self._replace_reader(reader)

    def _first_seq(self, reader: _native.RingReader) -> int:
        """Where to begin (decision M16)."""
        if self._position is not None and self._position[0] == reader.address.epoch:
            return self._position[1]
        oldest = reader.oldest()
        # Who was there before the frames were sees them all: an epoch that began meanwhile, a stream that was
        # waited for (pitfall 26).
        if self._position is not None or self.attachment.waited_for_stream or self.options.start == "oldest":
            return oldest or 0
        if self.options.start == "latest":
            return reader.newest() or 0
        assert isinstance(self.options.start, int)
        return max(self.options.start, oldest or 0)

    def _replace_reader(self, reader: _native.RingReader | None) -> None:
        old, self.inlet.reader = self.inlet.reader, reader
        if old is not None:
            self._position = (old.address.epoch, old.next_seq)
            self._count_unread(old)
            self._gaps += old.gaps
            self._late += old.late
            self._drops.update(old.drops)
            self._forget_registration()
            old.revoke()
        if old is not reader:
            self._tell_users()
            if self._on_reader is not None:
                self._on_reader(reader)

    def _forget_registration(self) -> None:
        """The ring is about to be unmapped: devices must not know it any more."""
        registration, self.inlet.registration = self.inlet.registration, None
        if registration is not None:
            registration.close()

    def _count_unread(self, ring: _native.RingReader) -> None:
        """Frames that are there, but not for us any more: their epoch or our lease is over [DRV-4.9-9]."""
        newest = ring.newest()
        if newest is not None and newest >= ring.next_seq:
            self._drops["epoch_ended"] += newest + 1 - ring.next_seq

    def _tell_users(self) -> None:
        with self.changed:
            self.changed.notify_all()

    # --- messages -----------------------------------------------------------------------------------------

    def on_stream_message(self, message: Message, header: Header, now_ns: int) -> None:
        """Takes a message about the stream."""
        match message:
            case ShmPoolAnnounce():
                self._on_announce(message, header, now_ns)
            case ShmLeaseRevoked(role=Role.PRODUCER):
                self._on_producer_revoked(message, now_ns)
            case DataSourceAnnounce() | DataSourceMeta():
                self._on_metadata(message)
            case MetaBlobAnnounce() | MetaBlobChunk() | MetaBlobComplete():
                self._on_blob(message, now_ns)
            case ConsumerConfig():
                self._on_config(message, now_ns)
            case QosConsumer():
                self._on_report(message, header, now_ns)
            case FrameProgress():
                self._on_progress(message)

    def _on_producer_revoked(self, notice: ShmLeaseRevoked, now_ns: int) -> None:
        """No frame of an epoch whose producer is gone, until the next one is announced [DRV-4.9-9]."""
        if self._mapping is not None:
            lost = self._mapping.on_producer_revoked(notice.client_id, notice.timestamp_ns)
            self._act(lost, now_ns)

    def _on_metadata(self, message: DataSourceAnnounce | DataSourceMeta) -> None:
        if self.attachment.stream_id is None:
            # Without a driver, names are what producers say they are.
            self.attachment.stream_id = self._mapping_of(message.stream_id).stream_id
            self._follow()
        self.metadata.on_message(message)

    def _on_blob(self, message: MetaBlobAnnounce | MetaBlobChunk | MetaBlobComplete, now_ns: int) -> None:
        blob = self._assembly.on_message(message, now_ns)
        if blob is not None:
            self.blobs = {**self.blobs, blob.blob_type: blob}  # replaced, not changed: user threads read it

    def _on_report(self, report: QosConsumer, header: Header, now_ns: int) -> None:
        """Somebody else may report under our id: then we take another [WIRE-10.1.2-15]."""
        is_own = self.agent.is_own(header)
        if self._on_qos is not None:
            self._on_qos(report, is_own and report.consumer_id == self.consumer_id)
        if is_own or self._ids.on_qos(report, header.session_id) is None:
            return
        _LOG.warning("another consumer of stream %s had our id, took %d", self.wish.label, self.consumer_id)
        self._hello_timer.next_ns = now_ns

    def _on_progress(self, progress: FrameProgress) -> None:
        tracked = self._tracker.on_progress(progress) if self.options.progress else None
        if tracked is not None:
            self.progress.append(msgspec.structs.replace(tracked))
            self._tell_users()

    def _on_announce(self, announce: ShmPoolAnnounce, header: Header, now_ns: int) -> None:
        if self.attachment.lease is None and self.options.attach:
            return  # without a lease nothing may be mapped
        if not self.attachment.is_of_driver(header.session_id):
            return  # somebody else claims the stream (decision D16)
        mapping = self._mapping_of(announce.stream_id)
        action = mapping.on_announce(
            announce,
            received_ns=now_ns,
            join_time_ns=self.agent.join_time_ns(header) or 0,
            realtime_ns=self.agent.clock.realtime_ns(),
        )
        self._act(action, now_ns)

    def _on_config(self, config: ConsumerConfig, now_ns: int) -> None:
        """What the authority of the stream decided for this consumer [WIRE-5-8, WIRE-10.1.3-8]."""
        if config.consumer_id != self.consumer_id:
            return
        if self._mapping is not None:
            action = self._mapping.on_config(use_shm=config.use_shm, fallback_uri=config.payload_fallback_uri)
            self._act(action, now_ns)
        self.refusal = None if config.use_shm else _no_shared_memory(self.wish, config.payload_fallback_uri)
        self.inlet.guided = True  # before there is a stream of its own: not one frame more than it describes
        self.streams.on_config(config)
        self._guide()

    def _act(self, action: MappingAction | None, now_ns: int) -> None:
        match action:
            case Map(address) | Remap(address):
                self._map(address, now_ns)
                self._say_why_not()
            case Refresh():
                self._check_ring(now_ns)
            case Unmap(reason):
                _LOG.info("let go of stream %s: %s", self.wish.label, reason)
                self._replace_reader(None)

    def _say_why_not(self) -> None:
        failure = self._mapping.failure if self._mapping is not None else None
        if failure is not None:
            text = failure.message if isinstance(failure, TensorPoolError) else str(failure)
            # A file that is gone belonged to an epoch that is over; the next one is announced already (D7).
            is_ordinary = isinstance(failure, FileNotFoundError) or "No such file" in text
            _LOG.log(
                logging.INFO if is_ordinary else logging.WARNING,
                "can't use the announced memory of stream %s: %s",
                self.wish.label,
                text,
            )

    def _check_ring(self, now_ns: int) -> None:
        """The files must still be what was announced, and alive [WIRE-15.1-8, WIRE-15.1-9]."""
        reader, mapping = self.reader, self._mapping
        if reader is None or mapping is None:
            return
        try:
            reader.check_files()
            action = mapping.on_superblock(*reader.liveness(), now_ns)
        except RegionError as e:
            action = mapping.on_lost(e.message)
        if isinstance(action, Unmap):
            self._act(action, now_ns)

    # --- what is due --------------------------------------------------------------------------------------

    def work(self, now_ns: int) -> int:
        """Hello and quality of service, once a second each; and an end to what nobody announces."""
        stream_id, mapping = self.attachment.stream_id, self._mapping
        if stream_id is None or mapping is None:
            return FOR_EVER_NS
        self._act(mapping.expired(now_ns), now_ns)
        if self.streams.regressed():
            self._act(mapping.on_sequence_regression(), now_ns)
        self._assembly.expire(now_ns)
        if self._hello_timer.due(now_ns):
            self._fault_point("before_hello")
            self.agent.send(self.streams.hello(stream_id, self.consumer_id))
            self._fault_point("after_hello")
        reader = self.reader  # only now: what nobody announces was let go of above
        if reader is not None and self._qos_timer.due(now_ns):
            report = qos_consumer(
                stream_id=stream_id,
                consumer_id=self.consumer_id,
                epoch=mapping.epoch or 0,
                next_seq=reader.next_seq,
                drops_gap=self.drops_gap,
                drops_late=self.drops_late,
                mode=self.options.mode,
            )
            self.agent.send_qos(report)
        return min(self._hello_timer.next_ns, self._qos_timer.next_ns)

    # --- statistics -----------------------------------------------------------------------------------------

    @property
    def drops_gap(self) -> int:
        """Frames that were neither described nor found [WIRE-10.4.1-2]."""
        reader = self.reader
        return self._gaps + self.inlet.skipped + (0 if reader is None else reader.gaps)

    @property
    def drops_late(self) -> int:
        """Frames that were overwritten before or while they were read [WIRE-10.4.1-3]."""
        reader = self.reader
        return self._late + (0 if reader is None else reader.late)

    def stats(self) -> ConsumerStats:
        """What happened so far."""
        reader, mapping, inlet = self.reader, self._mapping, self.inlet
        reasons = self._drops + collections.Counter({} if reader is None else reader.drops)
        return ConsumerStats(
            delivered=inlet.delivered,
            validated=inlet.validated,
            overwritten=inlet.overwritten,
            drops_gap=self.drops_gap,
            drops_late=self.drops_late,
            drops_by_reason=dict(reasons),
            thinned=0 if self.gate is None else self.gate.refused,
            resyncs=inlet.resyncs,
            descriptors_received=self.streams.descriptors_received,
            descriptors_missed=self.streams.descriptors_missed(inlet.delivered),
            announces_ignored={} if mapping is None else {str(k): v for k, v in mapping.ignored.items()},
            remaps=0 if mapping is None else mapping.remaps,
            reconnects=self.reconnects,
            state="unmapped" if mapping is None else mapping.state.name.lower(),
            epoch=None if mapping is None else mapping.epoch,
            last_seq=inlet.last_seq,
        )


def _no_shared_memory(wish: StreamWish, fallback_uri: str) -> NoStreamError:
    """Why a consumer that may not use shared memory gets nothing [WIRE-10.1.3-3]."""
    if not fallback_uri:
        what = "and no other way is offered"
        hint = "ask who runs the stream for a fallback, or read it on its own host"
    elif fallback_uri.startswith("aeron:"):
        what = f"only from {fallback_uri}"
        hint = "that needs the bridge, which this version does not have yet"
    else:
        what = f"and what is offered instead, {fallback_uri!r}, is not known here"
        hint = "a fallback is an Aeron channel such as aeron:udp?endpoint=HOST:PORT"
    return NoStreamError(f"stream {wish.label} may not be read through shared memory, {what}", hint=hint)

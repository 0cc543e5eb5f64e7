"""A consumer's part on the agent's thread: which ring is mapped, what it asks for, what it reports."""

from __future__ import annotations

import collections
import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool import _native
from tensor_pool.errors import RegionError, TensorPoolError
from tensor_pool.pool.blobs import BlobAssembly
from tensor_pool.pool.mapping import Map, MappingState, Refresh, Remap, Unmap
from tensor_pool.pool.metadata import MetadataView
from tensor_pool.pool.progress import ProgressTracker
from tensor_pool.pool.qos import IdCollision, qos_consumer
from tensor_pool.pool.sessions.attachment import FOR_EVER_NS
from tensor_pool.pool.sessions.consumer_streams import ConsumerStreams
from tensor_pool.pool.sessions.fallback_switch import FallbackSwitch
from tensor_pool.pool.sessions.former_rings import FormerRings
from tensor_pool.pool.sessions.pace import Pace
from tensor_pool.pool.sessions.session import StreamSession, log_refusal
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
    QosConsumer,
    Role,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool.pool.blobs import Blob
    from tensor_pool.pool.mapping import MappingAction
    from tensor_pool.pool.progress import TrackedFrame
    from tensor_pool.pool.sessions.consumer_options import ConsumerOptions
    from tensor_pool.pool.sessions.fallback import Fallback
    from tensor_pool.pool.sessions.lease import Lease, StreamWish
    from tensor_pool.pool.sessions.session import SessionContext
    from tensor_pool.transport import Header
    from tensor_pool.wire import Message

__all__ = ["ConsumerSession"]

_LOG: Final = logging.getLogger(__name__)

_MOST_PROGRESS: Final = 256
"""Progress messages that wait to be looked at; the oldest make room."""


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
        self._on_said: Callable[[DataSourceAnnounce | DataSourceMeta | Blob], object] | None = None
        self.pace = Pace(options, context.section.limited_rate_hz)
        self.streams = ConsumerStreams(context, options)
        self.progress: collections.deque[TrackedFrame] = collections.deque(maxlen=_MOST_PROGRESS)
        self.dead: BaseException | None = None
        self.refusal: TensorPoolError | None = None
        """Why there will be no frames, as long as the stream's authority does not change its mind."""
        self.midway: _native.RingReader | None = None
        """The ring in use, as long as it is to begin with whatever comes first."""
        self._switch = FallbackSwitch(context, wish, options.fallback_uri)
        self._tracker = ProgressTracker(0)
        self._mapping: MappingState | None = None
        self._ids = IdCollision(0, context.agent.client_id())
        self._former = FormerRings()
        now_ns = context.agent.clock.monotonic_ns()
        interval_ns = context.section.hello_interval_ns
        self._hello_timer = Periodic(period_ns=interval_ns, start_ns=now_ns)
        self._qos_timer = Periodic(period_ns=interval_ns, start_ns=now_ns + interval_ns)
        self._guide()

    @property
    def reader(self) -> _native.RingReader | None:
        """The ring in use; whoever has it must bear that it is closed any time."""
        return self.inlet.reader

    @property
    def fallback(self) -> Fallback | None:
        """Where frames come from instead of the stream's memory."""
        return self._switch.current

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

    def watch_metadata(self, on_said: Callable[[DataSourceAnnounce | DataSourceMeta | Blob], object]) -> None:
        """Tells of all that the producer says of its stream, also again; blobs when they are whole.

        Called from the agent's thread: whoever listens must be quick and must not raise.
        """
        self._on_said = on_said

    def _guide(self) -> None:
        """Says whether more than the ring decides what a poll gives, and where descriptors are found."""
        private = self.streams.private
        guides = (private, self.pace.gate, self._on_reader, self.midway)
        self.inlet.guided = any(guide is not None for guide in guides)
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
        self._switch.note(lease.announce, action)
        if isinstance(action, Map | Remap):
            self._map(action.address, now_ns)
        self._match_fallback()
        if isinstance(action, Map | Remap) and self.reader is None and mapping.failure is not None:
            raise mapping.failure

    def close(self) -> None:
        """Gives the lease back. What is unread is not lost: nobody wants it any more."""
        self._replace_reader(None, is_over=False)
        super().close()

    def drop_ring(self, reason: str) -> None:
        """Lets go of the ring; frames in use are worthless from now on [DRV-4.9-6, DRV-4.9-7]."""
        if self._mapping is not None:
            self._mapping.on_lost(reason)
        self._end_fallback(is_over=True)
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
            self._mapping.on_config(use_shm=self.options.shm, fallback_uri=self.options.fallback_uri)
            self._due_ns = 0  # there is something to do from now on, also where no lease gave it a turn
        return self._mapping

    def _map(self, address: _native.RingAddress, now_ns: int) -> None:
        """Opens a ring, and lets go of the one in use only if that works."""
        mapping = self._mapping_of(address.stream_id)
        try:
            reader = self._open_reader(address, self.base_dirs)
            pid, activity_ns = reader.liveness()
        except RegionError as e:
            mapping.on_map_failed(e)
            return
        if not mapping.is_live(activity_ns, now_ns):
            mapping.on_map_failed(RegionError("nobody has kept the announced memory alive"))
            reader.close()
            return
        mapping.on_mapped(epoch=address.epoch, pid=pid)
        self._end_fallback()  # before the place to go on from is asked for
        first_seq = self._first_seq(reader)
        reader.seek(first_seq, seen=first_seq != self.options.start)
        self.pace.restart()
        self._tracker.set_epoch(address.epoch)
        self.streams.on_mapped(reader)
        self._guide()
        self._replace_reader(reader)

    def _open_reader(self, address: _native.RingAddress, base_dirs: Sequence[str]) -> _native.RingReader:
        return _native.RingReader(
            address,
            base_dirs=base_dirs,
            mode="copy" if self.options.copy_mode else "map",
            relaxed_stride=self.options.relaxed_stride,
            inlet=self.inlet,
        )

    def _first_seq(self, reader: _native.RingReader) -> int:
        """Where to begin (decision M16)."""
        left_at = self._former.next_seq(reader.address.epoch)
        if left_at is not None:
            return left_at
        oldest = reader.oldest()
        # Who was there before the frames were sees them all: an epoch that began meanwhile, a stream that was
        # waited for (pitfall 26).
        if self._former.any_read or self.attachment.waited_for_stream or self.options.start == "oldest":
            return oldest or 0
        start = self.options.start
        return max(start, oldest or 0) if isinstance(start, int) else reader.newest() or 0

    def _replace_reader(self, reader: _native.RingReader | None, *, is_over: bool = True) -> None:
        old, self.inlet.reader = self.inlet.reader, reader
        if old is not None:
            if old is not self.midway:
                self._former.add(old, is_over=is_over)
            self.midway = None
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
        is_former = isinstance(message, DataSourceAnnounce) and message != self.metadata.announce
        if self._on_said is not None and not is_former:
            self._on_said(message)

    def _on_blob(self, message: MetaBlobAnnounce | MetaBlobChunk | MetaBlobComplete, now_ns: int) -> None:
        blob = self._assembly.on_message(message, now_ns)
        if blob is not None:
            self.blobs = {**self.blobs, blob.blob_type: blob}  # replaced, not changed: user threads read it
            if self._on_said is not None:
                self._on_said(blob)

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
        if self.fallback is not None:
            # Not more than came so far, whatever the producer has written (decision R8).
            came = self.fallback.feed.prefix(progress.seq) or 0
            filled = min(progress.payload_bytes_filled, came)
            progress = msgspec.structs.replace(progress, payload_bytes_filled=filled)
        tracked = self._tracker.on_progress(progress) if self.options.progress else None
        if tracked is not None:
            self.progress.append(msgspec.structs.replace(tracked))
            self._tell_users()

    def _on_announce(self, announce: ShmPoolAnnounce, header: Header, now_ns: int) -> None:
        if self.attachment.lease is None and self.options.attach:
            return  # without a lease nothing may be mapped
        mapping = self._mapping_of(announce.stream_id)
        if not self.attachment.is_of_driver(header.session_id):
            mapping.on_stranger()  # somebody else claims the stream (decision D16)
            return
        action = mapping.on_announce(
            announce,
            received_ns=now_ns,
            join_time_ns=self.agent.join_time_ns(header) or 0,
            realtime_ns=self.agent.clock.realtime_ns(),
            # Who asks for no shared memory may hear announces of another host, with the times of its clock.
            bridged=not self.options.shm and self._switch.hears_other_hosts,
        )
        self._switch.note(announce, action)
        self._act(action, now_ns)
        self._match_fallback()

    def _on_config(self, config: ConsumerConfig, now_ns: int) -> None:
        """What the authority of the stream decided for this consumer [WIRE-5-8, WIRE-10.1.3-8]."""
        if config.consumer_id != self.consumer_id:
            return
        uri = self._switch.on_config(config)
        action = self._mapping_of(config.stream_id).on_config(
            use_shm=config.use_shm and self.options.shm, fallback_uri=uri
        )
        self._act(action, now_ns)
        self._match_fallback()
        if self.pace.told(config.mode):  # [WIRE-10.1.3-4]
            _LOG.info("reads stream %s in mode %s, as told", self.wish.label, config.mode.name)
        self.inlet.guided = True  # before there is a stream of its own: not one frame more than it describes
        self.streams.on_config(config)
        self._guide()

    def _act(self, action: MappingAction | None, now_ns: int) -> None:
        match action:
            case Map(address) | Remap(address):
                self._map(address, now_ns)
                if self.fallback is None and self._mapping is not None:
                    log_refusal(self.wish.label, self._mapping.failure)
            case Refresh():
                self._check_ring(now_ns)
            case Unmap(reason):
                _LOG.info("let go of stream %s: %s", self.wish.label, reason)
                # Without shared memory the same frames come from elsewhere, if at all.
                is_over = self._mapping is None or not self._mapping.uses_fallback
                self._replace_reader(None, is_over=is_over)

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

    # --- without shared memory ----------------------------------------------------------------------------

    def _match_fallback(self) -> None:
        """Reads chunks, from where and of which epoch they should be read now; or reads none."""
        if self._mapping is None:
            return
        if self._switch.is_other_now(self._mapping):
            self._end_fallback()
        reader, self.refusal = self._switch.follow(self._mapping, self._open_reader)
        if reader is not None:
            self._read_chunks(reader)

    def _read_chunks(self, reader: _native.RingReader) -> None:
        """Another epoch of the source, in a ring of our own."""
        assert self.fallback is not None
        epoch = reader.address.epoch
        self._tracker.set_epoch(epoch)
        self.streams.on_fallback(self.fallback.log)
        self.pace.restart()
        reader.seek(self._former.next_seq(epoch) or 0, seen=True)
        self._replace_reader(reader)
        # Where nothing was read before, the first frame that comes may have any number.
        self.midway = None if self._former.any_read else reader
        self._guide()

    def _end_fallback(self, *, is_over: bool = False) -> None:
        fallback = self._switch.take()
        if fallback is not None:
            self._replace_reader(None, is_over=is_over)
            self.streams.on_fallback(None)
            self._guide()
            fallback.close()

    def joined(self, reader: _native.RingReader) -> None:
        """A ring that was to begin with the first frame has begun; may be called by user threads."""
        with self.changed:
            if self.midway is reader:
                self.midway = None
                self._guide()

    def await_feeds(self) -> None:
        """Waits until no thread takes chunks for it any more; for user threads, after it was closed."""
        self._switch.join()

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
                epoch=self.epoch or 0,
                next_seq=reader.next_seq,
                drops_gap=self.drops_gap,
                drops_late=self.drops_late,
                mode=self.pace.mode,
            )
            self.agent.send_qos(report)
        return min(self._hello_timer.next_ns, self._qos_timer.next_ns)

    @property
    def epoch(self) -> int | None:
        """The epoch that is read."""
        if self.fallback is not None:
            return self.fallback.epoch
        return None if self._mapping is None else self._mapping.epoch

    # --- statistics -----------------------------------------------------------------------------------------

    @property
    def drops_gap(self) -> int:
        """Frames that were neither described nor found [WIRE-10.4.1-2]."""
        return self._former.gaps_with(self.reader) + self.inlet.skipped + self.streams.passed_by

    @property
    def drops_late(self) -> int:
        """Frames that were overwritten before or while they were read [WIRE-10.4.1-3]."""
        return self._former.late_with(self.reader)

    def stats(self) -> ConsumerStats:
        """What happened so far."""
        mapping, inlet = self._mapping, self.inlet
        return ConsumerStats(
            delivered=inlet.delivered,
            validated=inlet.validated,
            overwritten=inlet.overwritten,
            drops_gap=self.drops_gap,
            drops_late=self.drops_late,
            drops_by_reason=dict(self._former.drops_with(self.reader)),
            thinned=self.pace.thinned,
            resyncs=inlet.resyncs,
            descriptors_received=self.streams.descriptors_received,
            descriptors_missed=self.streams.descriptors_missed(inlet.delivered),
            announces_ignored={
                **({} if mapping is None else {str(k): v for k, v in mapping.ignored.items()}),
                **self.streams.descriptors_ignored,
            },
            remaps=0 if mapping is None else mapping.remaps,
            reconnects=self.reconnects,
            state="unmapped" if mapping is None else mapping.state.name.lower(),
            fallback=None if self.fallback is None else self.fallback.feed.stats(),
            epoch=self.epoch,
            last_seq=inlet.last_seq,
        )

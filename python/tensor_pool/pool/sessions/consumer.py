"""A consumer's part on the agent's thread: which ring is mapped, hello, quality of service, metadata."""

from __future__ import annotations

import collections
import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool import _native
from tensor_pool.errors import RegionError, TensorPoolError
from tensor_pool.pool.frame import FrameLedger
from tensor_pool.pool.mapping import Map, MappingState, Refresh, Remap, Unmap
from tensor_pool.pool.metadata import MetadataView
from tensor_pool.pool.qos import qos_consumer
from tensor_pool.pool.sessions.session import StreamSession
from tensor_pool.pool.stats import ConsumerStats
from tensor_pool.runtime import Periodic
from tensor_pool.wire.messages import (
    ConsumerConfig,
    ConsumerHello,
    DataSourceAnnounce,
    DataSourceMeta,
    FrameProgress,
    Mode,
    QosConsumer,
    Role,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
)
from tensor_pool.wire.shm import LAYOUT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.pool.mapping import MappingAction
    from tensor_pool.pool.sessions.lease import Lease, StreamWish
    from tensor_pool.pool.sessions.session import SessionContext
    from tensor_pool.transport import Header
    from tensor_pool.wire import Message

__all__ = ["ConsumerOptions", "ConsumerSession", "Start"]

_LOG: Final = logging.getLogger(__name__)

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
        super().__init__(context, wish)
        self.options = options
        self.ledger = FrameLedger()
        self.metadata = MetadataView(0)  # the stream's id is known when the driver has answered
        self.reader: _native.RingReader | None = None
        """The ring in use; user threads read it and must bear that it is closed any time."""
        self.changed = threading.Event()
        """Set whenever `reader` changes."""
        self.on_reader: Callable[[_native.RingReader | None], None] | None = None
        """Told of every change, for whoever watches the doorbell."""
        self.consumer_id = context.agent.client_id()
        self.resyncs = 0
        self.skipped = 0
        self.thinned = 0
        self.last_seq: int | None = None
        self.dead: BaseException | None = None
        self._mapping: MappingState | None = None
        self._position: tuple[int, int] | None = None
        """Epoch and next sequence number of the last ring, to go on there when it is mapped again."""
        self._gaps = 0
        self._drops: collections.Counter[str] = collections.Counter()
        self._late = 0
        now_ns = context.agent.clock.monotonic_ns()
        interval_ns = context.section.hello_interval_ns
        self._hello_timer = Periodic(period_ns=interval_ns, start_ns=now_ns)
        self._qos_timer = Periodic(period_ns=interval_ns, start_ns=now_ns + interval_ns)

    # --- the ring ---------------------------------------------------------------------------------------

    def open_ring(self, lease: Lease, now_ns: int) -> None:
        """Maps what the driver's answer names, by the rules for announces."""
        self.consumer_id = lease.client_id
        action = self._mapping_of(lease.stream_id).on_announce(
            lease.announce, received_ns=now_ns, join_time_ns=0, realtime_ns=self.agent.clock.realtime_ns()
        )
        if isinstance(action, Map | Remap):
            self._map(action.address)

    def drop_ring(self, reason: str) -> None:
        """Lets go of the ring; frames in use are worthless from now on [DRV-4.9-6, DRV-4.9-7]."""
        if self._mapping is not None:
            self._mapping.on_lost(reason)
        self._replace_reader(None)

    def _mapping_of(self, stream_id: int) -> MappingState:
        if self._mapping is None:
            self.metadata.stream_id = stream_id
            self._mapping = MappingState(stream_id, freshness_ns=self.context.section.announce_freshness_ns)
        return self._mapping

    def _map(self, address: _native.RingAddress) -> None:
        assert self._mapping is not None
        try:
            reader = _native.RingReader(
                address,
                base_dirs=self.base_dirs,
                mode="copy" if self.options.copy_mode else "map",
                relaxed_stride=self.options.relaxed_stride,
            )
        except RegionError as e:
            self._mapping.on_map_failed(e)
            if self._mapping.epoch is None:
                raise
            return
        self._mapping.on_mapped(epoch=address.epoch, pid=reader.liveness()[0])
        reader.seek(self._first_seq(reader))
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
        old, self.reader = self.reader, reader
        if old is not None:
            self._position = (old.address.epoch, old.next_seq)
            self._gaps += old.gaps
            self._late += old.late
            self._drops.update(old.drops)
            old.revoke()
        if old is not reader:
            self.changed.set()
            if self.on_reader is not None:
                self.on_reader(reader)

    # --- messages -----------------------------------------------------------------------------------------

    def on_stream_message(self, message: Message, header: Header, now_ns: int) -> None:
        """Takes a message about the stream."""
        match message:
            case ShmPoolAnnounce():
                self._on_announce(message, header, now_ns)
            case ShmLeaseRevoked(role=Role.PRODUCER):
                # No frame of an epoch whose producer is gone, until the next one is announced [DRV-4.9-9].
                self._on_producer_gone(message)
            case DataSourceAnnounce() | DataSourceMeta():
                self.metadata.on_message(message)
            case ConsumerConfig(consumer_id=self.consumer_id):
                self._on_config(message)
            case QosConsumer(consumer_id=self.consumer_id) if not self.agent.is_own(header):
                self._on_collision()
            case FrameProgress():
                self._on_progress(message)

    def _on_announce(self, announce: ShmPoolAnnounce, header: Header, now_ns: int) -> None:
        if self.attachment.lease is None and self.options.attach:
            return  # without a lease nothing may be mapped
        mapping = self._mapping_of(announce.stream_id)
        action = mapping.on_announce(
            announce,
            received_ns=now_ns,
            join_time_ns=self.agent.join_time_ns(header) or 0,
            realtime_ns=self.agent.clock.realtime_ns(),
        )
        self._act(action)

    def _act(self, action: MappingAction) -> None:
        match action:
            case Map(address) | Remap(address):
                try:
                    self._map(address)
                except TensorPoolError as e:
                    _LOG.warning(
                        "can't use the announced memory of stream %s: %s", self.wish.label, e.message
                    )
            case Refresh():
                self._check_files()
            case Unmap(reason):
                _LOG.warning("let go of stream %s: %s", self.wish.label, reason)
                self._replace_reader(None)

    def _check_files(self) -> None:
        reader = self.reader
        if reader is None:
            return
        try:
            reader.check_files()
        except RegionError as e:
            self.drop_ring(e.message)

    def _on_producer_gone(self, notice: ShmLeaseRevoked) -> None:
        reader = self.reader
        if reader is not None and notice.timestamp_ns >= self._mapped_since_ns():
            self.drop_ring("its producer is gone")

    def _mapped_since_ns(self) -> int:
        lease = self.attachment.lease
        return 0 if lease is None else lease.granted_ns

    def _on_config(self, config: ConsumerConfig) -> None:
        """What the authority of the stream decided for this consumer."""

    def _on_collision(self) -> None:
        """Somebody else reports under our id: take another [WIRE-10.1.2-15]."""
        self.consumer_id = self.agent.client_id()

    def _on_progress(self, progress: FrameProgress) -> None:
        """How far a frame is."""

    # --- what is due --------------------------------------------------------------------------------------

    def work(self, now_ns: int) -> None:
        """Hello and quality of service, once a second each."""
        stream_id = self.attachment.stream_id
        if stream_id is None or self.reader is None:
            return
        if self._mapping is not None:
            action = self._mapping.expired(now_ns)
            if isinstance(action, Unmap) and not self.options.attach:
                self._act(action)
        if self._hello_timer.due(now_ns):
            self.agent.send(self._hello(stream_id))
        if self._qos_timer.due(now_ns):
            self.agent.send_qos(
                qos_consumer(
                    stream_id=stream_id,
                    consumer_id=self.consumer_id,
                    epoch=self._mapping.epoch or 0 if self._mapping else 0,
                    next_seq=self.reader.next_seq,
                    drops_gap=self.drops_gap,
                    drops_late=self.drops_late,
                    mode=self.options.mode,
                )
            )

    def _hello(self, stream_id: int) -> ConsumerHello:
        return ConsumerHello(
            stream_id=stream_id,
            consumer_id=self.consumer_id,
            supports_shm=True,
            supports_progress=self.options.progress,
            mode=self.options.mode,
            max_rate_hz=self.options.max_rate_hz,
            expected_layout_version=LAYOUT_VERSION,
        )

    # --- statistics -----------------------------------------------------------------------------------------

    @property
    def drops_gap(self) -> int:
        """Frames that were neither described nor found [WIRE-10.4.1-2]."""
        reader = self.reader
        return self._gaps + self.skipped + (0 if reader is None else reader.gaps)

    @property
    def drops_late(self) -> int:
        """Frames that were overwritten before or while they were read [WIRE-10.4.1-3]."""
        reader = self.reader
        return self._late + (0 if reader is None else reader.late)

    def stats(self) -> ConsumerStats:
        """What happened so far."""
        reader = self.reader
        reasons = self._drops + collections.Counter({} if reader is None else reader.drops)
        return ConsumerStats(
            delivered=self.ledger.delivered,
            validated=self.ledger.validated,
            overwritten=self.ledger.overwritten,
            drops_gap=self.drops_gap,
            drops_late=self.drops_late,
            drops_by_reason=dict(reasons),
            thinned=self.thinned,
            resyncs=self.resyncs,
            remaps=0 if self._mapping is None else self._mapping.remaps,
            reconnects=self.lease_losses,
            last_seq=self.last_seq,
            epoch=None if self._mapping is None else self._mapping.epoch,
        )

"""The receiver's half: chunks become frames of local streams, whole or not at all."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.bridging.ring_sizes import ring_like
from tensor_pool.bridging.source_epochs import SourceEpochs
from tensor_pool.bridging.source_life import SourceLife
from tensor_pool.closing import Closing
from tensor_pool.errors import AttachRefusedError, TensorPoolError
from tensor_pool.runtime.repeats import limit_repeats

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool import _native
    from tensor_pool.bridging.config import BridgeSection, ResolvedMapping
    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.producer import Producer
    from tensor_pool.pool.sizing import Geometry
    from tensor_pool.wire.messages import ShmPoolAnnounce

__all__ = ["OutrunNumbers", "ReceiveLane", "ReceivedStats"]

_LOG: Final = limit_repeats(logging.getLogger(__name__))
_LOOK_S: Final = 0.05
_RETRY_S: Final = 1.0
_AFTER_LEASE_S: Final = 1.0
"""So long after the lease of a producer that was killed its stream is free for sure."""
_EPOCH_FRESH_S: Final = 5.0
"""Sources announce once a second: an epoch that is silent for so long gives way to an older one."""
_COUNTS_LOOK_S: Final = 0.25
_OUTRUN_S: Final = 1.0
"""Chunks that are too late for so long, with no frame begun meanwhile, will never be in time."""
_MISSED: Final = 3
"""Nothing is heard of a source for so many times its freshness: it ended, or is out of reach for longer than
a network takes to heal."""


class ReceivedStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver has done."""

    stream_id: int | None
    """The local stream; None before there is one."""
    source_epoch: int | None
    epoch: int | None
    frames: int
    chunks: int
    nbytes: int
    in_flight: int
    bytes_in_flight: int
    assembly_ns: int
    """How long the last frame took from its first chunk to its last."""
    frames_lost: dict[str, int]
    """Frames that were given up, by reason."""
    chunks_unused: dict[str, int]
    """Chunks that belonged to no frame, by reason. ``malformed`` and ``other_stream`` are counted for a whole
    channel: mappings that share one have the same numbers there."""
    epoch_returns: int
    """How often an older epoch of the source was followed, because the newer one had fallen silent."""
    error: str | None


class OutrunNumbers:
    """Notices that the ring is ahead of its source: all that comes is too late for it, and nothing is begun.

    Numbers of frames only grow, so that a single lying chunk with a large one keeps the source out.

    Args:
        patience_s: How long that may be so.

    Example:
        >>> numbers = OutrunNumbers(patience_s=1.0)
        >>> [numbers.are_outrun(begun=5, late=late, now_s=now_s) for late, now_s in [
        ...     (0, 0.0), (7, 0.5), (9, 1.0), (12, 1.5)]]
        [False, False, False, True]
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._begun = self._late = 0
        self._since_s: float | None = None

    def are_outrun(self, *, begun: int, late: int, now_s: float) -> bool:
        """Whether the source will not catch up.

        Args:
            begun: Frames of which something was taken so far.
            late: Chunks that were too late so far.
            now_s: The time.
        """
        is_late, is_idle = late > self._late, begun == self._begun
        self._begun, self._late = begun, late
        if not is_idle:
            self._since_s = None
        elif is_late and self._since_s is None:
            self._since_s = now_s
        elif is_late and self._since_s is not None and now_s - self._since_s >= self._patience_s:
            self._since_s = None
            return True
        return False


class ReceiveLane(Closing):
    """Keeps the local stream of one mapping: attached, in an epoch of its own for each epoch of the source.

    Args:
        pool: Where the local stream is.
        receiver: What puts its frames together.
        route: The mapping.
        section: The bridge.
        geometry: What the ring is to be like, where it is not to be like that of the source.
        choose_id: Gives a stream id from the configured range, another one at each call; None without one.
        lease_s: How long a producer that was killed keeps its stream.
        check: Refuses a destination that was found by its name.
        fresh_s: How long a source counts as there after it was announced; a network may take some of them.
    """

    def __init__(
        self,
        pool: Pool,
        receiver: _native.ChunkReceiver,
        route: ResolvedMapping,
        section: BridgeSection,
        *,
        geometry: Geometry | None,
        choose_id: Callable[[], int] | None,
        lease_s: float,
        check: Callable[[ResolvedMapping], None],
        fresh_s: float,
    ) -> None:
        self.route: Final = route
        self._pool = pool
        self._receiver = receiver
        self._geometry = geometry
        self._choose_id = choose_id
        self._check = check
        self._max_ring_bytes = section.max_ring_bytes
        self._may_move = section.on_conflict == "move"
        self._stays_s = lease_s + _AFTER_LEASE_S
        self._refused_s: float | None = None
        """Since when the driver refuses the present destination."""
        self._epochs = SourceEpochs(_EPOCH_FRESH_S)
        self._life = SourceLife(fresh_s=fresh_s, silent_s=_MISSED * fresh_s, now_s=time.monotonic())
        self._begun = 0
        """Frames of which something had come at the last look."""
        self._announced: ShmPoolAnnounce | None = None
        self._followed: ShmPoolAnnounce | None = None
        """The announce that the present ring was made for."""
        self._producer: Producer | None = None
        self._ring: _native.RingWriter | None = None
        self._stream_id = route.dest_stream_id
        self._numbers = OutrunNumbers(_OUTRUN_S)
        self._too_long = 0
        """Frames that fitted into no slot, as far as that was told."""
        self._retry_at = self._look_at = 0.0
        self._error: str | None = None
        self._section = section
        self._told_epoch = 0
        """The newest epoch that the receiver knows of."""
        self._former: dict[str, Any] = {}
        """What came before the receiver had to forget an epoch."""
        self._add_stream()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"bridge receive {route.source_stream_id}", daemon=True
        )
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it follows its source; ends by itself only by an error."""
        return self._thread.is_alive()

    @property
    def stream_id(self) -> int | None:
        """The local stream; None before there is one."""
        return None if self._producer is None else self._producer.stream_id

    @property
    def producer_id(self) -> int | None:
        """Its producer of the local stream, as the driver knows it; None before there is one."""
        return None if self._producer is None else self._producer.client_id

    @property
    def epoch(self) -> int | None:
        """The present epoch of the local stream; None while frames would find no ring."""
        return None if self._producer is None or self._ring is None else self._producer.epoch

    @property
    def source_epoch(self) -> int | None:
        """The epoch of the source that the local one stands for."""
        return None if self._followed is None else self._followed.epoch

    @property
    def stats(self) -> ReceivedStats:
        """What came so far."""
        found = self._counts()
        malformed, other_stream = self._receiver.strangers
        unused = found["chunks_unused"] | {"malformed": malformed, "other_stream": other_stream}
        return ReceivedStats(
            stream_id=self.stream_id,
            source_epoch=self.source_epoch,
            epoch=self.epoch,
            frames=found["frames"],
            chunks=found["chunks"],
            nbytes=found["bytes"],
            in_flight=found["in_flight"],
            bytes_in_flight=found["bytes_in_flight"],
            assembly_ns=found["took_ns"],
            frames_lost={reason: count for reason, count in found["frames_lost"].items() if count},
            chunks_unused={reason: count for reason, count in unused.items() if count},
            epoch_returns=self._epochs.returns,
            error=self._error or self._lease_trouble(),
        )

    @property
    def source_trouble(self) -> str | None:
        """Why nothing can come at the moment, if that is up to the source."""
        source = self.route.source_stream_id
        match self._life.trouble(time.monotonic()):
            case None:
                return None
            case "unproduced":
                return f"stream {source} has no producer at its source any more"
            case "absent":
                return f"nobody has told of stream {source} yet, or of a producer of it"
            case "silent":
                return f"the source is silent: nothing is heard of stream {source} or its host any more"

    def _counts(self) -> dict[str, Any]:
        found: dict[str, Any] = self._receiver.stats(self.route.wire_stream_id) or {}
        return _added(self._former, found) if self._former else found

    def _lease_trouble(self) -> str | None:
        producer = self._producer
        if producer is None or producer.writer is not None:
            return None
        return f"the lease on stream {producer.stream_id} is lost, another one is asked for"

    def prefix(self, seq: int) -> int | None:
        """Bytes of a frame that came from its start on; None when it is not being put together."""
        return self._receiver.prefix(self.route.wire_stream_id, seq)

    def on_announce(self, announce: ShmPoolAnnounce) -> None:
        """The source told of its memory: what is older than what is known changes nothing, for a while."""
        known, now_s = self._announced, time.monotonic()
        if self._epochs.follows(announce.epoch, now_s=now_s):
            self._announced = announce
            self._life.on_announce(produced=announce.producer_id != 0, now_s=now_s)
            if known is None or announce.epoch != known.epoch:
                self._wake.set()
            if known is not None and announce.epoch < known.epoch:
                _LOG.warning(
                    "the source of stream %s is back at epoch %d: of epoch %d nothing is announced any more",
                    self.route,
                    announce.epoch,
                    known.epoch,
                )

    def close(self) -> None:
        """Gives the local stream back. May be called again."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(_LOOK_S)
            self._wake.clear()
            try:
                self._follow_source()
                self._follow_ring()
                self._follow_counts()
            except TensorPoolError as e:
                self._on_error(e)
        self._let_go()

    def _follow_source(self) -> None:
        announce, followed = self._announced, self._followed
        if announce is None:
            return
        if self._life.trouble(time.monotonic()) is not None:
            self._end()
            return
        if followed is not None and self._producer is not None and announce.epoch == followed.epoch:
            return
        if announce.producer_id == 0:
            self._stand_by(announce)
            return
        if time.monotonic() < self._retry_at:
            return
        self._let_go()  # frames of two epochs of the source never share one of ours (decision R7)
        self._tell_receiver(announce)
        self._producer = self._attach(announce)
        self._followed = announce
        self._error = self._refused_s = None

    def _tell_receiver(self, announce: ShmPoolAnnounce) -> None:
        """Nothing of other epochs is taken from now on."""
        if announce.epoch < self._told_epoch:
            former = self._counts()
            self._add_stream()  # anew: it never goes back by itself
            self._former = former
        self._told_epoch = announce.epoch
        self._receiver.announce(
            self.route.wire_stream_id,
            announce.epoch,
            [(pool.pool_id, pool.stride_bytes) for pool in announce.payload_pools],
        )

    def _stand_by(self, announce: ShmPoolAnnounce) -> None:
        """The source's producer is gone, and another may come: the local stream stays for now."""
        if announce.epoch != self._told_epoch:
            self._tell_receiver(announce)
        self._followed = None  # whatever comes next begins an epoch here
        self._receiver.set_ring(self.route.wire_stream_id, None)
        self._ring = None

    def _end(self) -> None:
        """Consumers here learn that the stream has ended, as when a local producer goes."""
        self._error = self._refused_s = None  # the source's trouble comes first
        if self._producer is not None:
            _LOG.warning(
                "stream %s is given back until its source returns: %s", self.route, self.source_trouble
            )
            self._let_go()

    def _add_stream(self) -> None:
        section, route = self._section, self.route
        self._receiver.add_stream(
            route.wire_stream_id,
            frames=section.max_inflight_frames,
            total_bytes=section.max_inflight_bytes,
            timeout_ns=section.assembly_timeout_ns,
            chunk_bytes=route.slices.later,
            payload_bytes=route.max_payload_bytes,
        )

    def _attach(self, announce: ShmPoolAnnounce) -> Producer:
        geometry = self._geometry or self._like_source(announce)
        sizes: dict[str, Any] = {"pools": geometry.strides, "slots": geometry.nslots}
        name = self.route.mapping.name
        if self._stream_id == 0:
            return self._attach_by_name(name, sizes)
        try:
            return self._pool.relay(self._stream_id, name=name, **sizes)
        except AttachRefusedError as e:
            if not self._may_move or not self._was_refused_long_enough():
                raise
            return self._move(e, sizes)

    def _attach_by_name(self, name: str, sizes: dict[str, Any]) -> Producer:
        """The driver knows a stream of this name, or makes one: only then it shows whether it leads back."""
        for known in self._pool.streams(name=name, ended=True):
            self._check(self.route.with_destination(known.stream_id))
        producer = self._pool.relay(name, **sizes)
        try:
            self._check(self.route.with_destination(producer.stream_id))
        except TensorPoolError:
            producer.close()
            raise
        return producer

    def _like_source(self, announce: ShmPoolAnnounce) -> Geometry:
        """Anybody can announce anything: no more memory is asked for than is configured."""
        geometry = ring_like(
            announce.header_nslots,
            (pool.stride_bytes for pool in announce.payload_pools),
            max_bytes=self._max_ring_bytes,
        )
        if geometry.nslots != announce.header_nslots:
            _LOG.warning(
                "the ring of stream %s gets %d slots, not %d as its source has: bridge.max_ring_bytes is %d",
                self.route,
                geometry.nslots,
                announce.header_nslots,
                self._max_ring_bytes,
            )
        return geometry

    def _was_refused_long_enough(self) -> bool:
        """The holder may be a bridge that was killed, most likely the former one of this mapping."""
        now_s = time.monotonic()
        if self._refused_s is None:
            self._refused_s = now_s
        return now_s - self._refused_s >= self._stays_s

    def _move(self, refusal: AttachRefusedError, sizes: dict[str, Any]) -> Producer:
        stream_id = self._next_id()
        try:
            producer = self._pool.relay(stream_id, **sizes)  # the name is that of the stream that is taken
        except AttachRefusedError:
            raise refusal from None  # not for its id
        _LOG.warning("stream %s goes to %d: %s", self.route, stream_id, refusal.message)
        self._stream_id = stream_id
        return producer

    def _next_id(self) -> int:
        assert self._choose_id is not None, "the configuration has a range"
        return self._choose_id()

    def _follow_counts(self) -> None:
        """Begins another epoch where the ring is ahead of its source; tells of frames that can never come."""
        now_s = time.monotonic()
        if self._producer is None or now_s < self._look_at:
            return
        self._look_at = now_s + _COUNTS_LOOK_S
        stats = self.stats
        too_long = stats.frames_lost.get("payload_too_long", 0)
        if too_long > self._too_long:
            _LOG.warning(
                "%d frames of stream %s are longer than a slot here, or at the source, or than "
                "bridge.max_payload_bytes: a larger profile helps, or none",
                too_long - self._too_long,
                self.route,
            )
            self._too_long = too_long
        begun = stats.frames + stats.in_flight + sum(stats.frames_lost.values())
        if begun > self._begun and self._ring is not None:
            self._life.on_frames(now_s)  # also where announces have no way
        self._begun = begun
        if self._numbers.are_outrun(begun=begun, late=stats.chunks_unused.get("late", 0), now_s=now_s):
            _LOG.warning("frames of stream %s are numbered below those before: begins anew", self.route)
            self._let_go()

    def _follow_ring(self) -> None:
        """A lease that was lost and regained has another ring."""
        if self._followed is None:
            return  # it stands by
        writer = None if self._producer is None else self._producer.writer
        if writer is not self._ring:
            self._receiver.set_ring(self.route.wire_stream_id, writer)
            self._ring = writer

    def _let_go(self) -> None:
        self._receiver.set_ring(self.route.wire_stream_id, None)
        self._ring = None
        producer, self._producer = self._producer, None
        self._followed = None
        if producer is not None:
            producer.close()

    def _on_error(self, error: TensorPoolError) -> None:
        if self._error != error.message:
            _LOG.error("the bridge can't produce what stream %s becomes: %s", self.route, error)
        self._error = error.message
        now_s = time.monotonic()
        self._retry_at = now_s + _RETRY_S
        if self._refused_s is not None and self._refused_s + self._stays_s > now_s:
            self._retry_at = min(self._retry_at, self._refused_s + self._stays_s)


def _added(former: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Counts of a stream, with those from before it was added anew."""
    total = {**found, **{name: former[name] + found[name] for name in ("frames", "chunks", "bytes")}}
    for name in ("frames_lost", "chunks_unused"):
        total[name] = {reason: former[name][reason] + count for reason, count in found[name].items()}
    return total

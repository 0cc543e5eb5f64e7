"""The receiver's half: chunks become frames of local streams, whole or not at all."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.errors import AttachRefusedError, TensorPoolError
from tensor_pool.runtime import make_idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.bridging.config import BridgeSection, ResolvedMapping
    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.producer import Producer
    from tensor_pool.pool.sizing import Geometry
    from tensor_pool.transport import AeronSubscription
    from tensor_pool.wire.messages import ShmPoolAnnounce

__all__ = ["ChunkPoll", "ReceiveLane", "ReceivedStats"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.05
_RETRY_S: Final = 1.0
_CHUNKS_A_TURN: Final = 1024
_LONGEST_PAUSE_S: Final = 0.001
"""Between looks at a subscription that nothing comes from: how late a frame may be noticed."""


class ChunkPoll(Closing):
    """Takes chunks from one subscription for all its streams, on a thread of its own.

    Args:
        subscription: Where chunks come from.
    """

    def __init__(self, subscription: AeronSubscription) -> None:
        self.receiver: Final = _native.ChunkReceiver(subscription.native)
        self.error: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bridge receive", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        idle = make_idle("backoff", max_pause_s=_LONGEST_PAUSE_S)
        try:
            while not self._stop.is_set():
                idle.idle(self.receiver.poll(_CHUNKS_A_TURN))
        except TensorPoolError as e:
            self.error = e.message
            _LOG.error("the bridge receives no more: %s", e)

    def close(self) -> None:
        """Takes no more. May be called again."""
        self._stop.set()
        self._thread.join()


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
    """Chunks that belonged to no frame, by reason."""
    error: str | None


class ReceiveLane(Closing):
    """Keeps the local stream of one mapping: attached, in an epoch of its own for each epoch of the source.

    Args:
        pool: Where the local stream is.
        receiver: What puts its frames together.
        route: The mapping.
        section: The bridge.
        geometry: What the ring is to be like, where it is not to be like that of the source.
        choose_id: Gives a stream id from the configured range, another one at each call; None without one.
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
    ) -> None:
        self.route: Final = route
        self._pool = pool
        self._receiver = receiver
        self._geometry = geometry
        self._choose_id = choose_id
        self._may_move = section.on_conflict == "move"
        self._announced: ShmPoolAnnounce | None = None
        self._followed: ShmPoolAnnounce | None = None
        """The announce that the present ring was made for."""
        self._producer: Producer | None = None
        self._ring: _native.RingWriter | None = None
        self._stream_id = route.dest_stream_id
        self._retry_at = 0.0
        self._error: str | None = None
        receiver.add_stream(
            route.wire_stream_id,
            frames=section.max_inflight_frames,
            total_bytes=section.max_inflight_bytes,
            timeout_ns=section.assembly_timeout_ns,
            chunk_bytes=route.slices.later,
            payload_bytes=route.max_payload_bytes,
        )
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"bridge receive {route.source_stream_id}", daemon=True
        )
        self._thread.start()

    @property
    def stream_id(self) -> int | None:
        """The local stream; None before there is one."""
        return None if self._producer is None else self._producer.stream_id

    @property
    def epoch(self) -> int | None:
        """The present epoch of the local stream; None while there is none."""
        return None if self._producer is None else self._producer.epoch

    @property
    def source_epoch(self) -> int | None:
        """The epoch of the source that the local one stands for."""
        return None if self._followed is None else self._followed.epoch

    @property
    def stats(self) -> ReceivedStats:
        """What came so far."""
        found: dict[str, Any] = self._receiver.stats(self.route.wire_stream_id) or {}
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
            chunks_unused={reason: count for reason, count in found["chunks_unused"].items() if count},
            error=self._error,
        )

    def prefix(self, seq: int) -> int | None:
        """Bytes of a frame that came from its start on; None when it is not being put together."""
        return self._receiver.prefix(self.route.wire_stream_id, seq)

    def on_announce(self, announce: ShmPoolAnnounce) -> None:
        """The source told of its memory: what is older than what is known changes nothing."""
        known = self._announced
        if known is None or announce.epoch >= known.epoch:
            self._announced = announce
            if known is None or announce.epoch != known.epoch:
                self._wake.set()

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
            except TensorPoolError as e:
                self._on_error(e)
        self._let_go()

    def _follow_source(self) -> None:
        announce, followed = self._announced, self._followed
        if announce is None or time.monotonic() < self._retry_at:
            return
        if followed is not None and self._producer is not None and announce.epoch == followed.epoch:
            return
        self._let_go()  # frames of two epochs of the source never share one of ours (decision R7)
        self._receiver.announce(
            self.route.wire_stream_id,
            announce.epoch,
            [(pool.pool_id, pool.stride_bytes) for pool in announce.payload_pools],
        )
        self._producer = self._attach(announce)
        self._followed = announce
        self._error = None

    def _attach(self, announce: ShmPoolAnnounce) -> Producer:
        if self._geometry is None:
            strides = sorted({pool.stride_bytes for pool in announce.payload_pools})
            sizes: dict[str, Any] = {"pools": strides, "slots": announce.header_nslots}
        else:
            sizes = {"pools": self._geometry.strides, "slots": self._geometry.nslots}
        name = self.route.mapping.name
        if self._stream_id == 0 and self._choose_id is None:
            return self._pool.relay(name, **sizes)  # the driver knows a stream of this name, or makes one
        if self._stream_id == 0:
            self._stream_id = self._next_id()
        try:
            return self._pool.relay(self._stream_id, name=name, **sizes)
        except AttachRefusedError:
            if not self._may_move:
                raise
            self._stream_id = self._next_id()
            _LOG.warning(
                "stream %d is taken; what stream %d sends goes to %d",
                self.route.dest_stream_id,
                self.route.source_stream_id,
                self._stream_id,
            )
            return self._pool.relay(self._stream_id, **sizes)  # the name is that of the stream that is taken

    def _next_id(self) -> int:
        assert self._choose_id is not None, "the configuration has a range"
        return self._choose_id()

    def _follow_ring(self) -> None:
        """A lease that was lost and regained has another ring."""
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
        self._retry_at = time.monotonic() + _RETRY_S

"""From one stream to the other: takes frames of the source, and writes those that pass into another one."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError, FrameOverwrittenError
from tensor_pool.limiting.metadata import MetadataRelay

if TYPE_CHECKING:
    from tensor_pool import _native
    from tensor_pool.limiting.slots import RateSlots
    from tensor_pool.limiting.stats import Tally
    from tensor_pool.pool.frame import Frame
    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.producer import Producer

__all__ = ["LimiterLane", "copy_frame"]

_LOOK_S: Final = 0.05
"""How late another epoch of the source may be noticed while no slot is open."""


class LimiterLane(Closing):
    """Reads the source like any consumer, and is the one producer of the destination. For one thread.

    The destination has an epoch of its own for each epoch of the source, since numbers begin anew there.

    Args:
        pool: Where both streams are; stays open.
        source: Name or id of the stream to read.
        dest: Name or id of the stream to publish.
        slots: When frames may pass.
        tally: What counts them; remembers which have passed, also before a connection was lost.
        nslots: How many frames the ring of the destination holds; as many as that of the source when None.

    Raises:
        AttachRefusedError: The driver refuses the source.
        NoDriverError: No driver answers.
    """

    def __init__(
        self,
        pool: Pool,
        source: str | int,
        dest: str | int,
        *,
        slots: RateSlots,
        tally: Tally,
        nslots: int | None = None,
    ) -> None:
        self._pool = pool
        self._dest = dest
        self._slots = slots
        self._tally = tally
        self._nslots = nslots
        # It decides itself what to leave out: where all should pass, being behind is no reason to skip any.
        self._consumer = pool.consumer(source, max_outstanding_seq_gap=0)
        self._metadata = MetadataRelay(self._consumer.session, dest if isinstance(dest, str) else "")
        self._producer: Producer | None = None
        self._held: Frame | None = None
        """One that was taken, and found no ring to go to yet."""
        self._is_overtaken = False
        """Whether the last frame was overwritten while it was copied."""
        self._wake = threading.Event()
        self.source_epoch: int | None = None
        """The epoch of the source that the present destination is for."""

    @property
    def stream_id(self) -> int | None:
        """The destination; None before there is one."""
        return None if self._producer is None else self._producer.stream_id

    @property
    def epoch(self) -> int | None:
        """The present epoch of the destination; None while frames would find no ring."""
        return None if self._producer is None else self._producer.epoch

    def wake(self) -> None:
        """Ends a wait for a slot: there may be other slots now. For any thread."""
        self._wake.set()

    def turn(self) -> None:
        """Lets a frame pass, or waits a moment for one or for a slot.

        Raises:
            AttachRefusedError: The driver refuses the destination.
            TensorPoolError: The connection is lost.
        """
        self._consumer.check_open()
        reader = self._consumer.session.reader
        if reader is not None:
            self._follow(reader.address)
        has_ring = self._producer is None or self._producer.writer is not None
        wait_s = self._slots.wait_ns(time.monotonic_ns()) / 1e9 if has_ring else _LOOK_S
        if wait_s > 0:
            self._wake.wait(min(wait_s, _LOOK_S))
            self._wake.clear()
            return
        frame = self._next_frame()
        if frame is None or self._tally.is_known(frame):
            return
        if frame.epoch == self.source_epoch:
            self._pass(frame)
        else:
            self._held = frame  # the first of another epoch, which needs another destination

    def close(self) -> None:
        """Gives both streams back. May be called again."""
        self._let_go()
        self._consumer.close()

    # --- the destination ----------------------------------------------------------------------------------

    def _follow(self, source: _native.RingAddress) -> None:
        if self._producer is not None and source.epoch == self.source_epoch:
            return
        self._let_go()
        strides = sorted({stride for _, stride, _ in source.pools})
        self._producer = self._pool.relay(self._dest, pools=strides, slots=self._nslots or source.nslots)
        self.source_epoch = source.epoch
        self._slots.restart()
        self._metadata.follow(self._producer, source.epoch)

    def _let_go(self) -> None:
        self._metadata.follow(None, None)
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    # --- frames -------------------------------------------------------------------------------------------

    def _next_frame(self) -> Frame | None:
        """The next one where all pass, otherwise the newest; only frames that are complete are either."""
        held, self._held = self._held, None
        if held is not None and held.epoch != self.source_epoch:
            held = None  # yet another epoch has come
        consumer = self._consumer
        if self._slots.are_endless and not self._is_overtaken:
            return consumer.poll(timeout=_LOOK_S) if held is None else held
        # Who was overtaken once is overtaken by the next frames too: the newest has the best chance.
        found = consumer.latest()
        if found is None and held is None:
            found = consumer.poll(timeout=_LOOK_S)
            newer = None if found is None else consumer.latest()
            found = found if newer is None else newer  # more may come while one wakes up
        return held if found is None else found

    def _pass(self, frame: Frame) -> None:
        producer = self._producer
        writer = None if producer is None else producer.writer
        try:
            is_whole = None if writer is None else copy_frame(frame, writer)
        except ClosedError:
            is_whole = None
        if is_whole is None:
            self._held = frame  # the lease is lost; the session asks for another
            return
        now_ns = time.monotonic_ns()
        self._tally.count(frame, is_whole=is_whole, wanted_all=self._slots.are_endless, now_ns=now_ns)
        self._is_overtaken = not is_whole
        if is_whole:
            self._slots.use(now_ns)


def copy_frame(frame: Frame, writer: _native.RingWriter) -> bool:
    """Writes a frame into the slot of its number; false, and no frame, when it was overwritten meanwhile.

    Raises:
        ClosedError: The writer was closed.
    """
    claim = writer.claim(
        frame.shape,
        frame.wire_dtype,
        frame.order,
        frame.seq,
        frame.timestamp_ns,
        frame.meta_version,
        frame.info.trace_id,
    )
    with contextlib.suppress(FrameOverwrittenError):
        if frame.strides == claim.array.strides:
            is_whole = frame.copy_into(claim)
        else:  # gaps between rows, as other implementations may write them, are left out
            claim.array[...] = frame.array
            is_whole = frame.still_valid()
        if is_whole:
            claim.commit()
            return True
    claim.abort()
    return False

"""The sender's half of a mapping: reads a stream like any consumer, and sends its frames in chunks."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError, TensorPoolError
from tensor_pool.pool.pacing import RateGate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.bridging.config import BridgeSection, ResolvedMapping
    from tensor_pool.pool.frame import Frame
    from tensor_pool.pool.pool import Pool
    from tensor_pool.transport import AeronPublication

__all__ = ["ByteBudget", "SendLane", "SentStats"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.1
_RELAY_S: Final = 0.05
"""How long frames are sent without a look at anything else."""
_GONE_S: Final = 1.0
"""A receiver that takes nothing for so long is gone, or can't be reached."""
_ALONE_S: Final = 3.0
"""Both ends find each other within a second."""


class SentStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a sender has done."""

    frames: int
    chunks: int
    nbytes: int
    dropped: dict[str, int]
    """Frames that were not sent as a whole, by reason."""
    thinned: int = 0
    """Frames left out to keep to the mapping's `max_rate_hz`: no losses. Known when the next one comes."""
    error: str | None


class ByteBudget:
    """At most so many bytes a second, with bursts of a tenth of a second or one frame.

    Args:
        bytes_per_s: The rate; 0 lets everything pass.

    Example:
        >>> budget = ByteBudget(1000)
        >>> budget.take(600, now_s=0.0), budget.take(600, now_s=0.1), budget.take(600, now_s=0.7)
        (True, False, True)
    """

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0
        """When what was taken so far is paid for."""

    def take(self, nbytes: int, *, now_s: float) -> bool:
        """Whether a frame of so many bytes may pass now."""
        if self._bytes_per_s == 0:
            return True
        if now_s < self._free_s:
            return False
        self._free_s = max(self._free_s, now_s - 0.1) + nbytes / self._bytes_per_s
        return True


class SendLane(Closing):
    """Sends the frames of one stream until it is closed, from a thread of its own.

    It never holds the producer up: what it can't send in time is dropped and counted.

    Args:
        pool: Where the stream is.
        open_publication: Opens what chunks go to.
        route: The mapping.
        section: The bridge.

    Raises:
        ConfigError: No chunk fits into the publication's packets.
        NoDriverError: No driver answers.
    """

    def __init__(
        self,
        pool: Pool,
        open_publication: Callable[[], AeronPublication],
        route: ResolvedMapping,
        section: BridgeSection,
    ) -> None:
        self.route: Final = route
        self._section = section
        self._is_newer = section.dialect == "newer"
        self._patience_s = section.assembly_timeout_ms / 1000
        """A receiver gives a frame up that takes longer."""
        self._is_choosy = bool(self._is_newer or route.mapping.max_bytes_per_s or route.mapping.max_rate_hz)
        """Whether each frame is looked at: to be thinned out, or for its trace id."""
        self._budget = ByteBudget(route.mapping.max_bytes_per_s)
        self._gate = RateGate(route.mapping.max_rate_hz)
        """A consumer's own rate is a whole number, above this one."""
        self._passed_over, self._last = 0, (-1, -1)
        """Numbers that never came, and the epoch and number of the last frame that did."""
        self._dropped: Counter[str] = Counter()
        self._is_overtaken = False
        """Whether the last frame was overwritten while it was sent."""
        self._skipped = 0
        """Frames that were left out to be in time for newer ones."""
        self._before = (0, 0, 0)
        """What former senders have sent."""
        self.error: str | None = None
        self._held_back_s: float | None = None
        """Since when nothing could be sent."""
        self._open_publication = open_publication
        self._publication, self._sender = self._open_sender()
        self._was_connected = False
        self._connected_s = time.monotonic()
        """When there was a receiver last."""
        self._consumer = pool.consumer(
            route.source_stream_id,
            mode="rate_limited" if route.mapping.max_rate_hz else "stream",
            max_rate_hz=route.mapping.max_rate_hz,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"bridge send {route.source_stream_id}", daemon=True
        )
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it sends; ends by itself only by an error."""
        return self._thread.is_alive()

    @property
    def stats(self) -> SentStats:
        """What was sent so far."""
        frames, chunks, nbytes = map(sum, zip(self._before, self._sender.counts, strict=True))
        dropped, reader = dict(self._dropped), self._consumer.stats
        if overtaken := reader.drops - reader.overwritten + self._skipped:  # the overwritten are torn ones
            dropped["overtaken"] = overtaken  # the producer went round the ring before they were looked at
        # A producer tells who asks for a rate of no other frames: only their numbers are missing.
        thinned = self._gate.refused + max(0, self._passed_over - overtaken)
        return SentStats(
            frames=frames,
            chunks=chunks,
            nbytes=nbytes,
            dropped=dropped,
            thinned=thinned if self.route.mapping.max_rate_hz else 0,
            error=self.error,
        )

    @property
    def is_alone(self) -> bool:
        """Whether nobody has received what it sends for a while."""
        return time.monotonic() - self._connected_s > _ALONE_S

    def close(self) -> None:
        """Sends no more. May be called again."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        self._publication.close()

    def _open_sender(self) -> tuple[AeronPublication, _native.ChunkSender]:
        route, publication = self.route, self._open_publication()
        sender = _native.ChunkSender(
            publication.native,
            stream_id=route.wire_stream_id,
            mtu=route.mtu_bytes,
            chunk_bytes=route.slices.later,
            newer=self._is_newer,
            checksums=self._section.checksums,
        )
        return publication, sender

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._relay():
                    frame = self._newest() if self._is_overtaken else self._consumer.poll(timeout=_LOOK_S)
                    if frame is not None:
                        self._send(frame)
                self._look_who_is_there()
        except ClosedError:
            pass
        except TensorPoolError as e:
            self.error = e.message
            _LOG.error("the bridge sends no more of stream %d: %s", self.route.source_stream_id, e)

    def _relay(self) -> bool:
        """Sends what comes without Python, where there is nothing to decide; says whether it could."""
        if self._is_choosy or self._is_overtaken:
            return False
        relayed = self._sender.relay(
            self._consumer,
            duration_s=_RELAY_S,
            patience_s=self._patience_s,
            max_payload_bytes=self.route.max_payload_bytes,
        )
        if relayed is None:
            return False
        epoch, last_seq, reason = relayed
        if last_seq is not None:
            self._last = epoch, last_seq
            self._note_outcome(reason)
        return True

    def _newest(self) -> Frame | None:
        """Who was overtaken once is overtaken by the next frames too: the newest has the best chance."""
        drops, (epoch, seq) = self._consumer.stats.drops, self._last
        frame = self._consumer.latest()
        if frame is None:
            return self._consumer.poll(timeout=_LOOK_S)
        if frame.epoch == epoch:
            counted = self._consumer.stats.drops - drops
            self._skipped += max(0, frame.seq - seq - 1 - counted)
        return frame

    def _note_number(self, frame: Frame) -> None:
        epoch, seq = self._last
        if frame.epoch == epoch:
            self._passed_over += frame.seq - seq - 1
        self._last = frame.epoch, frame.seq

    def _send(self, frame: Frame) -> None:
        self._note_number(frame)
        self._is_overtaken = False
        if frame.nbytes > self.route.max_payload_bytes:
            self._dropped["too_large"] += 1
        elif self._may_pass(frame):
            trace_id = frame.info.trace_id if self._is_newer else None
            self._note_outcome(self._sender.send(frame, trace_id=trace_id, patience_s=self._patience_s))

    def _may_pass(self, frame: Frame) -> bool:
        if not self._gate.accept(frame.timestamp_ns, now_ns=time.monotonic_ns()):
            return False
        if not self._budget.take(frame.nbytes, now_s=time.monotonic()):
            self._dropped["over_bandwidth"] += 1
            return False
        return True

    def _note_outcome(self, reason: str | None) -> None:
        if reason is not None:
            self._dropped[reason] += 1
        self._is_overtaken = reason == "torn"
        if reason != "back_pressured":
            self._held_back_s = None
        elif self._held_back_s is None:
            self._held_back_s = time.monotonic()
        elif time.monotonic() - self._held_back_s > _GONE_S:
            self._begin_anew()

    def _look_who_is_there(self) -> None:
        """A log has room for seconds of small frames, so that back-pressure comes late or never."""
        if self._publication.connected:
            self._was_connected = True
            self._connected_s = time.monotonic()
        elif self._was_connected:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Forgets what the receiver did not take: it would come seconds late when the network heals."""
        self._before = (self.stats.frames, self.stats.chunks, self.stats.nbytes)
        # Closed only, it would be sent for as long as there seem to be receivers; and the next one may fail.
        self._publication.revoke()
        self._publication, self._sender = self._open_sender()
        self._held_back_s, self._was_connected = None, False

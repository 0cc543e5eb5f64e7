"""How often a producer tells of a frame that is still being written.

It aggregates what its consumers ask for (`ProgressPolicy`) and holds itself to it (`ProgressThrottle`). What
consumers believe of it is in `tracker`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool.errors import FrameError
from tensor_pool.wire.messages import FrameProgress, FrameProgressState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.wire.messages import ConsumerHello

__all__ = ["ProgressHints", "ProgressPolicy", "ProgressThrottle"]

_NS_PER_US: Final = 1_000
_NS_PER_S: Final = 1_000_000_000
_STARTED: Final = FrameProgressState.STARTED
_PROGRESS: Final = FrameProgressState.PROGRESS
_COMPLETE: Final = FrameProgressState.COMPLETE


class ProgressHints(NamedTuple):
    """How often progress is told: at most once an interval, and only after so much more."""

    interval_ns: int
    bytes_delta: int
    major_delta_units: int = 0
    """Rows or columns; 0 for no such limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressPolicy:
    """What a producer does with its consumers' wishes [WIRE-10.1.2-6].

    Args:
        interval_floor_us: No consumer gets it more often.
        bytes_floor: No consumer gets it in smaller steps.
        default_interval_us: The interval when nobody asks for one [WIRE-10.1.2-3].
        default_bytes_delta: The step when nobody asks for one [WIRE-10.1.2-4].

    Example:
        >>> from tensor_pool.wire.messages import ConsumerHello, Mode
        >>> def hello(interval_us):
        ...     return ConsumerHello(1, 9, supports_shm=True, supports_progress=True, mode=Mode.STREAM,
        ...                          progress_interval_us=interval_us)
        >>> ProgressPolicy(interval_floor_us=400).aggregate([hello(500), hello(300)])
        ProgressHints(interval_ns=400000, bytes_delta=65536, major_delta_units=0)
        >>> ProgressPolicy().aggregate([]) is None
        True
    """

    interval_floor_us: int = 200
    bytes_floor: int = 4096
    default_interval_us: int = 250
    default_bytes_delta: int = 65_536

    def aggregate(self, hellos: Iterable[ConsumerHello]) -> ProgressHints | None:
        """The smallest wishes of those who want progress, above the floors; None when nobody does.

        Who wants none is not asked, and a stream without such consumers carries no progress
        [WIRE-10.2.2-23].
        """
        wanting = [hello for hello in hellos if hello.supports_progress]
        if not wanting:
            return None
        interval_us = _smallest((hello.progress_interval_us for hello in wanting), self.default_interval_us)
        bytes_delta = _smallest((hello.progress_bytes_delta for hello in wanting), self.default_bytes_delta)
        return ProgressHints(
            interval_ns=max(interval_us, self.interval_floor_us) * _NS_PER_US,
            bytes_delta=max(bytes_delta, self.bytes_floor),
            major_delta_units=_smallest((hello.progress_major_delta_units for hello in wanting), 0),
        )


def _smallest(wishes: Iterable[int | None], default: int) -> int:
    return min((wish for wish in wishes if wish is not None), default=default)


class ProgressThrottle:
    """Says which `FrameProgress` to send while a frame is written: always the latest, never too often.

    Args:
        stream_id: The stream.
        max_rate_hz: PROGRESS messages a second over all frames, whatever consumers ask for.
        burst: How many may follow each other faster than that.

    Example:
        >>> throttle = ProgressThrottle(1)
        >>> throttle.hints = ProgressHints(interval_ns=250_000, bytes_delta=65_536)
        >>> throttle.start(epoch=5, seq=42, values_len_bytes=1_000_000, now_ns=0).state.name
        'STARTED'
        >>> throttle.advance(70_000, now_ns=100_000) is None  # too soon after the last one
        True
        >>> throttle.advance(90_000, now_ns=300_000).payload_bytes_filled
        90000
        >>> throttle.complete().state.name
        'COMPLETE'
    """

    def __init__(self, stream_id: int, *, max_rate_hz: int = 2_000, burst: int = 4) -> None:
        self.stream_id = stream_id
        self.hints: ProgressHints | None = None
        """How often to tell; None tells nothing. A change counts from the next frame or update on."""
        self._spacing_ns = _NS_PER_S // max_rate_hz
        self._tolerance_ns = (burst - 1) * self._spacing_ns
        self._paid_until_ns = 0
        self._frame: _Writing | None = None

    def start(
        self, *, epoch: int, seq: int, values_len_bytes: int, now_ns: int, major_stride_bytes: int = 0
    ) -> FrameProgress | None:
        """A frame begins: STARTED, once [WIRE-10.2.2-19].

        Args:
            epoch: Its epoch.
            seq: Its sequence number.
            values_len_bytes: How long it will be.
            now_ns: Monotonic time.
            major_stride_bytes: Bytes of a row or column, for hints in rows or columns.
        """
        if self.hints is None:
            self._frame = None
            return None
        self._frame = _Writing(epoch, seq, values_len_bytes, major_stride_bytes, sent_ns=now_ns)
        return self._message(_STARTED, 0)

    def advance(self, payload_bytes_filled: int, now_ns: int) -> FrameProgress | None:
        """So many bytes are there now: PROGRESS, if it is time for it.

        Raises:
            FrameError: Fewer bytes than before, or more than the frame has: both would be believed.
        """
        frame = self._frame
        if frame is None:
            return None
        if not frame.filled <= payload_bytes_filled <= frame.values_len_bytes:
            raise FrameError(
                f"progress of frame {frame.seq} from {frame.filled} to {payload_bytes_filled} of"
                f" {frame.values_len_bytes} bytes",
                hint="progress only grows, up to the length of the frame",
            )
        frame.filled = payload_bytes_filled
        return self.tick(now_ns)

    def is_due(self, now_ns: int) -> bool:
        """Whether `tick` may have something to tell."""
        frame, hints = self._frame, self.hints
        return (
            frame is not None
            and hints is not None
            and frame.filled > frame.told
            and now_ns - frame.sent_ns >= hints.interval_ns
        )

    def tick(self, now_ns: int) -> FrameProgress | None:
        """PROGRESS, if something that was held back is due: the latest state [WIRE-10.2.2-21]."""
        frame, hints = self._frame, self.hints
        if frame is None or hints is None or now_ns - frame.sent_ns < hints.interval_ns:
            return None
        news = frame.filled - frame.told
        step = max(hints.bytes_delta, hints.major_delta_units * frame.major_stride_bytes)
        # The last step may be smaller than the others.
        enough = news >= step or (news > 0 and frame.filled == frame.values_len_bytes)
        if not enough or now_ns < self._paid_until_ns - self._tolerance_ns:
            return None
        self._paid_until_ns = max(self._paid_until_ns, now_ns) + self._spacing_ns
        frame.sent_ns = now_ns
        frame.told = frame.filled
        return self._message(_PROGRESS, frame.filled)

    def complete(self) -> FrameProgress | None:
        """The frame is committed: COMPLETE, if STARTED was sent; the end is told whenever it comes."""
        frame = self._frame
        if frame is None:
            return None
        message = self._message(_COMPLETE, frame.values_len_bytes)
        self._frame = None
        return message

    def abort(self) -> None:
        """The frame was given up: nothing more is told of it."""
        self._frame = None

    def _message(self, state: FrameProgressState, filled: int) -> FrameProgress:
        assert self._frame is not None, "only told of a frame"
        return FrameProgress(self.stream_id, self._frame.epoch, self._frame.seq, filled, state)


@dataclass(slots=True)
class _Writing:
    """A frame between STARTED and COMPLETE."""

    epoch: int
    seq: int
    values_len_bytes: int
    major_stride_bytes: int
    sent_ns: int
    filled: int = 0
    told: int = 0

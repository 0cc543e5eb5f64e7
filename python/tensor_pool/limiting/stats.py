"""What a rate limiter has done."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from tensor_pool.pool.frame import Frame

__all__ = ["LimiterStats", "Tally"]

_NS_PER_S: Final = 1_000_000_000
_MOST_TIMES: Final = 32


class LimiterStats(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the frames of a source so far.

    Frames are counted by their numbers: those that the source left out itself count as seen and thinned.
    """

    frames_seen: int
    """Frames of the source, from the first to the newest that was looked at."""
    frames_passed: int
    """Frames that were published again."""
    frames_thinned: int
    """Frames left out to keep to the rate: no losses."""
    frames_torn: int
    """Frames that the source overwrote while they were copied; a newer one took their place."""
    frames_overtaken: int
    """Frames that should have passed, as all should, but were overwritten before they were looked at."""
    rate_hz: float
    """How many frames a second passed lately."""
    max_rate_hz: float
    """How many may; 0 for all."""
    source_epoch: int | None
    """The epoch of the source that frames come from; None before there was one."""
    stream_id: int | None
    """The destination; None while there is none."""
    epoch: int | None
    """Its epoch; None while frames would find no ring."""
    restarts: int
    """How often a lost connection was made anew."""
    error: str | None
    """Why nothing passes at the moment."""


class Tally:
    """Counts the frames of a source by their numbers, over all its epochs."""

    def __init__(self) -> None:
        self.seen = self.passed = self.thinned = self.torn = self.overtaken = 0
        self._last: tuple[int, int] | None = None
        """Epoch and number of the last frame that was dealt with."""
        self._times_ns: deque[int] = deque(maxlen=_MOST_TIMES)

    def is_known(self, frame: Frame) -> bool:
        """Whether that frame, or a later one of its epoch, was dealt with before."""
        return self._last is not None and frame.epoch == self._last[0] and frame.seq <= self._last[1]

    def count(self, frame: Frame, *, is_whole: bool, wanted_all: bool, now_ns: int) -> None:
        """Notes what became of a frame, and with it of those before it.

        Args:
            frame: One that is not known yet.
            is_whole: Whether it passed; it was torn otherwise.
            wanted_all: Whether those before it should have passed too.
            now_ns: The time.
        """
        is_next = self._last is not None and frame.epoch == self._last[0]
        between = frame.seq - self._last[1] - 1 if self._last is not None and is_next else 0
        self._last = frame.epoch, frame.seq
        self.seen += between + 1
        if wanted_all:
            self.overtaken += between
        else:
            self.thinned += between
        if is_whole:
            self.passed += 1
            self._times_ns.append(now_ns)
        else:
            self.torn += 1

    def rate_hz(self, now_ns: int) -> float:
        """How many frames a second passed lately; sinks while none does."""
        times_ns = tuple(self._times_ns)
        if len(times_ns) < 2 or times_ns[-1] == times_ns[0]:
            return 0.0
        count = len(times_ns) - 1
        usual_ns = (times_ns[-1] - times_ns[0]) / count
        return count * _NS_PER_S / (max(times_ns[-1], now_ns - usual_ns) - times_ns[0])

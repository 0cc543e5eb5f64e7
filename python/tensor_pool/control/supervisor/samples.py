"""A consumer's last reports: what it lost and how far it came over a while, not from one to the next."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

__all__ = ["Samples"]

_NS_PER_S: Final = 1_000_000_000
_PARTS: Final = 32
"""A window is kept in at most about so many parts, however often somebody reports."""


class _Sample(NamedTuple):
    at_ns: int
    drops: int
    seq: int | None
    gaps: int
    lag: int


class Samples:
    """Reports of one consumer in one epoch.

    A consumer that is too far behind skips hundreds of frames at once, and then none for seconds: only over a
    window does that make a rate.

    Args:
        window_ns: How far back to look.
        interval_ns: How often reports come. Two that are heard closer together waited for their listener.

    Example:
        >>> samples = Samples(window_ns=5_000_000_000, interval_ns=1_000_000_000)
        >>> for second, drops in enumerate((0, 256, 256, 256)):
        ...     samples.add(second * 1_000_000_000, drops, seq=100 * second)
        >>> round(samples.drops_per_s, 1), samples.rate_hz
        (85.3, 100.0)
    """

    __slots__ = ("_interval_ns", "_kept", "_window_ns")

    def __init__(self, *, window_ns: int, interval_ns: int) -> None:
        self._window_ns = window_ns
        self._interval_ns = interval_ns
        self._kept: deque[_Sample] = deque(maxlen=2 * _PARTS)

    def add(self, at_ns: int, drops: int, seq: int | None, *, gaps: int = 0, lag: int | None = None) -> None:
        """Takes a report.

        Args:
            at_ns: When it came.
            drops: All that it has lost so far.
            seq: The last number that it got past.
            gaps: Those of the lost that it never found.
            lag: How many numbers it was behind, if that is known.
        """
        kept, most_lag = self._kept, lag or 0
        if len(kept) >= 2 and kept[-1].at_ns - kept[-2].at_ns < self._window_ns // _PARTS:
            most_lag = max(most_lag, kept.pop().lag)
        kept.append(_Sample(at_ns, drops, seq, gaps, most_lag))
        while len(kept) >= 2 and kept[1].at_ns <= at_ns - self._window_ns:
            kept.popleft()

    def restart(self) -> None:
        """What was no longer counts, but for the last report."""
        while len(self._kept) > 1:
            self._kept.popleft()

    def clear(self) -> None:
        """Nothing of what was counts."""
        self._kept.clear()

    @property
    def drops_per_s(self) -> float | None:
        """Frames lost in a second; None before there are two reports."""
        return self._per_s(self._kept[-1].drops - self._kept[0].drops) if len(self._kept) > 1 else None

    @property
    def gaps_per_s(self) -> float | None:
        """Numbers that it never found in a second; None before there are two reports."""
        return self._per_s(self._kept[-1].gaps - self._kept[0].gaps) if len(self._kept) > 1 else None

    @property
    def most_lag(self) -> int:
        """The most that it was behind."""
        return max((sample.lag for sample in self._kept), default=0)

    @property
    def step(self) -> float:
        """From one frame that it found to the next, in numbers and on average; 1 where it found all."""
        if len(self._kept) < 2 or self._kept[0].seq is None or self._kept[-1].seq is None:
            return 1.0
        passed = self._kept[-1].seq - self._kept[0].seq
        found = passed - (self._kept[-1].gaps - self._kept[0].gaps)
        return max(1.0, passed / max(1, found))

    @property
    def rate_hz(self) -> float | None:
        """Sequence numbers that it got past in a second; None before there are two reports."""
        if len(self._kept) < 2 or self._kept[0].seq is None or self._kept[-1].seq is None:
            return None
        return self._per_s(self._kept[-1].seq - self._kept[0].seq)

    @property
    def is_still(self) -> bool:
        """Whether it got past no frame in a whole window."""
        if len(self._kept) < 2 or self._kept[-1].at_ns - self._kept[0].at_ns < self._window_ns:
            return False
        return self._kept[0].seq == self._kept[-1].seq

    def _per_s(self, count: int) -> float:
        took_ns = max(self._kept[-1].at_ns - self._kept[0].at_ns, self._interval_ns // 2, 1)
        return max(0, count) * _NS_PER_S / took_ns

"""Lets at most so many frames a second pass."""

from __future__ import annotations

from typing import Final

from tensor_pool.errors import ConfigError

__all__ = ["MAX_RATE_HZ", "MIN_RATE_HZ", "RateGate", "period_of"]

_NS_PER_S: Final = 1_000_000_000
MIN_RATE_HZ: Final = 1e-6
MAX_RATE_HZ: Final = 1e9
"""A frame in eleven days, and one a nanosecond."""


def period_of(max_rate_hz: float) -> int:
    """Nanoseconds between two frames at this rate; 0 where all may pass.

    Raises:
        ConfigError: A rate that is negative, below one frame in eleven days, or beyond one a nanosecond.

    Example:
        >>> period_of(50), period_of(0)
        (20000000, 0)
    """
    if max_rate_hz != 0 and not MIN_RATE_HZ <= max_rate_hz <= MAX_RATE_HZ:
        raise ConfigError(
            f"{max_rate_hz} Hz is no rate", hint="0 lets all frames pass, 10 ten of them a second"
        )
    return int(_NS_PER_S // max_rate_hz) if max_rate_hz else 0


class RateGate:
    """Thins frames out by their own time stamps, so that a burst that comes late is not thinned by its delay.

    It never keeps a frame back for later: the one that passes is the newest of its moment. On average the
    rate is reached, not just approached from below: what comes a little early or late does not move the beat.

    Args:
        max_rate_hz: Frames a second; 0 lets all pass.

    Raises:
        ConfigError: A rate that is negative or beyond one frame a nanosecond.

    Example:
        >>> gate = RateGate(50)
        >>> [gate.accept(ms * 1_000_000) for ms in (0, 10, 20, 30, 40)]
        [True, False, True, False, True]
    """

    __slots__ = ("_due_ns", "_last_now_ns", "_last_ns", "_period_ns", "passed", "refused")

    def __init__(self, max_rate_hz: float) -> None:
        self.passed = 0
        self.refused = 0
        self.set_rate(max_rate_hz)
        self.restart()

    def set_rate(self, max_rate_hz: float) -> None:
        """Another rate from the next frame on."""
        self._period_ns = period_of(max_rate_hz)

    def restart(self) -> None:
        """The next frame passes, whatever came before: at the start and after a remap."""
        self._due_ns: int | None = None
        self._last_ns = 0
        self._last_now_ns: int | None = None

    def accept(self, timestamp_ns: int | None, *, now_ns: int | None = None) -> bool:
        """Whether a frame passes.

        Args:
            timestamp_ns: Time stamp of its descriptor, else of its slot [WIRE-11-6]; None or 0 for none.
            now_ns: Local monotonic time, which decides when stamps are missing or stand still [WIRE-11-7].
        """
        stamp_ns = timestamp_ns or now_ns or 0
        passes = self._due_ns is None or self._period_ns == 0 or self._is_due(stamp_ns, now_ns)
        if passes:
            self._pass(stamp_ns, now_ns)
        self.passed += passes
        self.refused += not passes
        return passes

    def _is_due(self, stamp_ns: int, now_ns: int | None) -> bool:
        assert self._due_ns is not None, "the first frame passes"
        if stamp_ns >= self._due_ns:
            return True
        if stamp_ns < self._last_ns - self._period_ns:
            # The clock was set back: frames must not wait until it is again what it was.
            self._due_ns = stamp_ns + self._period_ns
            self._last_ns = stamp_ns
            return False
        # Stamps that stand still, such as those of a producer that does not set them, don't stop the stream.
        return (
            stamp_ns <= self._last_ns
            and now_ns is not None
            and self._last_now_ns is not None
            and now_ns - self._last_now_ns >= self._period_ns
        )

    def _pass(self, stamp_ns: int, now_ns: int | None) -> None:
        beat_ns = self._due_ns if self._due_ns is not None else stamp_ns
        # One period from when this one was due, so that the beat is kept; but from this one after a pause or
        # a jump, so that what was missed is not made up for in a burst.
        kept = 0 <= stamp_ns - beat_ns < self._period_ns
        self._due_ns = (beat_ns if kept else stamp_ns) + self._period_ns
        self._last_ns = stamp_ns
        self._last_now_ns = now_ns

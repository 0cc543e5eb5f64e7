"""Clocks that are handed in, so that tests own the time.

Two kinds of time exist and are never mixed: *monotonic* time (``CLOCK_MONOTONIC``) measures durations and
stamps messages within one host [WIRE-15.7-1]; *real* time (``CLOCK_REALTIME``) is for people and for other
hosts. Both are whole nanoseconds.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

__all__ = ["CachedClock", "Clock", "FakeClock", "SystemClock", "realtime_offset_ns"]

_CLOSE_NS: Final = 20_000
_TRIES: Final = 8


class Clock(Protocol):
    """Something that tells both times in nanoseconds."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of ``CLOCK_MONOTONIC``: comparable between processes of one host, never set back."""
        ...

    def realtime_ns(self) -> int:
        """Nanoseconds of ``CLOCK_REALTIME`` since 1970: may jump either way."""
        ...


class SystemClock:
    """The kernel's clocks.

    Example:
        >>> clock = SystemClock()
        >>> clock.monotonic_ns() <= clock.monotonic_ns()
        True
    """

    __slots__ = ()

    def monotonic_ns(self) -> int:
        """See `Clock.monotonic_ns`."""
        # Named by its id, not time.monotonic_ns(): other processes, in other languages, stamp with this one.
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def realtime_ns(self) -> int:
        """See `Clock.realtime_ns`."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME)


class CachedClock:
    """A clock that stands still between calls of `refresh`.

    A runner refreshes it once a duty cycle: everything an agent does in one cycle then happens at one moment,
    which makes decisions consistent and saves a clock read per message.

    Args:
        source: The clock to read on `refresh`.

    Example:
        >>> clock = CachedClock(SystemClock())
        >>> before = clock.monotonic_ns()
        >>> before == clock.monotonic_ns()
        True
        >>> clock.refresh()
        >>> clock.monotonic_ns() > before
        True
    """

    __slots__ = ("_monotonic_ns", "_realtime_ns", "_source")

    def __init__(self, source: Clock) -> None:
        self._source = source
        self.refresh()

    def refresh(self) -> None:
        """Take over the source's time."""
        self._monotonic_ns = self._source.monotonic_ns()
        self._realtime_ns = self._source.realtime_ns()

    def monotonic_ns(self) -> int:
        """The monotonic time of the last `refresh`."""
        return self._monotonic_ns

    def realtime_ns(self) -> int:
        """The real time of the last `refresh`."""
        return self._realtime_ns


class FakeClock:
    """A clock that only tests move.

    Args:
        monotonic_ns: Where monotonic time starts; not 0, so that "never" and "at the start" differ.
        realtime_ns: Where real time starts.

    Example:
        >>> clock = FakeClock(monotonic_ns=1_000)
        >>> clock.advance(ms=2)
        >>> clock.monotonic_ns()
        2001000
    """

    __slots__ = ("_monotonic_ns", "_realtime_ns")

    def __init__(
        self, monotonic_ns: int = 1_000_000_000, realtime_ns: int = 1_700_000_000_000_000_000
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._realtime_ns = realtime_ns

    def monotonic_ns(self) -> int:
        """See `Clock.monotonic_ns`."""
        return self._monotonic_ns

    def realtime_ns(self) -> int:
        """See `Clock.realtime_ns`."""
        return self._realtime_ns

    def advance(self, *, ns: int = 0, us: int = 0, ms: int = 0, s: int = 0) -> None:
        """Let time pass on both clocks.

        Raises:
            ValueError: Time would go back; only `step_realtime` may do that.
        """
        passed = ns + us * 1_000 + ms * 1_000_000 + s * 1_000_000_000
        if passed < 0:
            raise ValueError(f"monotonic time can't go back by {-passed} ns")
        self._monotonic_ns += passed
        self._realtime_ns += passed

    def step_realtime(self, ns: int) -> None:
        """Set the real-time clock forward or back, as an operator or a time daemon does."""
        self._realtime_ns += ns


def realtime_offset_ns(clock: Clock) -> int:
    """What to add to monotonic time to get real time.

    The two clocks can't be read at once, and a thread may have to wait in between. The closest of a few
    readings counts, so that an offset that seems to move has moved.

    Example:
        >>> realtime_offset_ns(FakeClock(monotonic_ns=5, realtime_ns=1_005))
        1000
    """
    closest = best = 0
    for attempt in range(_TRIES):
        before_ns = clock.monotonic_ns()
        real_ns = clock.realtime_ns()
        took_ns = clock.monotonic_ns() - before_ns
        if attempt == 0 or took_ns < closest:
            closest, best = took_ns, real_ns - before_ns - took_ns // 2
        if took_ns <= _CLOSE_NS:
            break
    return best

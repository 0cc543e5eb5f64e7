"""What an agent's thread does when there is no work.

====================  ==============================================  ==================================
name                  what it does                                    when to take it
====================  ==============================================  ==================================
``backoff`` (default) yields a few times, then sleeps longer and      control planes, most agents
                      longer up to a limit
``sleep``             sleeps a fixed time                             predictable wake-up times
``doorbell``          waits until rung, or a time-out                 data planes: microseconds, no CPU
``yield``             gives the CPU to who wants it                   a core to spare, others on it
``spin``              nothing at all                                  a core of one's own
====================  ==============================================  ==================================

``spin`` and ``yield`` burn a whole core, and in Python they also fight other threads for the interpreter
lock; nothing selects them by itself.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final, Literal, Protocol, get_args

from tensor_pool.errors import ConfigError

__all__ = [
    "BackOff",
    "Bell",
    "Doorbell",
    "EventBell",
    "IdleName",
    "IdleStrategy",
    "Sleep",
    "Spin",
    "Yield",
    "make_idle",
]

IdleName = Literal["backoff", "sleep", "doorbell", "yield", "spin"]
"""The names that configuration accepts."""

LONGEST_PAUSE_S: Final = 0.1
"""No strategy waits longer at a time, so that closing an agent never takes longer than that."""


class IdleStrategy(Protocol):
    """Decides how to pass the time between duty cycles."""

    def idle(self, work_count: int) -> None:
        """Called after each duty cycle with what it did; pauses only when that is 0."""
        ...


class Spin:
    """Never pauses.

    Example:
        >>> Spin().idle(0)
    """

    __slots__ = ()

    def idle(self, work_count: int) -> None:
        """Return at once."""


class Yield:
    """Gives the CPU away for a moment.

    Example:
        >>> Yield().idle(0)
    """

    __slots__ = ()

    def idle(self, work_count: int) -> None:
        """Yield when there was no work."""
        if work_count == 0:
            os.sched_yield()


class Sleep:
    """Sleeps a fixed time.

    Args:
        pause_s: How long, at most 0.1 s.

    Example:
        >>> Sleep(0.001).idle(0)
    """

    __slots__ = ("_pause_s",)

    def __init__(self, pause_s: float = 0.001) -> None:
        self._pause_s = _checked_pause("pause_s", pause_s)

    def idle(self, work_count: int) -> None:
        """Sleep when there was no work."""
        if work_count == 0:
            time.sleep(self._pause_s)


class BackOff:
    """Yields first, then sleeps, twice as long each time; any work starts it over.

    Args:
        yields: How often to yield before the first sleep.
        min_pause_s: The first sleep.
        max_pause_s: The longest sleep, at most 0.1 s; also the longest time until new work is noticed.

    Example:
        >>> idle = BackOff(yields=0, min_pause_s=0.001, max_pause_s=0.003)
        >>> [idle.next_pause_s(0) for _ in range(4)], idle.next_pause_s(1), idle.next_pause_s(0)
        ([0.001, 0.002, 0.003, 0.003], None, 0.001)
    """

    __slots__ = ("_max_pause_s", "_min_pause_s", "_pause_s", "_yields", "_yields_left")

    def __init__(self, *, yields: int = 10, min_pause_s: float = 0.000_1, max_pause_s: float = 0.010) -> None:
        self._max_pause_s = _checked_pause("max_pause_s", max_pause_s)
        self._min_pause_s = min(_checked_pause("min_pause_s", min_pause_s), max_pause_s)
        self._yields = yields
        self._pause_s = self._min_pause_s
        self._yields_left = yields

    def idle(self, work_count: int) -> None:
        """Pause as `next_pause_s` says."""
        pause_s = self.next_pause_s(work_count)
        if pause_s is None:
            return
        if pause_s == 0:
            os.sched_yield()
        else:
            time.sleep(pause_s)

    def next_pause_s(self, work_count: int) -> float | None:
        """How long to sleep now: None for not at all, 0 to yield. Moves the strategy on."""
        if work_count:
            self._yields_left = self._yields
            self._pause_s = self._min_pause_s
            return None
        if self._yields_left:
            self._yields_left -= 1
            return 0.0
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._max_pause_s)
        return pause_s


class Bell(Protocol):
    """Something that can be waited for and is rung from elsewhere, often from another process.

    A bell remembers: rung between two waits, the second wait returns at once. Without that, work that arrives
    between an agent's last look and its wait would sleep until the time-out.
    """

    def wait(self, timeout_s: float) -> bool:
        """Wait until rung, at most `timeout_s`; says whether it was. Returns early to let signals in."""
        ...


class EventBell:
    """A bell for threads of one process.

    Example:
        >>> bell = EventBell()
        >>> bell.ring()
        >>> bell.wait(1.0), bell.wait(0.0)
        (True, False)
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """Wake who waits, or the next who will."""
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """See `Bell.wait`."""
        was_rung = self._event.wait(timeout_s)
        # Cleared before the agent looks for work: a ring that comes later is kept for the next wait.
        self._event.clear()
        return was_rung


class Doorbell:
    """Waits for a bell.

    The time-out bounds how late work is noticed when its producer does not ring (foreign ones don't,
    decision M18), and how often timers are looked at.

    Args:
        bell: What to wait for.
        timeout_s: How long at most, no more than 0.1 s.

    Example:
        >>> bell = EventBell()
        >>> bell.ring()
        >>> Doorbell(bell).idle(0)
    """

    __slots__ = ("_bell", "_timeout_s")

    def __init__(self, bell: Bell, *, timeout_s: float = 0.020) -> None:
        self._bell = bell
        self._timeout_s = _checked_pause("timeout_s", timeout_s)

    def idle(self, work_count: int) -> None:
        """Wait for the bell when there was no work."""
        if work_count == 0:
            self._bell.wait(self._timeout_s)


def make_idle(name: str, *, bell: Bell | None = None, max_pause_s: float | None = None) -> IdleStrategy:
    """The strategy that configuration names.

    Args:
        name: One of `IdleName`.
        bell: What ``doorbell`` waits for. An agent without a bell gets ``backoff`` instead, so that one
            setting serves all agents of a process.
        max_pause_s: The sleep, the longest back-off or the doorbell's time-out; None for the usual one.

    Raises:
        ConfigError: There is no such strategy.

    Example:
        >>> type(make_idle("doorbell", bell=EventBell())).__name__
        'Doorbell'
        >>> type(make_idle("doorbell")).__name__
        'BackOff'
    """
    if name not in get_args(IdleName):
        raise ConfigError(
            f"there is no idle strategy {name!r}", hint=f"use one of {', '.join(get_args(IdleName))}"
        )
    if name == "spin":
        return Spin()
    if name == "yield":
        return Yield()
    if name == "sleep":
        return Sleep() if max_pause_s is None else Sleep(max_pause_s)
    if name == "doorbell" and bell is not None:
        return Doorbell(bell) if max_pause_s is None else Doorbell(bell, timeout_s=max_pause_s)
    return BackOff() if max_pause_s is None else BackOff(max_pause_s=max_pause_s)


def _checked_pause(name: str, pause_s: float) -> float:
    if not 0 < pause_s <= LONGEST_PAUSE_S:
        raise ConfigError(
            f"{name} of {pause_s} s is not a pause", hint=f"use more than 0 and at most {LONGEST_PAUSE_S} s"
        )
    return pause_s

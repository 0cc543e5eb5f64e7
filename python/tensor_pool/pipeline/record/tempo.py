"""When the next frame of a replay is due, while people change their minds about how fast it goes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Tempo"]

_NS: Final = 1_000_000_000


class Tempo:
    """Moments of a recording as moments of the clock. One thread waits, any thread changes.

    Moments are counted from the last change, so that delays don't add up.

    Args:
        speed: 2 for twice as fast, 0 for as fast as possible.
        now_ns: The clock.

    Example:
        >>> now = 0
        >>> tempo = Tempo(2.0, now_ns=lambda: now)
        >>> tempo.begin()
        >>> now = 1_500
        >>> tempo.wait_for(2_000)
        500
    """

    def __init__(self, speed: float, *, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._changed = threading.Condition()
        self._speed = speed
        self._is_paused = False
        self._is_stopped = False
        self._position_ns = 0
        self._since_ns = now_ns()

    @property
    def speed(self) -> float:
        """How fast it goes."""
        return self._speed

    @property
    def is_paused(self) -> bool:
        """Whether nothing is due until it goes on."""
        return self._is_paused

    def begin(self) -> None:
        """Now is the first moment of the recording."""
        with self._changed:
            self._position_ns, self._since_ns = 0, self._now_ns()

    def set_speed(self, speed: float) -> None:
        """From now on it goes so fast."""
        with self._changed:
            self._settle()
            self._speed = speed
            self._changed.notify_all()

    def pause(self, on: bool) -> None:
        """Holds, or goes on from where it was held."""
        with self._changed:
            self._settle()
            self._is_paused = on
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing is due any more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def wait_for(self, at_ns: int) -> int | None:
        """Waits until a moment of the recording is due; how late it is then, or None after `stop`."""
        with self._changed:
            while not self._is_stopped:
                if self._is_paused:
                    self._changed.wait()
                    continue
                if not self._speed:
                    self._position_ns, self._since_ns = at_ns, self._now_ns()
                    return 0
                due_ns = self._since_ns + round((at_ns - self._position_ns) / self._speed)
                left_ns = due_ns - self._now_ns()
                if left_ns <= 0:
                    return -left_ns
                self._changed.wait(left_ns / _NS)
        return None

    def _settle(self) -> None:
        """Takes where it is as the moment from which it counts."""
        now_ns = self._now_ns()
        if not self._is_paused:
            self._position_ns += round((now_ns - self._since_ns) * self._speed)
        self._since_ns = now_ns

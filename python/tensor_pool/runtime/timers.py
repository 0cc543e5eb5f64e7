"""Deadlines and periods, driven by the clock value they are given: no thread, no clock inside.

Catch-up rule, everywhere here: periods that were missed are *skipped*, never delivered in a burst. A process
that was stopped for a minute sends one keepalive when it wakes, not sixty; the phase is kept, so the next one
comes when it would have come anyway.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Periodic", "TimerQueue"]

KeyT = TypeVar("KeyT", bound="Hashable")

_MIN_COMPACTION: Final = 64
"""Below this many heap entries stale ones are not worth collecting."""


class Periodic:
    """Says once a period that it is time.

    Args:
        period_ns: The period.
        start_ns: The first moment at which it is due.

    Example:
        >>> announce = Periodic(period_ns=100, start_ns=1_000)
        >>> [announce.due(now) for now in (999, 1_000, 1_050, 1_450, 1_460, 1_500)]
        [False, True, False, True, False, True]
        >>> announce.skipped
        3
    """

    __slots__ = ("next_ns", "period_ns", "skipped")

    def __init__(self, *, period_ns: int, start_ns: int) -> None:
        if period_ns <= 0:
            raise ValueError(f"a period is at least 1 ns, not {period_ns}")
        self.period_ns = period_ns
        self.next_ns = start_ns
        self.skipped = 0

    def due(self, now_ns: int) -> bool:
        """Whether it is time; True at most once a period."""
        late_ns = now_ns - self.next_ns
        if late_ns < 0:
            return False
        missed = late_ns // self.period_ns
        self.skipped += missed
        self.next_ns += (missed + 1) * self.period_ns
        return True


class TimerQueue(Generic[KeyT]):
    """Many deadlines, each under its own key: leases, assemblies, consumers that may fall silent.

    Setting a key again moves its deadline. Most are moved later again and again and never pass, so that costs
    no more than a look into a dictionary; everything else costs a logarithm. Memory is proportional to the
    keys that are set, however often they move.

    Example:
        >>> leases: TimerQueue[str] = TimerQueue()
        >>> leases.set("a", 100); leases.set("b", 50); leases.set("a", 300)
        >>> leases.expire(200)
        ['b']
        >>> leases.next_deadline_ns()
        300
    """

    __slots__ = ("_deadlines", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        # The sequence number breaks ties, so keys need no order of their own and equal deadlines keep theirs.
        self._deadlines: dict[KeyT, tuple[int, int]] = {}
        # A deadline that was moved later stands in the heap at its former time; when it surfaces there it is
        # put where it belongs. Of several entries of a key the one that is queued counts.
        self._heap: list[tuple[int, int, KeyT]] = []
        self._queued: dict[KeyT, tuple[int, int]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: object) -> bool:
        return key in self._deadlines

    def set(self, key: KeyT, deadline_ns: int) -> None:
        """Let `key` expire at `deadline_ns`, whatever its deadline was before."""
        self._sequence += 1
        self._deadlines[key] = (deadline_ns, self._sequence)
        queued = self._queued.get(key)
        if queued is None or deadline_ns < queued[0]:
            self._queue(key)
            if len(self._heap) > max(_MIN_COMPACTION, 2 * len(self._deadlines)):
                self._compact()

    def cancel(self, key: KeyT) -> bool:
        """Forget `key`; says whether it was set."""
        return self._deadlines.pop(key, None) is not None

    def deadline_ns(self, key: KeyT) -> int | None:
        """When `key` expires, or None when it is not set."""
        entry = self._deadlines.get(key)
        return None if entry is None else entry[0]

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline of all, or None when nothing is set."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def expire(self, now_ns: int) -> list[KeyT]:
        """Remove and return the keys whose deadline is at or before `now_ns`, earliest first."""
        expired: list[KeyT] = []
        while True:
            self._settle()
            if not self._heap or self._heap[0][0] > now_ns:
                return expired
            _, _, key = heapq.heappop(self._heap)
            del self._deadlines[key], self._queued[key]
            expired.append(key)

    def _queue(self, key: KeyT) -> None:
        self._queued[key] = at = self._deadlines[key]
        heapq.heappush(self._heap, (*at, key))

    def _settle(self) -> None:
        """Lets the first entry of the heap be one that counts and is where it belongs."""
        while self._heap:
            deadline_ns, sequence, key = self._heap[0]
            at = (deadline_ns, sequence)
            if self._queued.get(key) == at:
                set_to = self._deadlines.get(key)
                if set_to == at:
                    return
                del self._queued[key]
                if set_to is not None:
                    self._queue(key)
            heapq.heappop(self._heap)

    def _compact(self) -> None:
        self._queued = dict(self._deadlines)
        self._heap = [(*at, key) for key, at in self._deadlines.items()]
        heapq.heapify(self._heap)

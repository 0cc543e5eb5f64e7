"""Which ended epochs may be removed. Decides only; `files` removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.driver.files import FoundEpoch

__all__ = ["EndedEpochs"]


class _Watched(msgspec.Struct):
    """An epoch that has ended, and what its activity time stamp did since."""

    ended_ns: int
    activity: int | None
    unchanged_since_ns: int
    allocated_bytes: int


class EndedEpochs:
    """Watches epochs that have ended until nobody can be using them (decision D8).

    An epoch is in use while its activity time stamp *changes*. Comparing with what it was, on the driver's
    own clock, needs no clock of anybody else's: stamps of a process in another time namespace, or from before
    a reboot, can't be mistaken. The pid in the superblock is never asked.

    Args:
        keep_count: Epochs of a stream to keep, its current one included.
        min_age_ns: How long to keep an epoch after its end.
        stale_ns: How long the stamp must not have changed.

    Example:
        >>> from tensor_pool.driver.files import FoundEpoch
        >>> ended = EndedEpochs(keep_count=1, min_age_ns=100, stale_ns=50)
        >>> ended.add(FoundEpoch(10000, 7), activity=1, now_ns=0)
        >>> ended.collectable(lambda found: 1, now_ns=99), ended.collectable(lambda found: 1, now_ns=100)
        ([], [FoundEpoch(stream_id=10000, epoch=7)])
    """

    def __init__(self, *, keep_count: int, min_age_ns: int, stale_ns: int) -> None:
        self._keep_count = keep_count
        self._min_age_ns = min_age_ns
        self._stale_ns = stale_ns
        self._watched: dict[FoundEpoch, _Watched] = {}

    def __len__(self) -> int:
        return len(self._watched)

    @property
    def allocated_bytes(self) -> int:
        """The memory that they still take."""
        return sum(watched.allocated_bytes for watched in self._watched.values())

    def add(self, found: FoundEpoch, *, activity: int | None, now_ns: int, allocated_bytes: int = 0) -> None:
        """Notes that an epoch has ended."""
        self._watched[found] = _Watched(now_ns, activity, now_ns, allocated_bytes)

    def add_found(self, found: FoundEpoch, *, activity: int | None, now_ns: int) -> None:
        """Notes an epoch that an earlier driver left; it may have ended long ago.

        Its age counts from its last sign of life and not from now, else what drivers leave that are killed
        every few seconds piles up. A stamp of another clock may make it older than it is, but nothing is
        removed whose stamp still changes here.
        """
        last_ns = now_ns if activity is None else min(activity, now_ns)
        self._watched[found] = _Watched(last_ns, activity, now_ns, 0)

    def collectable(
        self, activity_of: Callable[[FoundEpoch], int | None], *, now_ns: int
    ) -> list[FoundEpoch]:
        """The epochs that may be removed now; they are forgotten here.

        Args:
            activity_of: Reads the present activity time stamp of an epoch.
            now_ns: The monotonic time.
        """
        collectable = []
        for found in self._surplus():
            watched = self._watched[found]
            if now_ns - watched.ended_ns < self._min_age_ns:
                continue
            activity = activity_of(found)
            if activity != watched.activity:
                watched.activity = activity
                watched.unchanged_since_ns = now_ns
            elif now_ns - watched.unchanged_since_ns >= self._stale_ns:
                collectable.append(found)
        for found in collectable:
            del self._watched[found]
        return collectable

    def _surplus(self) -> list[FoundEpoch]:
        """All but the newest of each stream that are to be kept beside the current one."""
        by_stream: dict[int, list[FoundEpoch]] = {}
        for found in self._watched:
            by_stream.setdefault(found.stream_id, []).append(found)
        surplus: list[FoundEpoch] = []
        for epochs in by_stream.values():
            surplus += sorted(epochs, reverse=True)[self._keep_count - 1 :]
        return sorted(surplus)

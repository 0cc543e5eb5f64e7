"""Reads ahead of who needs things in time: a thread and a queue that never holds more than so many bytes."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["ReadAhead"]

_MOST_ITEMS: Final = 1024
"""Small things cost memory too."""


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


ItemT = TypeVar("ItemT", bound=_Sized)


class ReadAhead(Closing, Generic[ItemT]):
    """Goes through something in a thread of its own, a little ahead of who takes from it.

    What goes wrong there is raised where the next thing would have come.

    Args:
        source: Where things come from; used by that thread only.
        max_bytes: How much may wait; a single thing may be larger if nothing else waits.

    Example:
        >>> import numpy as np
        >>> with ReadAhead((np.full(4, n) for n in range(3)), max_bytes=50) as ahead:
        ...     [int(array[0]) for array in ahead]
        [0, 1, 2]
    """

    def __init__(self, source: Iterable[ItemT], *, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._waiting: deque[ItemT] = deque()
        self._nbytes = 0
        self._is_over = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="read ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[ItemT]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
                if not self._waiting:
                    break
                item = self._waiting.popleft()
                self._nbytes -= item.nbytes
                self._changed.notify()
            yield item
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends the thread and whoever waits. May be called again."""
        with self._changed:
            self._is_over = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join()

    def _read(self) -> None:
        try:
            for item in self._source:
                if not self._put(item):
                    return
        except BaseException as e:  # raised in the thread that takes
            self._error = e
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _put(self, item: ItemT) -> bool:
        """Adds something once there is room; False when nobody wants it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_room_for(item))
            if self._is_over:
                return False
            self._waiting.append(item)
            self._nbytes += item.nbytes
            self._changed.notify()
            return True

    def _has_room_for(self, item: ItemT) -> bool:
        if not self._waiting:
            return True
        return len(self._waiting) < _MOST_ITEMS and self._nbytes + item.nbytes <= self._max_bytes

"""Frames between the thread that reads and the thread that writes them: never more than so many bytes."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.rows import Row

__all__ = ["Backlog", "Taken"]


class Taken(NamedTuple):
    """A frame in private memory."""

    row: Row
    array: NDArray[Any]
    crc32c: int | None = None
    """Of its bytes."""


class Backlog:
    """A queue that is limited by bytes. One thread puts, one takes.

    Args:
        max_bytes: What is waiting at most; a single frame may be larger if nothing else waits.

    Example:
        >>> import numpy as np
        >>> from tensor_pool.pipeline.record.rows import Row
        >>> backlog = Backlog(max_bytes=10)
        >>> frame = Taken(Row(kind="frame", stream_id=1, epoch=1, seq=0), np.zeros(8, "uint8"))
        >>> backlog.put(frame), backlog.put(frame)
        (True, False)
        >>> backlog.done(backlog.take(timeout_s=1.0))
        >>> backlog.nbytes
        0
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[Taken] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.nbytes = 0
        """What is waiting, or being written."""

    def put(self, *frames: Taken) -> bool:
        """Adds all of them; False when there is no room, and then none was added.

        What has no bytes always fits: a gap must not be dropped for the one large frame that waits.
        """
        nbytes = sum(frame.array.nbytes for frame in frames)
        with self._changed:
            if nbytes and self.nbytes and self.nbytes + nbytes > self._max_bytes:
                return False
            self._waiting += frames
            self.nbytes += nbytes
            self._changed.notify()
            return True

    def take(self, timeout_s: float) -> Taken | None:
        """The oldest frame, after at most `timeout_s`; it counts until it is `done`."""
        with self._changed:
            if not self._waiting and not self._closed:
                self._changed.wait(timeout_s)
            return self._waiting.popleft() if self._waiting else None

    def done(self, frame: Taken) -> None:
        """The frame needs no memory any more."""
        with self._changed:
            self.nbytes -= frame.array.nbytes

    @property
    def is_over(self) -> bool:
        """Whether it was closed and nothing waits any more."""
        with self._changed:
            return self._closed and not self._waiting

    def close(self) -> None:
        """Wakes who waits; what is in it can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

"""Waking up: how consumers wait, and one file descriptor each for event loops, whatever rings come and go."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensor_pool.pool.sessions.consumer import ConsumerSession

__all__ = ["WAITING", "Bells", "WaitStyle", "WakeUp"]


class WaitStyle(NamedTuple):
    """What a consumer does until its next frame comes."""

    spin_s: float = 0.0
    """How long it looks without pause before it sleeps."""
    punctual: bool = False
    """Whether it gets up shortly before the next frame of a steady stream is due."""


WAITING: Final[Mapping[str, WaitStyle]] = {
    # With 20 ms a consumer does not sleep between frames from 50 Hz upwards.
    "latency": WaitStyle(spin_s=0.02),
    "balanced": WaitStyle(punctual=True),
    "eco": WaitStyle(),
}
"""By `client.wake_profile`."""


class Bells(Closing):
    """The one thread of a connection that watches doorbells for event loops; started when first needed."""

    def __init__(self) -> None:
        self._watcher: _native.BellWatcher | None = None
        self._lock = threading.Lock()

    def watch(self, reader: _native.RingReader, fd: int) -> _native.BellFd:
        """Lets `fd` be readable whenever the reader's producer rang."""
        with self._lock:
            if self._watcher is None:
                self._watcher = _native.BellWatcher()
            return self._watcher.watch(reader, fd)

    def close(self) -> None:
        """Ends the thread; may be called again."""
        with self._lock:
            if self._watcher is not None:
                self._watcher.close()


class WakeUp(Closing):
    """A file descriptor that is readable when a consumer may have a frame.

    Args:
        session: The consumer's session; its rings are watched one after the other.
        bells: What watches them.
    """

    def __init__(self, session: ConsumerSession, bells: Bells) -> None:
        # Readable at first: what came before this was made is worth a look.
        self.fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._bells = bells
        self._watched: _native.BellFd | None = None
        self._lock = threading.Lock()
        self._closed = False
        session.watch_readers(self._watch)

    def clear(self) -> None:
        """Forgets what has rung so far; look for frames *after* this."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.eventfd_read(self.fd)

    def ring(self) -> None:
        """Makes the descriptor readable: something other than a frame happened."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self.fd, 1)

    def _watch(self, reader: _native.RingReader | None) -> None:
        """Another ring is in use; called by the agent's thread."""
        with self._lock:
            old, self._watched = self._watched, None
            if old is not None:
                old.close()
            if reader is not None and not self._closed:
                with contextlib.suppress(ClosedError):  # gone again already; the next one follows
                    self._watched = self._bells.watch(reader, self.fd)
        self.ring()

    def close(self) -> None:
        """Closes the descriptor; may be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._watched is not None:
                self._watched.close()
        with contextlib.suppress(OSError):  # a program may have closed it by mistake
            os.close(self.fd)

"""How connections end that nobody closes: at the program's end, and when the pool is garbage."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.pool.program_end import program_end

if TYPE_CHECKING:
    from tensor_pool.pool.pool import Pool

__all__ = ["Belongings", "close_at_exit", "close_when_dropped"]

_LOG: Final = logging.getLogger(__name__)


class Belongings(Closing):
    """The threads, connections and drivers of a pool, ended in the right order, once, in this process.

    Args:
        resources: What to close, the last one first.

    Example:
        >>> stack = contextlib.ExitStack()
        >>> _ = stack.callback(print, "media driver"), stack.callback(print, "pool")
        >>> Belongings(stack).close()
        pool
        media driver
    """

    def __init__(self, resources: contextlib.ExitStack) -> None:
        self._resources = resources
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Ends them, or waits until another thread has; may be called again."""
        if self._pid != os.getpid():
            return  # all of it is the parent's, and who held the lock may not exist here
        with self._closing:
            self._closed = True
            self._resources.close()

    def abandon(self) -> None:
        """Has them ended soon, by a thread of its own; the program's end waits for it.

        Garbage is collected anywhere: on the threads that have to end, or while `threading` holds a lock of
        its own. So nothing is waited for and no lock is taken here.
        """
        if self._closed or self._pid != os.getpid():
            return
        _abandoned.add(self)
        with contextlib.suppress(RuntimeError):  # no thread to be had: the program's end closes it
            _thread.start_new_thread(self._start_end, ())

    def _start_end(self) -> None:
        # What is not made by `threading`, but uses it, would be listed as a thread for ever.
        with contextlib.suppress(RuntimeError):  # as above
            threading.Thread(target=self._end, name="end of a pool", daemon=True).start()

    def _end(self) -> None:
        try:
            self.close()
        except Exception:  # nobody above would see it
            _LOG.exception("a pool that nobody closed did not end well")
        finally:
            _abandoned.discard(self)


_abandoned: Final[set[Belongings]] = set()
_open_pools: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()


def close_when_dropped(pool: Pool, belongings: Belongings) -> None:
    """Ends what only this pool can reach when the pool is garbage.

    Otherwise the media driver goes first, with the last reference to it, and everybody who still talks to it
    says that it was lost.
    """
    weakref.finalize(pool, belongings.abandon).atexit = False  # `close_at_exit` does that


def close_at_exit(pool: Pool) -> None:
    """Gives leases back and removes private directories also where a program forgets to close its pool."""
    if not _open_pools:
        # Media drivers end with Python's own hook for finalizers, which comes with the first of them: now,
        # and not with an embedded driver that is started later.
        weakref.finalize(pool, bool).atexit = False
        # Anew, to come before that and before the exit hook of the agents' threads: last come, first served.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _open_pools.add(pool)


def _close_all() -> None:
    program_end.begin()
    for pool in list(_open_pools):
        pool.close()
    for belongings in list(_abandoned):
        belongings.close()

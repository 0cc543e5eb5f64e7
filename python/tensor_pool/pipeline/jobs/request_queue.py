"""Requests that are worked off one after the other, on one thread; there are never too many of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tensor_pool.closing import Closing
from tensor_pool.errors import TensorPoolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["NotYetError", "Request", "RequestQueue"]

_LOOK_S: Final = 1.0
"""How often to look for what may still come."""
_MOST_TOGETHER: Final = 32
"""More would keep the first of them waiting for long."""
_LONGEST_REASON: Final = 2_000
ENDS: Final = "the service ends"


class NotYetError(TensorPoolError):
    """What a request is about is not there yet, and may come."""


class Request(NamedTuple):
    """Something that is to be done.

    Example:
        >>> Request("run", "quality", 7).key
        'run'
    """

    key: str
    value: Any
    correlation_id: int
    until_s: float = 0.0
    """Up to when to wait for what is not there yet, on the monotonic clock."""


class RequestQueue(Closing):
    """Takes requests from any thread, and works them off on its own in their order.

    Those about something that is not there yet step aside, and hold nobody up.

    Args:
        work: Does what some requests with one key ask; returns what to tell of each, or what it failed with.
            A `NotYetError` has a request asked again later.
        told: Called with each request that is finished, what there is to tell, and whether it was done; on
            the queue's thread.
        together: Keys of which several requests in a row are worked on at once; of others it is one.
        prepare: Called on the queue's thread before all requests; nothing comes of it when it fails.
        most: How many may be unfinished.
        wait_s: How long to wait for what is not there yet.

    Example:
        >>> def double(requests):
        ...     return [request.value * 2 for request in requests]
        >>> queue = RequestQueue(double, lambda _, told, __: print(told))
        >>> with queue:
        ...     queue.put("double", 21, 0)
        ...     queue.join()
        42
    """

    def __init__(
        self,
        work: Callable[[list[Request]], list[Any]],
        told: Callable[[Request, Any, bool], object],
        *,
        together: Collection[str] = (),
        prepare: Callable[[], object] = lambda: None,
        most: int = 100,
        wait_s: float = 0.0,
    ) -> None:
        self._work = work
        self._told = told
        self._together = together
        self._prepare = prepare
        self._most = most
        self._wait_s = wait_s
        self._lock = threading.Condition()
        self._next: deque[Request] = deque()
        self._aside: deque[Request] = deque()
        self._looked_s = 0.0
        self._is_ending = False
        self.unfinished = 0
        """Requests that were taken and are not finished."""
        self.done = 0
        self.failed = 0
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)
        self._thread.start()

    def put(self, key: str, value: Any, correlation_id: int) -> None:
        """Takes a request.

        Raises:
            TensorPoolError: Too many are unfinished, or it ends.
        """
        with self._lock:
            if self._is_ending:
                raise TensorPoolError(ENDS)
            if self.unfinished >= self._most:
                raise TensorPoolError(f"{self.unfinished} requests are waiting already; ask again later")
            self._next.append(Request(key, value, correlation_id, time.monotonic() + self._wait_s))
            self.unfinished += 1
            self._lock.notify_all()

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until all are finished; whether they are."""
        with self._lock:
            return self._lock.wait_for(lambda: not self.unfinished, timeout_s)

    def close(self, *, hurry: Callable[[], object] = lambda: None) -> None:
        """Ends after the request that is being worked on; the others fail. May be called again.

        Args:
            hurry: Called again and again until the thread has ended: cuts off what takes long.
        """
        with self._lock:
            self._is_ending = True
            self._lock.notify_all()
        while self._thread.is_alive():
            hurry()
            self._thread.join(timeout=0.2)

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # the first request will tell
            self._prepare()
        while requests := self._take():
            try:
                found = self._work(requests)
            except Exception as e:  # whatever it is, other requests go on
                found = [e] * len(requests)
            for request, told in zip(requests, found, strict=True):
                if isinstance(told, NotYetError) and time.monotonic() < request.until_s:
                    with self._lock:
                        self._aside.append(request)
                elif isinstance(told, Exception):
                    self._finish(request, _words(told), is_done=False)
                else:
                    self._finish(request, told, is_done=True)
        for request in (*self._next, *self._aside):
            self._finish(request, ENDS, is_done=False)

    def _take(self) -> list[Request]:
        """The next ones, as soon as there are any; none at the end."""
        with self._lock:
            while not self._is_ending:
                now = time.monotonic()
                if self._aside and now - self._looked_s >= _LOOK_S:
                    self._looked_s = now
                    # In front of all others: they were asked for earlier.
                    self._next.extendleft(reversed(self._aside))
                    self._aside.clear()
                if self._next:
                    return self._take_alike()
                self._lock.wait(_LOOK_S if self._aside else None)
        return []

    def _take_alike(self) -> list[Request]:
        found = [self._next.popleft()]
        key = found[0].key
        most = _MOST_TOGETHER if key in self._together else 1
        while len(found) < most and self._next and self._next[0].key == key:
            found.append(self._next.popleft())
        return found

    def _finish(self, request: Request, told: Any, *, is_done: bool) -> None:
        with self._lock:
            self.unfinished -= 1
            self.done += is_done
            self.failed += not is_done
        self._told(request, told, is_done)
        with self._lock:
            self._lock.notify_all()


def _words(error: Exception) -> str:
    text = error.message if isinstance(error, TensorPoolError) else f"{type(error).__name__}: {error}"
    return text[:_LONGEST_REASON]

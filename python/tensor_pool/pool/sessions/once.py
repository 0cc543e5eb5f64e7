"""A result that one thread waits for and another one gives, once."""

from __future__ import annotations

import threading
import time
from typing import Final, Generic, TypeVar

from tensor_pool.errors import ClosedError
from tensor_pool.pool.program_end import program_end

__all__ = ["Once"]

ValueT = TypeVar("ValueT")

_SLICE_S: Final = 0.1


class Once(Generic[ValueT]):
    """A value or an error that comes later.

    Example:
        >>> answer: Once[int] = Once()
        >>> answer.give(42)
        >>> answer.wait(timeout_s=1.0)
        42
    """

    __slots__ = ("_done", "_error", "_lock", "_value")

    def __init__(self) -> None:
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._value: ValueT | None = None
        self._error: BaseException | None = None

    @property
    def is_given(self) -> bool:
        """Whether it is there."""
        return self._done.is_set()

    def give(self, value: ValueT) -> None:
        """Gives the value; only the first value or error counts."""
        with self._lock:
            if not self._done.is_set():
                self._value = value
                self._done.set()

    def fail(self, error: BaseException) -> None:
        """Gives an error, which `wait` raises."""
        with self._lock:
            if not self._done.is_set():
                self._error = error
                self._done.set()

    def wait(self, timeout_s: float) -> ValueT | None:
        """The value, or None when it did not come in time. Lets Ctrl-C in.

        Raises:
            BaseException: What was given instead of a value.
        """
        deadline = time.monotonic() + timeout_s
        while not self._done.wait(min(_SLICE_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return None
        if self._error is not None:
            if isinstance(self._error, ClosedError):
                program_end.end_thread()
            raise self._error
        return self._value

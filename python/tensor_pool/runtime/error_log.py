"""A log of distinct errors: the thousandth occurrence raises a count, it does not write a thousandth line.

Two errors are the same when their type, the line that raised them and their message agree, numbers in the
message aside: "slot 17 is torn" and "slot 18 is torn" are one entry.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import TensorPoolError, raised_at

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ErrorEntry", "ErrorLog"]

_LONGEST_MESSAGE: Final = 1024  # characters kept of a message
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class ErrorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct error; times are `CLOCK_REALTIME` in nanoseconds."""

    kind: str
    message: str
    where: str
    count: int
    first_ns: int
    last_ns: int


class ErrorLog:
    """Keeps distinct errors with how often, when first and when last; bounded; safe to share between threads.

    Args:
        capacity: Distinct errors to keep; later ones only count as `overflow`.
        logger: Where the first occurrence of each is written; this module's own by default.

    Example:
        >>> log = ErrorLog(logger=logging.getLogger("tensor_pool.example"))
        >>> for slot in range(3):
        ...     _ = log.record(ValueError(f"slot {slot} is torn"), now_ns=slot)
        >>> [(entry.kind, entry.message, entry.count) for entry in log]
        [('ValueError', 'slot 0 is torn', 3)]
    """

    def __init__(self, *, capacity: int = 256, logger: logging.Logger | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"an error log keeps at least one error, not {capacity}")
        self._capacity = capacity
        self._logger = logger if logger is not None else logging.getLogger(__name__)
        self._entries: dict[tuple[str, str, str], ErrorEntry] = {}
        self._lock = threading.Lock()
        self.overflow = 0
        """Occurrences that found no room."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ErrorEntry]:
        """The entries as they are now, in the order in which they first occurred."""
        with self._lock:
            return iter(list(self._entries.values()))

    @property
    def total(self) -> int:
        """All occurrences together."""
        with self._lock:
            return self.overflow + sum(entry.count for entry in self._entries.values())

    def record(self, error: BaseException, now_ns: int) -> bool:
        """Note an error; the members of an exception group are noted one by one.

        Args:
            error: What was raised.
            now_ns: The real time, in nanoseconds.

        Returns:
            Whether it is new; a new one was also written to the logger, once.
        """
        if isinstance(error, BaseExceptionGroup):
            news = [self.record(member, now_ns) for member in error.exceptions]
            return any(news)
        kind, where = _name(type(error)), raised_at(error)
        # A TensorPoolError's text has its hint on further lines; the entry keeps what happened.
        message = (error.message if isinstance(error, TensorPoolError) else str(error))[:_LONGEST_MESSAGE]
        identity = (kind, where, _NUMBERS.sub("#", message))
        with self._lock:
            known = self._entries.get(identity)
            if known is not None:
                self._entries[identity] = msgspec.structs.replace(
                    known, count=known.count + 1, last_ns=now_ns
                )
                return False
            is_kept = len(self._entries) < self._capacity
            if is_kept:
                self._entries[identity] = ErrorEntry(
                    kind=kind, message=message, where=where, count=1, first_ns=now_ns, last_ns=now_ns
                )
            else:
                self.overflow += 1
                if self.overflow > 1:
                    return False
        self._write(error, kind, message, where, is_kept=is_kept)
        return is_kept

    def _write(self, error: BaseException, kind: str, message: str, where: str, *, is_kept: bool) -> None:
        if not is_kept:
            self._logger.error("%d distinct errors are kept, further ones are only counted", self._capacity)
        # Errors of ours explain themselves; anything else is a bug and needs its traceback.
        explains_itself = isinstance(error, TensorPoolError)
        self._logger.error("%s: %s (%s)", kind, message, where, exc_info=None if explains_itself else error)


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

"""Log lines that others can cause, and so repeat as often as they like: the first, and then a count.

A consumer says why it can't use what was announced. Whoever announces nonsense a thousand times a second must
not fill the disk of everybody who listens.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RepeatFilter", "limit_repeats"]

_PERIOD_S: Final = 10.0
_MOST_KINDS: Final = 32
_NUMBERS: Final = re.compile(r"\d+")


def limit_repeats(logger: logging.Logger) -> logging.Logger:
    """Lets a logger write each kind of warning once in ten seconds at most; may be called again.

    Example:
        >>> logger = limit_repeats(logging.getLogger("tensor_pool.example"))
        >>> any(isinstance(each, RepeatFilter) for each in logger.filters)
        True
    """
    if not any(isinstance(each, RepeatFilter) for each in logger.filters):
        logger.addFilter(RepeatFilter())
    return logger


class RepeatFilter(logging.Filter):
    """Lets through one warning of a kind in a while, and then says how many of its kind were left out.

    Lines are of one kind when they differ in numbers only. Of many kinds in a short time, those that come
    last are one kind for each place in the code: texts may hold what a stranger sent.

    Args:
        period_s: How long a while is.
        most_kinds: Kinds that are told apart in that time.
        clock: The time in seconds.

    Example:
        >>> seconds = iter([0.0, 1.0, 2.0, 11.0])
        >>> lines = RepeatFilter(clock=lambda: next(seconds))
        >>> torn = {"levelno": logging.WARNING, "msg": "slot %d is torn"}
        >>> records = [logging.makeLogRecord({**torn, "args": (n,)}) for n in range(4)]
        >>> [lines.filter(record) for record in records]
        [True, False, False, True]
        >>> records[-1].getMessage()
        'slot 3 is torn (2 more like this since)'
    """

    def __init__(
        self,
        *,
        period_s: float = _PERIOD_S,
        most_kinds: int = _MOST_KINDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._period_s = period_s
        self._most_kinds = most_kinds
        self._clock = clock
        self._written_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; a line that is may tell of others that were not."""
        if record.levelno < logging.WARNING:
            return True  # for who asked to hear everything
        now_s = self._clock()
        with self._lock:
            kind = self._kind(record, now_s)
            if now_s - self._written_s.get(kind, -self._period_s) < self._period_s:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return False
            self._written_s[kind] = now_s
            left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like this since)", None
        return True

    def _kind(self, record: logging.LogRecord, now_s: float) -> str:
        kind = _NUMBERS.sub("#", record.getMessage())
        if kind in self._written_s or len(self._written_s) < self._most_kinds:
            return kind
        for old, written_s in list(self._written_s.items()):
            if now_s - written_s >= self._period_s:
                del self._written_s[old]
                self._left_out.pop(old, None)
        return kind if len(self._written_s) < self._most_kinds else str(record.msg)

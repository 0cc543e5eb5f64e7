"""SIGINT and SIGTERM as a reason to end in good order, for processes that serve."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

__all__ = ["StopSignals", "until_stopped", "unwound_by_sigterm"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals(Closing):
    """Takes the stop signals over while it is open; only in a program's main thread.

    Example:
        >>> import os, signal
        >>> with StopSignals() as stop:
        ...     os.kill(os.getpid(), signal.SIGTERM)
        ...     stop.wait(timeout_s=5.0)
        True
    """

    def __init__(self) -> None:
        self._signalled, self._wake_up = os.pipe()
        os.set_blocking(self._wake_up, False)
        self._before = {number: signal.signal(number, _note) for number in _SIGNALS}
        self._wake_up_before = signal.set_wakeup_fd(self._wake_up)
        self._closed = False

    def wait(self, timeout_s: float | None = None, *, end_of: TextIO | None = None) -> bool:
        """Sleeps in the kernel until a stop signal came; false when `timeout_s` passed without one.

        Args:
            timeout_s: How long; None for ever.
            end_of: A stream whose end counts as well, such as the standard input.
        """
        readable: list[Any] = [self._signalled, *([] if end_of is None else [end_of])]
        return bool(select.select(readable, [], [], timeout_s)[0])

    def received(self) -> int | None:
        """The stop signal that came first and was not asked for yet, or None."""
        return os.read(self._signalled, 1)[0] if self.wait(timeout_s=0) else None

    def close(self) -> None:
        """Gives the signals back; may be called again."""
        if self._closed:
            return
        self._closed = True
        signal.set_wakeup_fd(self._wake_up_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._signalled)
        os.close(self._wake_up)


@contextlib.contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Has SIGTERM end the program like Ctrl-C does, so that what was opened is closed; in its main thread.

    Example:
        >>> import os, signal
        >>> try:
        ...     with unwound_by_sigterm():
        ...         os.kill(os.getpid(), signal.SIGTERM)
        ... except SystemExit as e:
        ...     e.code
        143
    """
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """Runs what has no end of its own until SIGINT or SIGTERM, and goes on behind it; in the main thread.

    SIGINT counts also where it was ignored, as in what a script starts with ``&``.

    Example:
        >>> import os, signal
        >>> with until_stopped():
        ...     os.kill(os.getpid(), signal.SIGTERM)
        ...     print("never printed")
    """
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    with contextlib.suppress(KeyboardInterrupt):
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(_signum: int, _frame: object) -> None:
    """As Ctrl-C does where nobody changed that."""
    raise KeyboardInterrupt


def _exit(signum: int, _frame: object) -> None:
    """As shells say that a signal ended a program."""
    raise SystemExit(128 + signum)


def _note(signum: int, frame: object) -> None:
    """Only there so that Python writes to the pipe instead of raising or dying."""

"""A stream that has no producer: said once, and known for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Absence"]

_NOTICED_S: Final = 1.0
"""So much time without a frame is a reason to ask for the producer, and to ask again."""


class Absence:
    """Watches whether somebody produces a stream; asks only while no frames come.

    Args:
        is_produced: Asks.
        label: What to call the stream.
        patience_s: How long to wait for a producer; None for ever.

    Example:
        >>> import contextlib, sys
        >>> absence = Absence(lambda: False, "depth", patience_s=10.0)
        >>> with contextlib.redirect_stderr(sys.stdout):
        ...     [absence.is_too_long(now_s) for now_s in (0.0, 1.5, 9.0, 12.0)]
        depth has no producer now; waiting for one
        [False, False, False, True]
    """

    def __init__(self, is_produced: Callable[[], bool], label: str, *, patience_s: float | None) -> None:
        self._is_produced = is_produced
        self._label = label
        self._patience_s = patience_s
        self._ask_at_s: float | None = None
        self._since_s: float | None = None
        self.is_over = False
        """Whether patience has ended."""

    @property
    def is_said(self) -> bool:
        """Whether it was said that there is no producer, and none has come since."""
        return self._since_s is not None

    def frame_came(self, now_s: float) -> None:
        """So somebody produces the stream."""
        self._since_s, self._ask_at_s = None, now_s + _NOTICED_S

    def is_too_long(self, now_s: float) -> bool:
        """Whether there is nothing to wait for any more; says once that a producer is missing."""
        if self._ask_at_s is None:
            self._ask_at_s = now_s + _NOTICED_S
        if now_s < self._ask_at_s:
            return False
        self._ask_at_s = now_s + _NOTICED_S
        if self._is_produced():
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
            click.echo(f"{self._label} has no producer now; waiting for one", err=True)
        if self._since_s is not None and self._patience_s is not None:
            self.is_over = now_s - self._since_s >= self._patience_s
        return self.is_over

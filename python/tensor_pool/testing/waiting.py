"""Waiting for a condition instead of sleeping and hoping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["wait_until"]

ResultT = TypeVar("ResultT")

_PAUSE_S: Final = 0.005


def wait_until(condition: Callable[[], ResultT], timeout_s: float = 10.0, *, what: str = "") -> ResultT:
    """Waits until `condition` gives something true, and returns that.

    Args:
        condition: Called every few milliseconds.
        timeout_s: How long to wait at most.
        what: What is waited for, for the error message.

    Raises:
        AssertionError: It did not in time; says what the condition gave last.

    Example:
        >>> answers = iter([0, 0, 42])
        >>> wait_until(lambda: next(answers))
        42
    """
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{name} did not come true within {timeout_s} s; it was {result!r}")
        time.sleep(_PAUSE_S)
    return result

"""How an offer ends, and what to do when subscribers do not keep up.

A message that nobody takes is not an exception: producers never wait for consumers. So an offer gives a typed
result, and only a policy that says so raises.

Example:
    >>> if OfferResult.BACK_PRESSURED:
    ...     print("sent")
    ... else:
    ...     print("not sent")
    not sent
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tensor_pool.errors import BackPressureError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DROP", "RAISE", "BackPressurePolicy", "OfferCounts", "OfferResult", "retry_for"]

_FIRST_PAUSE_S: Final = 50e-6
_LONGEST_PAUSE_S: Final = 1e-3


class OfferResult(enum.Enum):
    """How an offer ended; true when the message was sent."""

    SENT = "sent"
    NOT_CONNECTED = "not_connected"
    """Nobody subscribes. Never retried: there may be nobody for hours."""
    BACK_PRESSURED = "back_pressured"
    """Subscribers do not keep up."""
    ADMIN_ACTION = "admin_action"
    """The log was being rotated, again and again; as good as back-pressure."""
    MAX_POSITION = "max_position"
    """The stream is at its end (exabytes were sent); only a new publication helps."""

    def __bool__(self) -> bool:
        return self is OfferResult.SENT


RESULT_BY_CODE: Final = {
    -1: OfferResult.NOT_CONNECTED,
    -2: OfferResult.BACK_PRESSURED,
    -3: OfferResult.ADMIN_ACTION,
    -5: OfferResult.MAX_POSITION,
}
"""Results by the negative numbers that stand for them below Python; any other number is a position."""

_RETRIED: Final = frozenset({OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION})


@dataclass(frozen=True, slots=True)
class BackPressurePolicy:
    """What a publication does when subscribers do not keep up.

    Args:
        retry_ms: Try again for this long first.
        then: ``drop`` gives the result back and counts; ``raise`` raises `BackPressureError`.

    Example:
        >>> BackPressurePolicy(retry_ms=20, then="raise")
        BackPressurePolicy(retry_ms=20, then='raise')
    """

    retry_ms: float = 0.0
    then: Literal["drop", "raise"] = "drop"


DROP: Final = BackPressurePolicy()
"""Give up at once and say so in the result."""

RAISE: Final = BackPressurePolicy(then="raise")
"""Raise `BackPressureError` at once."""


def retry_for(ms: float, *, then: Literal["drop", "raise"] = "drop") -> BackPressurePolicy:
    """Try for this many milliseconds, then give up.

    Example:
        >>> retry_for(5).then
        'drop'
    """
    return BackPressurePolicy(ms, then)


class OfferCounts(NamedTuple):
    """How the offers of a publication ended so far."""

    sent: int = 0
    sent_bytes: int = 0
    not_connected: int = 0
    """Attempts that found nobody subscribing."""
    back_pressured: int = 0
    """Attempts that found subscribers not keeping up; one message may make many."""
    admin_actions: int = 0
    """Rotations of the log that were met; tried again at once."""
    failed: int = 0
    """Attempts that ended in an error, such as a message that is too long."""
    dropped: int = 0
    """Messages that were given up because of back-pressure."""
    raised: int = 0
    """Messages for which `BackPressureError` was raised."""


class Refusals:
    """Carries out one publication's policy and counts what it gave up."""

    __slots__ = ("dropped", "policy", "raised")

    def __init__(self, policy: BackPressurePolicy) -> None:
        self.policy = policy
        self.dropped = 0
        self.raised = 0

    def handle(self, code: int, attempt: Callable[[], int], where: str) -> OfferResult:
        """Decides what becomes of a message that was refused with `code`; `attempt` offers it again."""
        result = RESULT_BY_CODE[code]
        if result not in _RETRIED:
            return result
        if self.policy.retry_ms > 0:
            result = self._retry(result, attempt)
            if result not in _RETRIED:
                return result
        if self.policy.then == "raise":
            self.raised += 1
            raise BackPressureError(
                f"subscribers of {where} do not keep up",
                hint="offer less, poll more often, or choose a longer term-length or another policy",
            )
        self.dropped += 1
        return result

    def _retry(self, result: OfferResult, attempt: Callable[[], int]) -> OfferResult:
        # time.sleep lets other threads and Ctrl-C in.
        pause = _FIRST_PAUSE_S
        deadline = time.monotonic() + self.policy.retry_ms / 1e3
        while result in _RETRIED and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            code = attempt()
            result = OfferResult.SENT if code >= 0 else RESULT_BY_CODE[code]
        return result

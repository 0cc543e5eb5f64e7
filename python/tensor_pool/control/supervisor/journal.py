"""What was decided and noticed, and why: bounded, and told to whoever wants to hear it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Entry", "Journal", "Kind", "Outcome"]

_LOG: Final = logging.getLogger(__name__)

Kind = Literal["moved", "stale", "stuck", "returned", "dead", "live", "dry_run"]
Outcome = Literal["told", "dry_run", "not_authority", "noted"]
"""Whether the consumer was told, why not, or that there was nothing to tell."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One decision or one thing that was noticed."""

    number: int
    """Grows by one with each entry."""
    at_ns: int
    """Nanoseconds since 1970."""
    kind: Kind
    stream_id: int | None = None
    consumer_id: int | None = None
    """None for what is about the producer."""
    seen: str = ""
    """What was seen."""
    before: str = ""
    """The remedy so far."""
    after: str = ""
    """What was decided."""
    outcome: Outcome = "noted"

    @property
    def is_decision(self) -> bool:
        """Whether it is about what a consumer shall do."""
        return self.kind == "moved"


class Journal:
    """The last decisions, and the last other entries; so that a flood of the one hides nothing of the other.

    Args:
        length: How many of each are kept.

    Example:
        >>> journal = Journal(length=100)
        >>> entry = journal.add("moved", at_ns=5, stream_id=10000, consumer_id=7, seen="lag 600",
        ...                     before="none", after="rate_limited", outcome="told")
        >>> [entry.after for entry in journal.entries()]
        ['rate_limited']
    """

    def __init__(self, length: int) -> None:
        self.on_decision: Callable[[Entry], object] = lambda _: None
        """Called with each entry as it is made, on the supervisor's thread."""
        self._lock = threading.Lock()
        self._decisions: deque[Entry] = deque(maxlen=length)
        self._notes: deque[Entry] = deque(maxlen=length)
        self._next_number = 1
        self.decisions = 0
        """How many there were, also those that are no longer kept."""

    def add(
        self,
        kind: Kind,
        *,
        at_ns: int,
        stream_id: int | None = None,
        consumer_id: int | None = None,
        seen: str = "",
        before: str = "",
        after: str = "",
        outcome: Outcome = "noted",
    ) -> Entry:
        """Notes and logs it."""
        entry = Entry(
            number=self._next_number,
            at_ns=at_ns,
            kind=kind,
            stream_id=stream_id,
            consumer_id=consumer_id,
            seen=seen,
            before=before,
            after=after,
            outcome=outcome,
        )
        self._next_number += 1
        self.decisions += entry.is_decision
        with self._lock:
            (self._decisions if entry.is_decision else self._notes).append(entry)
        _LOG.log(logging.WARNING if entry.is_decision else logging.INFO, "%s", _sentence(entry))
        self.on_decision(entry)
        return entry

    def entries(self, *, after: int = 0) -> list[Entry]:
        """What is remembered, oldest first, with a higher number than `after`; may be asked by any thread."""
        with self._lock:
            kept = [*self._decisions, *self._notes]
        return sorted((entry for entry in kept if entry.number > after), key=lambda entry: entry.number)


def _sentence(entry: Entry) -> str:
    who = f"consumer {entry.consumer_id} of stream" if entry.consumer_id is not None else "stream"
    move = f" from {entry.before} to {entry.after}, {entry.outcome}" if entry.is_decision else ""
    return f"{who} {entry.stream_id}: {entry.kind}{move} ({entry.seen})"

"""What a supervisor knows at one moment, for people and programs."""

from __future__ import annotations

import msgspec

__all__ = ["ConsumerHealth", "StreamHealth", "SupervisorView"]


class StreamHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A stream and its producer."""

    stream_id: int
    name: str
    epoch: int
    producer_id: int
    state: str
    """``live``, ``waiting`` (for a first report of its producer) or ``dead`` (needs a new epoch)."""
    why: str = ""
    """Why it is dead."""
    slots: int
    current_seq: int | None = None
    rate_hz: float | None = None
    consumers: int = 0
    meta_version: int | None = None
    """Version of the metadata that was heard last."""
    attributes: tuple[str, ...] = ()
    """Names of its metadata."""
    silent_s: float | None = None
    """How long its producer has said nothing; None before the first report."""


class ConsumerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer."""

    stream_id: int
    consumer_id: int
    condition: str
    """``healthy``, ``fair``, ``slow``, ``stuck``, ``stale`` or ``unknown``."""
    remedy: str
    """What was decided for it; in a dry run, what would have been."""
    mode: str
    """What it says it does."""
    lag: int | None = None
    drops_per_s: float | None = None
    drops_gap: int = 0
    drops_late: int = 0
    rate_hz: float | None = None
    """Sequence numbers it gets past in a second: that of its producer, unless it falls behind."""
    condition_s: float = 0.0
    """How long it has been so."""
    patience: int = 1
    silent_s: float = 0.0


class SupervisorView(msgspec.Struct, frozen=True, kw_only=True):
    """All streams and consumers.

    Example:
        >>> SupervisorView(at_ns=0, dry_run=False, is_authority=True).consumers
        ()
    """

    at_ns: int
    """Nanoseconds since 1970."""
    dry_run: bool
    is_authority: bool
    streams: tuple[StreamHealth, ...] = ()
    consumers: tuple[ConsumerHealth, ...] = ()
    refused: dict[str, int] = {}
    """Messages that were not taken, by reason."""

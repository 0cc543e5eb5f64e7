"""What `MappingState` can decide, and why it may decide to do nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tensor_pool import _native

__all__ = [
    "Follow",
    "Ignore",
    "IgnoreReason",
    "Map",
    "MappingAction",
    "MappingPhase",
    "Refresh",
    "Remap",
    "Unmap",
]


class MappingPhase(enum.Enum):
    """Where a consumer's data comes from [WIRE-15.12-1]."""

    UNMAPPED = enum.auto()
    """From nowhere: it waits for an announce."""
    MAPPED = enum.auto()
    """From the rings of one epoch."""
    FALLBACK = enum.auto()
    """Not from shared memory, but from where the fallback URI says."""


class IgnoreReason(enum.StrEnum):
    """Why an announce changed nothing."""

    OTHER_STREAM = "other stream"
    OTHER_DRIVER = "of another driver"
    """Sent by somebody else than who announced the lease (decision D16)."""
    STALE = "stale"
    """Stamped longer ago than the freshness window."""
    FUTURE = "stamped in the future"
    BEFORE_JOIN = "stamped before joining"
    """A lingering log replays what was said before this subscription existed."""
    LOWER_EPOCH = "lower epoch"
    SPENT_EPOCH = "epoch given up"
    """Two writers were seen in it; only a later one can be trusted [WIRE-15.14-4]."""
    NO_EPOCH = "not an epoch"
    """2^64-1: the number that stands for nothing, and that no later epoch could exceed [WIRE-7.1-9]."""
    BAD_LAYOUT = "bad layout"
    REFUSED_REGION = "refused region"
    """What it announces can't be opened, or is not what it says."""
    REJECTED_BEFORE = "rejected a moment ago"
    SHM_NOT_ALLOWED = "shared memory not allowed"
    NOTHING_MAPPED = "nothing mapped"
    """It is about a ring, and none is mapped."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing."""

    reason: IgnoreReason


@dataclass(frozen=True, slots=True)
class Refresh:
    """Keep the mapping; its files are due for a check (`RingReader.check_files`) [WIRE-15.1-8]."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Take frames of the announced epoch from the fallback: shared memory is not allowed."""


@dataclass(frozen=True, slots=True)
class Map:
    """Open this ring, then report to `MappingState.on_mapped` or `MappingState.on_map_failed`."""

    address: _native.RingAddress


@dataclass(frozen=True, slots=True)
class Remap:
    """Open this ring and, if that works, let go of the one in use with all frames in flight.

    In this order: a ring that is refused must not cost the one that is good. Report as after `Map`.
    """

    address: _native.RingAddress


@dataclass(frozen=True, slots=True)
class Unmap:
    """Let go of the ring and of all frames in flight; the next good announce maps again."""

    reason: str


MappingAction: TypeAlias = Ignore | Follow | Refresh | Map | Remap | Unmap

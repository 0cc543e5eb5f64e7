"""From announces to the ring that is mapped."""

from __future__ import annotations

from tensor_pool.pool.mapping.actions import (
    Follow,
    Ignore,
    IgnoreReason,
    Map,
    MappingAction,
    MappingPhase,
    Refresh,
    Remap,
    Unmap,
)
from tensor_pool.pool.mapping.announced import announce_ring, payload_pools, ring_address, untimely
from tensor_pool.pool.mapping.state import MappingState

__all__ = [
    "Follow",
    "Ignore",
    "IgnoreReason",
    "Map",
    "MappingAction",
    "MappingPhase",
    "MappingState",
    "Refresh",
    "Remap",
    "Unmap",
    "announce_ring",
    "payload_pools",
    "ring_address",
    "untimely",
]

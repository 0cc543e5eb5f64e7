"""The slots of a header ring seen from outside: which are committed, which are being written, which are free.

A look from outside has no lock and no fence: what it shows of a live ring is how it was a moment ago.
"""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.ops.shm.regions import open_region
from tensor_pool.wire.shm import SLOT_BYTES, SUPERBLOCK_BYTES, decode_slot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.ops.shm.regions import Region

__all__ = ["LEGEND", "RingView", "SlotState", "read_slots", "view_ring"]

_CHUNK_SLOTS: Final = 4096
MOST_SLOTS: Final = 1 << 20
"""Slots that are looked at; a ring that claims more is shown up to there."""


class SlotState(enum.Enum):
    """What a slot is; the value is its character in the strip."""

    NEWEST = "N"
    COMMITTED = "="
    IN_PROGRESS = "w"
    EMPTY = "."
    DAMAGED = "?"


LEGEND: Final = "N newest, = committed, w being written or given up, . never used, ? can't be read"
# One character may stand for several slots; the state that people look for wins.
_URGENCY: Final = (
    SlotState.NEWEST,
    SlotState.DAMAGED,
    SlotState.IN_PROGRESS,
    SlotState.COMMITTED,
    SlotState.EMPTY,
)


class RingView(msgspec.Struct, frozen=True, kw_only=True):
    """A ring's slots, counted."""

    slots: int
    looked_at: int
    committed: int
    in_progress: int
    empty: int
    damaged: int
    oldest_seq: int | None
    newest_seq: int | None
    strip: str


def read_slots(region: Region) -> Iterator[bytes]:
    """The slots of a header ring, in their order, each as its 256 bytes; ends where the file ends.

    Raises:
        RegionError: The file has no superblock or can't be read.
    """
    if region.superblock is None:
        raise RegionError(f"{region.path}: {region.flaw or 'has no superblock'}")
    wanted = min(region.superblock.nslots, MOST_SLOTS)
    try:
        descriptor = open_region(Path(region.path))
    except OSError as e:
        raise RegionError(f"{region.path} can't be opened: {e.strerror}") from None
    try:
        for first in range(0, wanted, _CHUNK_SLOTS):
            count = min(_CHUNK_SLOTS, wanted - first)
            data = os.pread(descriptor, count * SLOT_BYTES, SUPERBLOCK_BYTES + first * SLOT_BYTES)
            for at in range(0, len(data) - SLOT_BYTES + 1, SLOT_BYTES):
                yield data[at : at + SLOT_BYTES]
            if len(data) < count * SLOT_BYTES:
                return
    finally:
        os.close(descriptor)


def view_ring(region: Region, *, width: int = 64) -> RingView:
    """Counts the slots of a header ring and draws them.

    Args:
        region: The header ring.
        width: The longest strip; a character of a longer ring stands for several slots.

    Raises:
        RegionError: The file has no superblock or can't be read.
    """
    states: list[SlotState] = []
    oldest: int | None = None
    newest: int | None = None
    newest_at = 0
    for data in read_slots(region):
        seq_commit = int.from_bytes(data[:8], "little")
        state = _state(seq_commit, data)
        if state is SlotState.COMMITTED:
            seq = seq_commit >> 1
            oldest = seq if oldest is None else min(oldest, seq)
            if newest is None or seq > newest:
                newest, newest_at = seq, len(states)
        states.append(state)
    counts = {state: states.count(state) for state in SlotState}
    if newest is not None:
        states[newest_at] = SlotState.NEWEST
    return RingView(
        slots=region.superblock.nslots if region.superblock else 0,
        looked_at=len(states),
        committed=counts[SlotState.COMMITTED],
        in_progress=counts[SlotState.IN_PROGRESS],
        empty=counts[SlotState.EMPTY],
        damaged=counts[SlotState.DAMAGED],
        oldest_seq=oldest,
        newest_seq=newest,
        strip=draw(states, width),
    )


def _state(seq_commit: int, data: bytes) -> SlotState:
    if seq_commit == 0:
        return SlotState.EMPTY
    if not seq_commit & 1:
        return SlotState.IN_PROGRESS
    try:
        slot = decode_slot(data)
    except MalformedMessageError:
        return SlotState.DAMAGED
    return SlotState.DAMAGED if slot.tensor_header is None else SlotState.COMMITTED


def draw(states: list[SlotState], width: int) -> str:
    """The strip: one character a slot, or for as many as needed to fit.

    Example:
        >>> draw([SlotState.COMMITTED, SlotState.NEWEST, SlotState.EMPTY, SlotState.EMPTY], width=2)
        'N.'
    """
    share = max(1, -(-len(states) // max(1, width)))
    groups = (states[at : at + share] for at in range(0, len(states), share))
    return "".join(min(group, key=_URGENCY.index).value for group in groups)

"""Looks at the slots of a ring where they lie, without any of the library's readers."""

from __future__ import annotations

from pathlib import Path

from tensor_pool import _native
from tensor_pool.wire.shm import SLOT_BYTES, SUPERBLOCK_BYTES, Slot, SlotHeader, decode_slot


def header_file(address: _native.RingAddress) -> Path:
    return Path(_native.parse_region_uri(address.header_uri)[0])


def pool_file(address: _native.RingAddress, place: int = 0) -> Path:
    return Path(_native.parse_region_uri(address.pools[place][2])[0])


def slot_of(address: _native.RingAddress, seq: int) -> Slot:
    """The slot in which a frame lies, as it is now."""
    with header_file(address).open("rb") as file:
        file.seek(SUPERBLOCK_BYTES + (seq & (address.nslots - 1)) * SLOT_BYTES)
        return decode_slot(file.read(SLOT_BYTES))


def slot_header_of(address: _native.RingAddress, seq: int) -> SlotHeader:
    return slot_of(address, seq).header


def is_committed(address: _native.RingAddress, seq: int) -> bool:
    """Whether its slot holds that very frame, whole."""
    return slot_header_of(address, seq).seq_commit == 2 * seq + 1


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Damages a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)

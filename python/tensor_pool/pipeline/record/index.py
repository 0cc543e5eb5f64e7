"""The index beside an open segment: which rows are whole and synced, and where their bytes lie.

An entry is written after its row is in the file, and counts once it is synced: what it names is
*acknowledged* and survives a crash. Entries have a checksum of their own, so that a torn one at the end is
recognised.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tensor_pool import _native

__all__ = ["ENTRY_BYTES", "IndexEntry", "read_entries"]

_BODY: Final = struct.Struct("<QQQQQQIIQ")
_CRC: Final = struct.Struct("<I")
ENTRY_BYTES: Final = 72


class IndexEntry(NamedTuple):
    """Where one row is.

    Example:
        >>> entry = IndexEntry(8, 1024, 900, 7, 40, 123, 64, 0xCAFE, 1)
        >>> read_entries(entry.encode() + entry.encode()[:50]) == [entry]
        True
    """

    start: int
    """Where its message begins in the segment."""
    end: int
    values_start: int
    epoch: int
    seq: int
    timestamp_ns: int
    values_bytes: int
    crc32c: int
    frames: int
    """How many it stands for; above 1 only for gaps, 0 for metadata."""

    def encode(self) -> bytes:
        """Its bytes in the index."""
        body = _BODY.pack(*self)
        return (body + _CRC.pack(_native.crc32c(body))).ljust(ENTRY_BYTES, b"\0")


def read_entries(data: bytes) -> list[IndexEntry]:
    """The entries up to the first one that is not whole."""
    entries = []
    for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        body = data[at : at + _BODY.size]
        (crc,) = _CRC.unpack_from(data, at + _BODY.size)
        if crc != _native.crc32c(body):
            break
        entries.append(IndexEntry(*_BODY.unpack(body)))
    return entries

"""How many payload bytes the chunks of a frame carry, and how large a frame can be (decisions R2 and R3)."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tensor_pool.errors import ConfigError

__all__ = [
    "CHUNK_RESERVE",
    "DEFAULT_MTU",
    "MOST_CHUNKS",
    "MOST_PAYLOAD_BYTES",
    "Dialect",
    "SliceSizes",
    "slice_sizes",
]

Dialect = Literal["ours", "newer"]
"""Form of the chunk message: block length 41 or 53 (decision B10)."""

DEFAULT_MTU: Final = 1408
"""Aeron's own for UDP, where neither the channel nor the configuration names one."""
CHUNK_RESERVE: Final = 128
"""What every chunk leaves free of the MTU, at least [BRG-5.2-14]."""
MOST_CHUNKS: Final = 65_535
"""Chunks of one frame [BRG-5.2-2]."""
MOST_PAYLOAD_BYTES: Final = 1 << 30
"""Payload of one frame, as the schema limits it [BRG-11-3]."""

_AERON_HEADER: Final = 32
_FRAME_ALIGNMENT: Final = 32
_SBE_HEADER: Final = 8
_BLOCK: Final[dict[Dialect, int]] = {"ours": 41, "newer": 53}
_LENGTH_PREFIXES: Final = 2 * 4  # of the header bytes and of the payload bytes
_SLOT_HEADER: Final = 256  # only chunk 0 carries it


class SliceSizes(NamedTuple):
    """Payload bytes of chunk 0 and of each later chunk.

    Example:
        >>> SliceSizes(1063, 1280).most_payload_bytes
        83884583
    """

    first: int
    later: int

    @property
    def most_payload_bytes(self) -> int:
        """The largest payload that the permitted number of chunks carries."""
        return min(MOST_PAYLOAD_BYTES, self.first + (MOST_CHUNKS - 1) * self.later)


def slice_sizes(
    mtu_bytes: int, *, chunk_bytes: int = 0, max_chunk_bytes: int = MOST_CHUNKS, dialect: Dialect = "ours"
) -> SliceSizes:
    """The sizes with which every chunk fits into one datagram, chunk 0 with its slot header included.

    Args:
        mtu_bytes: The channel's MTU.
        chunk_bytes: The configured size; 0: as large as the MTU allows.
        max_chunk_bytes: The hard cap.
        dialect: The form of the chunk message; the newer one has a longer block.

    Raises:
        ConfigError: The MTU is too small for chunk 0.

    Example:
        >>> slice_sizes(1408), slice_sizes(1408, chunk_bytes=1000)
        (SliceSizes(first=1063, later=1280), SliceSizes(first=1000, later=1000))
    """
    around_first = _AERON_HEADER + _SBE_HEADER + _BLOCK[dialect] + _LENGTH_PREFIXES + _SLOT_HEADER
    if mtu_bytes <= around_first:
        least = (around_first // _FRAME_ALIGNMENT + 1) * _FRAME_ALIGNMENT
        raise ConfigError(
            f"an MTU of {mtu_bytes} bytes is too small: chunk 0 needs {around_first} beside its payload",
            hint=f"use an MTU of {least} or more; {DEFAULT_MTU} suits Ethernet",
        )
    later = min(chunk_bytes or mtu_bytes, mtu_bytes - CHUNK_RESERVE, max_chunk_bytes)
    return SliceSizes(min(later, mtu_bytes - around_first), later)

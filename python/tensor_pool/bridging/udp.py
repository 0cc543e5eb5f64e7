"""What the bridge's channels get that they don't say themselves: room for frames, no waiting for the dead."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tensor_pool.channels import Channel

__all__ = ["for_chunks_in", "for_chunks_out", "for_messages_in"]

_MOST_BUFFER: Final = 4 << 20
_WINDOWS_A_BUFFER: Final = 2
"""The kernel counts more than the bytes of a datagram: a window as long as the buffer overflows it."""
_TERM_LENGTH: Final = "8m"
"""A sender may be half a term ahead: with less than two windows it waits for the media driver's naps."""
_LINGER: Final = "200ms"
"""How long a publication that is closed, or given up, is still sent; old frames must not come after that."""
_SETTINGS: Final = Path("/proc/sys/net/core")
_UNTETHERED: Final = {
    "tether": "false",
    "untethered-window-limit-timeout": "100ms",
    "untethered-resting-timeout": "400ms",
}
"""A receiver that was killed would hold the sender back until the media driver notices, ten seconds later; so
it does for a fifth of that time. One that lives and stalls for 0.1 s misses the next half second."""


def for_messages_in(channel: str, *, beside_chunks: bool = False, most: int | None = None) -> str:
    """The channel of a subscription to announces, metadata and the like.

    Streams that share an address share a socket, and Aeron refuses another buffer for it than it has.

    Args:
        channel: As it was configured.
        beside_chunks: Whether chunks come to the same address; others who listen where they don't would be
            refused for the size.
        most: The kernel's limit in bytes; asked for by default.

    Example:
        >>> here = "aeron:udp?endpoint=127.0.0.1:20121"
        >>> for_messages_in(here, beside_chunks=True, most=1 << 20).partition("so-rcvbuf=")[2]
        '1048576'
        >>> "so-rcvbuf" in for_messages_in(here)
        False
    """
    room = {"so-rcvbuf": str(_receive_buffer(most))} if beside_chunks else {}
    return str(Channel.parse(channel).with_defaults(_UNTETHERED | room))


def for_chunks_in(channel: str, *, most: int | None = None) -> str:
    """The channel of a subscription to chunks: with as much room as the kernel gives.

    Args:
        channel: As it was configured.
        most: The kernel's limit in bytes; asked for by default.

    Example:
        >>> for_chunks_in("aeron:udp?endpoint=127.0.0.1:20121", most=1 << 20).partition("so-rcvbuf=")[2]
        '1048576|rcv-wnd=524288'
    """
    buffer = _receive_buffer(most)
    room = {"so-rcvbuf": str(buffer), "rcv-wnd": str(buffer // _WINDOWS_A_BUFFER)}
    return str(Channel.parse(channel).with_defaults(_UNTETHERED | room))


def for_chunks_out(channel: str, *, most: int | None = None) -> str:
    """The channel of a publication of chunks.

    Example:
        >>> for_chunks_out("aeron:udp?endpoint=127.0.0.1:20121", most=1 << 20).partition("|")[2]
        'so-sndbuf=1048576|linger=200ms|term-length=8m'
    """
    buffer = min(_MOST_BUFFER, _limit("wmem_max") if most is None else most)
    room = {"so-sndbuf": str(buffer), "linger": _LINGER, "term-length": _TERM_LENGTH}
    return str(Channel.parse(channel).with_defaults(room))


def _receive_buffer(most: int | None) -> int:
    return min(_MOST_BUFFER, _limit("rmem_max") if most is None else most)


def _limit(name: str) -> int:
    try:
        return int((_SETTINGS / name).read_text("ascii"))
    except (OSError, ValueError):
        return 128 << 10  # what Aeron takes

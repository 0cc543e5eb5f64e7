"""How large a ring a receiver asks for: like the source's, within what this host allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.errors import ConfigError
from tensor_pool.pool.sizing import Geometry

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ring_like"]

_LEAST_SLOTS: Final = 4


def ring_like(nslots: int, strides: Iterable[int], *, max_bytes: int) -> Geometry:
    """The geometry that another host tells of, with fewer slots where it is too large.

    What makes no ring at all stays as it is: the driver says what is wrong with it.

    Args:
        nslots: Slots of the source.
        strides: Slot sizes of its pools; those that are there twice count once.
        max_bytes: What the ring may take; 0 for any size.

    Raises:
        ConfigError: Even four slots take more.

    Example:
        >>> ring_like(1024, [4096, 1 << 20], max_bytes=64 << 20)
        Geometry(nslots=32, strides=(4096, 1048576))
    """
    wanted = Geometry(nslots, tuple(sorted(set(strides))))
    if not max_bytes or wanted.region_bytes <= max_bytes:
        return wanted
    fixed = Geometry(0, wanted.strides).region_bytes
    fitting = (max_bytes - fixed) // (Geometry(1, wanted.strides).region_bytes - fixed)
    if fitting < _LEAST_SLOTS:
        raise ConfigError(
            f"the source has {nslots} slots of {sum(wanted.strides)} bytes, and {_LEAST_SLOTS} of them "
            f"already take {Geometry(_LEAST_SLOTS, wanted.strides).region_bytes} bytes: more than "
            f"bridge.max_ring_bytes {max_bytes}",
            hint="raise bridge.max_ring_bytes, or give the mapping a profile",
        )
    return Geometry(1 << (fitting.bit_length() - 1), wanted.strides)

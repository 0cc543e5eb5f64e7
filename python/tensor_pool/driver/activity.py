"""Says of a ring that it is alive, without writing frames into it (decision L8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from tensor_pool import _native

__all__ = ["ActivityKeeper", "KeeperFactory", "open_keeper"]


class ActivityKeeper(Protocol):
    """Raises the activity time stamps of one ring's superblocks, never backwards."""

    def refresh(self) -> None:
        """Stamps them with the present monotonic time; wakes nobody."""
        ...

    def close(self) -> None:
        """Lets go of the ring; may be called again."""
        ...


KeeperFactory: TypeAlias = Callable[[_native.RingAddress, Sequence[str]], ActivityKeeper]


class _WriterKeeper:
    """A keeper made of a writer that never writes."""

    def __init__(self, address: _native.RingAddress, base_dirs: Sequence[str]) -> None:
        self._writer = _native.RingWriter(address, base_dirs=base_dirs)

    def refresh(self) -> None:
        self._writer.refresh_activity()

    def close(self) -> None:
        self._writer.close()


def open_keeper(address: _native.RingAddress, base_dirs: Sequence[str]) -> ActivityKeeper:
    """The keeper of a ring.

    Raises:
        RegionError: The files are not what the address says.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as base:
        ...     ring = _native.create_ring(base, stream_id=1, epoch=1, nslots=1, pools=[(1, 64)])
        ...     keeper = open_keeper(ring, [base])
        ...     keeper.refresh()
        ...     keeper.close()
    """
    native: Any = getattr(_native, "RingKeeper", None)
    if native is None:
        return _WriterKeeper(address, base_dirs)
    keeper: ActivityKeeper = native(address, base_dirs=base_dirs)
    return keeper

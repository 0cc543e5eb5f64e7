"""How much memory frames that wait for a disk may take."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["backlog_bytes"]

_MIB: Final = 1 << 20
_MIN: Final = 64 * _MIB
_MAX: Final = 2048 * _MIB
_SHARE: Final = 8
_CGROUP: Final = Path("/sys/fs/cgroup")


def backlog_bytes(streams: int, *, available: int | None = None) -> int:
    """What one of so many streams may keep waiting: together an eighth of the memory that is free.

    Disks stall for seconds, also good ones; a stream of a gigabyte a second needs a gigabyte for each.

    Args:
        streams: How many are recorded together.
        available: Bytes that are free; asks the machine by default.

    Example:
        >>> backlog_bytes(2, available=16 << 30) == 1 << 30, backlog_bytes(100, available=1 << 30) == 64 << 20
        (True, True)
    """
    free = _available() if available is None else available
    return min(max(free // _SHARE // streams, _MIN), _MAX)


def _available() -> int:
    return min([_free_on_the_machine(), *_free_in_the_container()])


def _free_on_the_machine() -> int:
    for line in Path("/proc/meminfo").read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return _MIN * _SHARE


def _free_in_the_container() -> list[int]:
    """What a container's limit leaves, where there is one; files in its cache count as used."""
    try:
        limit, used = (
            (_CGROUP / name).read_text("ascii").strip() for name in ("memory.max", "memory.current")
        )
        return [] if limit == "max" else [int(limit) - int(used)]
    except (OSError, ValueError):
        return []

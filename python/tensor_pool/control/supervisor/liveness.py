"""When a stream's memory was last kept alive, as its superblock says."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from tensor_pool import _native
from tensor_pool.errors import TensorPoolError
from tensor_pool.wire.shm import SUPERBLOCK_BYTES, decode_superblock

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read_activity"]


def read_activity(region_uri: str, epoch: int, base_dirs: Sequence[str]) -> int | None:
    """The time stamp of a region; None when it can't be read, or is not of this epoch.

    Only its first 64 bytes are read and nothing is mapped, but like everybody it looks below the base
    directories only, and follows no link.

    Example:
        >>> read_activity("shm:file?path=/nonexistent/header.ring", 5, ["/dev/shm"]) is None
        True
    """
    try:
        path, _ = _native.parse_region_uri(region_uri)
        folder = os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - the rest is about descriptors
        bases = (os.path.realpath(base) for base in base_dirs)
        if not any(os.path.commonpath([base, folder]) == base for base in bases):
            return None
        file = os.path.join(folder, os.path.basename(path))  # noqa: PTH118, PTH119
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            start = os.pread(descriptor, SUPERBLOCK_BYTES, 0) if is_file else b""
        finally:
            os.close(descriptor)
        superblock = decode_superblock(start)
    except (OSError, ValueError, TensorPoolError):
        return None
    return superblock.activity_timestamp_ns if superblock.epoch == epoch else None

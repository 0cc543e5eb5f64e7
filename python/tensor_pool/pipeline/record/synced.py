"""Files that survive a crash of the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

__all__ = ["TEMPORARY", "sync_directory", "sync_file", "write_synced"]

TEMPORARY: Final = ".new"
"""How the name of a file ends that a crash left before it was whole."""


def write_synced(path: Path, content: bytes | pa.Buffer) -> None:
    """Makes or replaces a small file; its bytes survive a crash, its name once the directory is synced.

    Raises:
        OSError: It can't be written; what was there before still is.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk is not to be filled with these
        raise


def sync_file(path: Path) -> None:
    """Makes the bytes of a file survive a crash."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """Makes new names in a directory survive a crash."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

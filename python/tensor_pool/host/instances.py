"""Directories of embedded drivers: each program has its own, and none stays when its program is gone."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensor_pool.driver.files import namespace_directory
from tensor_pool.driver.lock import BaseDirLock
from tensor_pool.errors import RegionError
from tensor_pool.transport import media_driver_status
from tensor_pool.transport.media import temporary_aeron_dir, temporary_dir_pid

if TYPE_CHECKING:
    from tensor_pool.config import ShmSection

__all__ = ["new_instance_id", "remove_dead_instances", "remove_dead_media", "remove_instance"]

_PREFIX: Final = "embedded"
_NAME: Final = re.compile(rf"{_PREFIX}-\d+-[0-9a-f]{{6}}")
_SURELY_DEAD_S: Final = 600.0
"""A media driver that is only stopped, in a container whose processes can't be seen, is back by then."""


def new_instance_id() -> str:
    """A name that no other program uses.

    Example:
        >>> bool(_NAME.fullmatch(new_instance_id()))
        True
    """
    return f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(3)}"


def remove_instance(directory: Path) -> bool:
    """Removes what an embedded driver left, unless it still runs; says whether it is gone."""
    if not directory.is_dir() or directory.is_symlink():
        return True
    try:
        lock = BaseDirLock(directory)
    except (RegionError, OSError):
        return False  # somebody serves it, or it is somebody else's
    shutil.rmtree(directory, ignore_errors=True)
    lock.remove()
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def remove_dead_instances(shm: ShmSection) -> int:
    """Removes what embedded drivers left that were killed; says how many."""
    namespace = namespace_directory(shm)
    removed = 0
    with contextlib.suppress(OSError):
        for entry in list(namespace.parent.iterdir()):
            name = entry.name.removeprefix(f"{namespace.name}-")
            if name != entry.name and _NAME.fullmatch(name):
                removed += remove_instance(entry)
    return removed


def remove_dead_media(*, silent_s: float = _SURELY_DEAD_S) -> int:
    """Removes directories of embedded media drivers that were killed; says how many.

    Args:
        silent_s: How long they must have shown no life.
    """
    removed = 0
    with contextlib.suppress(OSError):
        for directory in Path(temporary_aeron_dir()).parent.iterdir():
            pid = temporary_dir_pid(directory.name)
            if pid is None or Path(f"/proc/{pid}").exists() or not _is_own_directory(directory):
                continue
            status = media_driver_status(directory)
            age_s = None if status is None else status.heartbeat_age_s
            if age_s is not None and age_s >= silent_s:
                shutil.rmtree(directory, ignore_errors=True)
                removed += not directory.exists()
    return removed


def _is_own_directory(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()

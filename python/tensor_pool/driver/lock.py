"""One driver per namespace directory: the second one is told who the first is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.errors import RegionError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BaseDirLock", "is_held"]

_FILE: Final = "driver.lock"


class BaseDirLock(Closing):
    """Holds a directory for this process [DRV-2.1-2].

    The kernel lets go when the process ends, however it does.

    Args:
        directory: What to hold; must exist.
        what: What holders are called.
        hint: What whoever comes second may do.
        file: The name of the file that is locked.

    Raises:
        RegionError: Another one holds it.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as directory, BaseDirLock(pathlib.Path(directory)):
        ...     try:
        ...         BaseDirLock(pathlib.Path(directory))
        ...     except RegionError as error:
        ...         str(os.getpid()) in error.message
        True
    """

    def __init__(
        self,
        directory: Path,
        *,
        what: str = "SHM driver",
        hint: str = "use that one, or stop it; another one needs its own driver.instance_id and aeron.dir",
        file: str = _FILE,
    ) -> None:
        self._what = what
        self._hint = hint
        self._path = directory / file
        while (fd := self._open_locked(directory)) is None:
            pass  # removed between opening and locking it: another must be made
        self._fd: int | None = fd
        with contextlib.suppress(OSError):  # hugetlbfs has no `write`; the lock holds without a name
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        _held.add(self)
        _watch_forks()

    def _open_locked(self, directory: Path) -> int | None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(self._path)):  # noqa: PTH116 - beside fstat
                return fd
        except FileNotFoundError:
            pass
        except OSError as e:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "an unknown process"
            os.close(fd)
            if not isinstance(e, BlockingIOError):
                raise RegionError(
                    f"can't lock {self._path}: {e.strerror}", hint="use a local file system"
                ) from None
            raise RegionError(
                f"another {self._what}, process {holder}, serves {directory}",
                where=str(self._path),
                hint=self._hint,
            ) from None
        os.close(fd)
        return None

    @property
    def held(self) -> bool:
        """Whether it is held."""
        return self._fd is not None

    def close(self) -> None:
        """Lets go; may be called again. The file stays for the next one."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._close_descriptor()

    def remove(self) -> None:
        """Removes the file, and lets go; the directory is about to go too."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        self.close()

    def _close_descriptor(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def is_held(directory: Path, file: str = _FILE) -> bool:
    """Whether some process holds a directory, this one included.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     directory = pathlib.Path(name)
        ...     with BaseDirLock(directory):
        ...         is_held(directory)
        ...     is_held(directory)
        True
        False
    """
    try:
        fd = os.open(directory / file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)


_held: Final[weakref.WeakSet[BaseDirLock]] = weakref.WeakSet()
_is_watching = False


def _watch_forks() -> None:
    global _is_watching  # noqa: PLW0603 - once a process
    if not _is_watching:
        _is_watching = True
        os.register_at_fork(after_in_child=_forget_in_child)


def _forget_in_child() -> None:
    # A forked child shares the lock and would keep it when the driver is gone. Closing its copy of the
    # descriptor, unlike unlocking, leaves the parent's lock alone.
    for lock in list(_held):
        lock._close_descriptor()  # noqa: SLF001 - a function of this class

"""Finds epochs below base directories and reads the superblocks of their regions.

The layout is ``BASE/tensorpool-USER/NAMESPACE/STREAM_ID/EPOCH/`` with ``header.ring`` and ``POOL_ID.pool``
inside [WIRE-15.21a.3-1]. Tools may look around there; consumers never do [WIRE-15.21a.4-3].
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.wire.shm import MAGIC, SUPERBLOCK_BYTES, ShmRegionSuperblock, decode_superblock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "HEADER_FILE",
    "EpochFolder",
    "Region",
    "find_epochs",
    "is_region_name",
    "open_region",
    "read_epoch",
    "read_region",
]

HEADER_FILE: Final = "header.ring"
_POOL_NAME: Final = re.compile(r"[0-9]{1,5}\.pool", flags=re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,20}", flags=re.ASCII)
_USER_PREFIX: Final = "tensorpool-"
_MOST_ENTRIES: Final = 100_000
"""Entries of one directory that are looked at."""
_BLOCK: Final = 512


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an epoch; without a superblock, `flaw` says why."""

    name: str
    path: str
    size_bytes: int = 0
    allocated_bytes: int = 0
    mode: int = 0
    modified_ns: int = 0
    superblock: ShmRegionSuperblock | None = None
    flaw: str | None = None


class EpochFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that holds an epoch, or what is left of one."""

    path: str
    user: str
    namespace: str
    stream_id: int
    epoch: int
    modified_ns: int = 0
    ring: Region | None = None
    pools: tuple[Region, ...] = ()
    strangers: tuple[str, ...] = ()
    """Names of entries that are no regions."""
    flaw: str | None = None

    @property
    def regions(self) -> tuple[Region, ...]:
        """The header ring and the pools."""
        return self.pools if self.ring is None else (self.ring, *self.pools)

    @property
    def size_bytes(self) -> int:
        """The bytes that its files are long."""
        return sum(region.size_bytes for region in self.regions)

    @property
    def allocated_bytes(self) -> int:
        """The bytes that its files take."""
        return sum(region.allocated_bytes for region in self.regions)

    @property
    def superblock(self) -> ShmRegionSuperblock | None:
        """That of the header ring."""
        return None if self.ring is None else self.ring.superblock

    @property
    def activity_ns(self) -> int | None:
        """When it was last said to be alive, on CLOCK_MONOTONIC of whoever said so."""
        superblocks = [region.superblock for region in self.regions if region.superblock is not None]
        return max((superblock.activity_timestamp_ns for superblock in superblocks), default=None)

    @property
    def last_written_ns(self) -> int:
        """When a file or the directory was last changed by a system call, on CLOCK_REALTIME."""
        return max([self.modified_ns, *(region.modified_ns for region in self.regions)])


def is_region_name(name: str) -> bool:
    """Whether a file of that name is one of an epoch's.

    Example:
        >>> [is_region_name(name) for name in ("header.ring", "1.pool", "x.pool", "notes.txt")]
        [True, True, False, False]
    """
    return name == HEADER_FILE or _POOL_NAME.fullmatch(name) is not None


def find_epochs(base_dirs: Iterable[str]) -> Iterator[EpochFolder]:
    """All epochs below the base directories, by user, namespace, stream and epoch."""
    for base in dict.fromkeys(os.path.realpath(base_dir) for base_dir in base_dirs):
        for user in _directories(Path(base), lambda name: name.startswith(_USER_PREFIX)):
            for namespace in _directories(user):
                for stream in _directories(namespace, _is_number):
                    for epoch in _directories(stream, _is_number):
                        yield read_epoch(epoch)


def _is_number(name: str) -> bool:
    return _NUMBER.fullmatch(name) is not None


def _directories(place: Path, wanted: Callable[[str], bool] = bool) -> list[Path]:
    """The directories in a place that are no links, numbers in their order; empty where we may not look."""
    found = []
    try:
        with os.scandir(place) as entries:
            for count, entry in enumerate(entries):
                if count >= _MOST_ENTRIES:
                    break
                if wanted(entry.name) and entry.is_dir(follow_symlinks=False):
                    found.append(Path(entry.path))
    except OSError:
        return []
    return sorted(found, key=lambda path: (int(path.name) if _is_number(path.name) else 0, path.name))


def read_epoch(path: Path) -> EpochFolder:
    """The epoch in a directory of the standard layout, with the superblocks of its files.

    Raises:
        RegionError: The path does not end with STREAM_ID/EPOCH.
    """
    path = path.absolute()
    if len(path.parts) < 5 or not _is_number(path.name) or not _is_number(path.parent.name):
        raise RegionError(
            f"{path} is not the directory of an epoch",
            hint="it ends with tensorpool-USER/NAMESPACE/STREAM_ID/EPOCH; `tpool shm ls` lists them",
        )
    namespace = path.parent.parent
    identity: dict[str, Any] = {
        "path": str(path),
        "user": namespace.parent.name.removeprefix(_USER_PREFIX),
        "namespace": namespace.name,
        "stream_id": int(path.parent.name),
        "epoch": int(path.name),
    }
    try:
        modified_ns = path.stat(follow_symlinks=False).st_mtime_ns
        names = sorted(os.listdir(path))[:_MOST_ENTRIES]  # noqa: PTH208 - names are all that is wanted
    except OSError as e:
        return EpochFolder(**identity, flaw=f"can't be read: {e.strerror}")
    pools = sorted((name for name in names if _POOL_NAME.fullmatch(name)), key=lambda name: int(name[:-5]))
    return EpochFolder(
        **identity,
        modified_ns=modified_ns,
        ring=read_region(path / HEADER_FILE) if HEADER_FILE in names else None,
        pools=tuple(read_region(path / name) for name in pools),
        strangers=tuple(name for name in names if not is_region_name(name)),
        flaw=None if HEADER_FILE in names else f"has no {HEADER_FILE}",
    )


def open_region(path: Path) -> int:
    """A descriptor of a region's file, for reading; follows no link and waits for nobody.

    Raises:
        OSError: There is none, we may not, or it is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return descriptor


def read_region(path: Path) -> Region:
    """A region's file as it is now; whatever is wrong with it is told, not raised.

    Example:
        >>> read_region(Path("/nonexistent/header.ring")).flaw
        "can't be opened: No such file or directory"
    """
    try:
        descriptor = open_region(path)
    except OSError as e:
        return Region(name=path.name, path=str(path), flaw=f"can't be opened: {e.strerror}")
    try:
        status = os.fstat(descriptor)
        start = os.pread(descriptor, SUPERBLOCK_BYTES, 0)
    except OSError as e:
        return Region(name=path.name, path=str(path), flaw=f"can't be read: {e.strerror}")
    finally:
        os.close(descriptor)
    superblock, flaw = None, _start_flaw(start)
    if flaw is None:
        try:
            superblock = decode_superblock(start)
        except MalformedMessageError as e:
            flaw = e.message
    return Region(
        name=path.name,
        path=str(path),
        size_bytes=status.st_size,
        allocated_bytes=status.st_blocks * _BLOCK,
        mode=stat.S_IMODE(status.st_mode),
        modified_ns=status.st_mtime_ns,
        superblock=superblock,
        flaw=flaw,
    )


def _start_flaw(start: bytes) -> str | None:
    """What is wrong with the first bytes of a file, told as what must be there and what is."""
    if len(start) < SUPERBLOCK_BYTES:
        return f"must begin with a superblock of {SUPERBLOCK_BYTES} bytes, and has only {len(start)} bytes"
    magic = int.from_bytes(start[:8], "little")
    return None if magic == MAGIC else f"must begin with the number {MAGIC:#x}, and begins with {magic:#x}"

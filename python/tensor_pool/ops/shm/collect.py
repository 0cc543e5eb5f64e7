"""Which epochs may go, and removing them (decision D8).

An epoch goes when nobody said for a while that it is alive, and it is neither leased nor the current one of a
stream that a live driver serves. The process id in a superblock alone decides nothing: it may be a driver's
that is alive and long past that epoch, or another process by now.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.ops.shm.regions import HEADER_FILE, is_region_name, read_epoch
from tensor_pool.wire.shm import SUPERBLOCK_BYTES, decode_superblock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tensor_pool.ops.shm.regions import EpochFolder

__all__ = ["Moment", "Served", "Verdict", "judge", "lock_holder", "remove"]

_LOCK_FILE: Final = "driver.lock"
_NS_PER_S: Final = 1_000_000_000
State = Literal["current", "leased", "live", "kept", "stale", "damaged"]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver said that it serves; `answered` is false when none did."""

    answered: bool = False
    current: frozenset[tuple[int, int]] = frozenset()
    """Stream and epoch of each stream."""
    leases: dict[tuple[int, int], int] = {}
    """How many leases refer to a stream and epoch."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When epochs are judged, and with what patience."""

    monotonic_ns: int
    realtime_ns: int
    stale_after_ns: int
    booted_ns: int = 0
    """When the machine started, on CLOCK_REALTIME."""


class Verdict(msgspec.Struct, frozen=True):
    """What an epoch is, why, and so whether it may go."""

    state: State
    reason: str

    @property
    def collectable(self) -> bool:
        """Whether it may be removed."""
        return self.state in {"stale", "damaged"}


def judge(
    folder: EpochFolder,
    moment: Moment,
    *,
    served: Served,
    is_newest: bool,
    lock_pid: int | None = None,
    pid_alive: bool = False,
) -> Verdict:
    """What an epoch is.

    Args:
        folder: The epoch.
        moment: When, and with what patience.
        served: What a driver said.
        is_newest: Whether it is the newest epoch of its stream that there is.
        lock_pid: The driver that holds its namespace, if any.
        pid_alive: Whether there is a process with the number in its superblock.

    Example:
        >>> from tensor_pool.ops.shm.regions import EpochFolder
        >>> folder = EpochFolder(path="/x/1/2", user="u", namespace="n", stream_id=1, epoch=2, flaw="empty")
        >>> moment = Moment(monotonic_ns=10**12, realtime_ns=10**12, stale_after_ns=60 * 10**9)
        >>> judge(folder, moment, served=Served(), is_newest=False).state
        'damaged'
    """
    key = (folder.stream_id, folder.epoch)
    if key in served.current:
        return Verdict("current", "the driver serves it")
    if served.leases.get(key):
        return Verdict("leased", f"{served.leases[key]} leases refer to it")
    idle_ns = _idle_ns(folder, moment)
    if idle_ns is None:
        return Verdict("kept", "its time stamps are ahead of this clock: another time namespace, or damage")
    if idle_ns < moment.stale_after_ns:
        return Verdict("live", f"active {_seconds(idle_ns)} ago")
    # Nobody answers, but its driver may only be stopped, and would not survive to find its files gone.
    if is_newest and not served.answered and (lock_pid is not None or pid_alive):
        who = "its process still exists" if lock_pid is None else f"driver {lock_pid} holds the namespace"
        return Verdict("kept", f"newest of its stream, and {who}")
    return _ended(folder, f"no sign of life for {_seconds(idle_ns)}")


def _ended(folder: EpochFolder, idle: str) -> Verdict:
    if folder.superblock is None:
        return Verdict("damaged", f"{folder.flaw or 'no superblock'}; {idle}")
    return Verdict("stale", idle)


def _seconds(ns: int) -> str:
    return f"{ns / _NS_PER_S:,.0f} s"


def _idle_ns(folder: EpochFolder, moment: Moment) -> int | None:
    """How long ago it was alive; None when that can't be told."""
    if folder.activity_ns is None:
        return max(0, moment.realtime_ns - folder.last_written_ns)
    idle_ns = moment.monotonic_ns - folder.activity_ns
    if idle_ns >= -_NS_PER_S:
        return max(0, idle_ns)
    # Of before a reboot, on a file system that outlives it? Then its files are older than this uptime.
    if 0 < folder.last_written_ns < moment.booted_ns:
        return moment.realtime_ns - folder.last_written_ns
    return None


def lock_holder(namespace: Path, locks: str) -> int | None:
    """The process that holds the lock of a namespace directory, by the text of ``/proc/locks``.

    Asking the lock itself would mean to hold it for a moment, and a driver that starts just then would fail.
    """
    try:
        inode = (namespace / _LOCK_FILE).lstat().st_ino
    except OSError:
        return None
    for line in locks.splitlines():
        # such as: 3: FLOCK  ADVISORY  WRITE 4321 00:19:1234 0 EOF
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4]) if fields[4].lstrip("-").isdigit() else -1
    return None


def remove(folder: EpochFolder) -> int:
    """Removes an epoch's files and its directory, unless something about it changed since it was read.

    Returns:
        The bytes that it took.

    Raises:
        RegionError: It came to life, holds things that are not ours, or can't be removed.
    """
    path = Path(folder.path)
    if folder.strangers:
        raise RegionError(f"{path} also holds {', '.join(map(repr, folder.strangers))}, left as it is")
    again = read_epoch(path)
    if again.activity_ns != folder.activity_ns or again.modified_ns != folder.modified_ns:
        raise RegionError(f"{path} changed since it was looked at, left as it is")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _unlink_regions(descriptor, folder.activity_ns)
        finally:
            os.close(descriptor)
        path.rmdir()
    except OSError as e:
        raise RegionError(f"{path} can't be removed: {e.strerror or e}") from None
    return folder.allocated_bytes


def _unlink_regions(directory: int, activity_ns: int | None) -> None:
    names: Collection[str] = os.listdir(directory)  # by descriptor, so that nobody can swap it
    strange = [name for name in names if not is_region_name(name)]
    if strange:
        raise OSError(0, f"it holds {strange[0]!r}")
    activity_now_ns = _activity(directory) if HEADER_FILE in names else None
    if activity_now_ns is not None and activity_now_ns > (activity_ns or 0):
        raise OSError(0, "it came to life")
    # The ring first: who maps an epoch begins with it, and finds nothing rather than half of it.
    for name in sorted(names, key=lambda name: name != HEADER_FILE):
        os.unlink(name, dir_fd=directory)


def _activity(directory: int) -> int | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(HEADER_FILE, flags, dir_fd=directory)
    try:
        return decode_superblock(os.pread(descriptor, SUPERBLOCK_BYTES, 0)).activity_timestamp_ns
    except MalformedMessageError:
        return None
    finally:
        os.close(descriptor)


def newest_epochs(folders: Iterable[EpochFolder]) -> set[str]:
    """The paths of the newest epoch of each stream."""
    newest: dict[Path, EpochFolder] = {}
    for folder in folders:
        stream = Path(folder.path).parent
        if stream not in newest or newest[stream].epoch < folder.epoch:
            newest[stream] = folder
    return {folder.path for folder in newest.values()}

"""The files of epochs: the only part of the driver that makes, reads or removes any of them.

Regions lie in ``<shm_base_dir>/tensorpool-USER/NAMESPACE[-INSTANCE]/STREAM/EPOCH/`` [WIRE-15.21a.3-1]. An
epoch is made under another name and renamed when it is whole: a directory that is a number was complete once,
everything else is left over from a driver that died.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool import _native
from tensor_pool.driver.lock import is_held
from tensor_pool.driver.registry import Epoch
from tensor_pool.errors import ConfigError, MalformedMessageError, RegionError, RegionFullError
from tensor_pool.runtime.faults import fault_point
from tensor_pool.wire.shm import SUPERBLOCK_BYTES, decode_superblock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.config import ShmSection
    from tensor_pool.pool.sizing import Geometry

__all__ = ["EpochFiles", "FoundEpoch", "namespace_directory", "safe_user_name"]

_HEADER_FILE: Final = "header.ring"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,18}")
_KEPT_RIGHTS: Final = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP | stat.S_IXOTH
"""What others may have been given where several drivers share a directory: to get through, not to write."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})


class FoundEpoch(NamedTuple):
    """A directory that holds or held an epoch."""

    stream_id: int
    epoch: int


def safe_user_name(name: str) -> str:
    """A user's name as one component of a path that leads nowhere else [WIRE-15.21a.3-3].

    Example:
        >>> safe_user_name("ada"), safe_user_name("../../etc"), safe_user_name("")
        ('ada', '_.._.._etc', '_')
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:64]
    return safe if safe and safe[0] not in ".-" else f"_{safe}"


def effective_user_name() -> str:
    """The name of the user that this process acts as, or its number [WIRE-15.21a.3-2]."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def namespace_directory(shm: ShmSection, instance_id: str = "", *, user: str | None = None) -> Path:
    """Where a driver's streams lie; the base directory in its canonical form.

    Example:
        >>> from tensor_pool.config import ShmSection
        >>> str(namespace_directory(ShmSection(namespace="lab"), "b", user="ada"))
        '/dev/shm/tensorpool-ada/lab-b'
    """
    base = Path(os.path.realpath(shm.shm_base_dir))
    name = safe_user_name(effective_user_name() if user is None else user)
    namespace = f"{shm.namespace}-{instance_id}" if instance_id else shm.namespace  # decision D20
    return base / f"tensorpool-{name}" / namespace


class EpochFiles:
    """The directories of one driver.

    Args:
        shm: Where they lie and who may open them.
        instance_id: Tells drivers of one namespace apart.
        group: The group that they belong to, for `shm.permissions` "group"; empty for the process's own.
        user: Whose they are; the effective user's when not given.

    Example:
        >>> import tempfile
        >>> from tensor_pool.config import ShmSection
        >>> from tensor_pool.pool.sizing import Geometry
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as base:
        ...     files = EpochFiles(ShmSection(shm_base_dir=base))
        ...     files.prepare()
        ...     epoch = files.create(10000, 7, Geometry(8, (4096,)), allocate=True)
        ...     [found.epoch for found in files.scan()]
        [7]
    """

    def __init__(
        self, shm: ShmSection, *, instance_id: str = "", group: str = "", user: str | None = None
    ) -> None:
        self._shm = shm
        self._gid = _group_id(group)
        self.directory: Final = namespace_directory(shm, instance_id, user=user)
        self.base_dirs: Final = (str(self.directory.parent.parent),)
        """What regions of this driver lie below."""
        self._has_hugepages: bool | None = None

    def prepare(self) -> None:
        """Makes the directories down to the namespace.

        Others may be using them: all drivers of a user share the first, and who holds the second is not yet
        known. So rights are only added here, for a driver must not lock out the clients of another.

        Raises:
            RegionError: One can't be made, or is somebody else's or a link [DRV-9-1, DRV-9-2].
            ConfigError: The group can't be given to it.
        """
        base = self.directory.parent.parent
        if not base.is_dir():
            raise RegionError(
                f"there is no directory {base}",
                where="shm.shm_base_dir of the configuration (TENSOR_POOL__SHM__SHM_BASE_DIR)",
                hint="make it, or set that to one that exists",
            )
        for directory in (self.directory.parent, self.directory):
            self._make_directory(directory, is_shared=True)

    def take(self) -> None:
        """Gives the namespace's directory the configured rights; for whoever has it alone.

        Raises:
            RegionError: It can't be used.
            ConfigError: The group can't be given to it.
        """
        self._make_directory(self.directory)

    def scan(self) -> list[FoundEpoch]:
        """The epochs that are there; what is left of half-made and half-removed ones is removed.

        Streams that belong to a living producer without a driver are none of the driver's business.
        """
        found = []
        for stream_directory in self._numbered(self.directory):
            if is_held(stream_directory):
                continue
            for entry in list(_entries(stream_directory)):
                if _NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    found.append(FoundEpoch(int(stream_directory.name), int(entry.name)))
                else:
                    _remove(Path(entry.path))
            _remove_if_empty(stream_directory)
        return sorted(found)

    def check_unheld(self, stream_id: int) -> None:
        """Refuses a stream that a producer without a driver publishes (decision D16).

        Raises:
            RegionError: It does.
        """
        if is_held(self.directory / str(stream_id)):
            raise RegionError(
                f"a producer without a driver publishes stream {stream_id}",
                hint="close that one, or publish under another id",
            )

    def create(
        self, stream_id: int, number: int, geometry: Geometry, *, allocate: bool, hugepages: bool = False
    ) -> Epoch:
        """Makes the files of an epoch; they are complete and synced when this returns [WIRE-15.14-5].

        Args:
            stream_id: Whose epoch it is.
            number: The epoch.
            geometry: Its slots.
            allocate: Take the memory now, for a producer; otherwise the files are sparse (decision D7).
            hugepages: Whether it must lie on huge pages, and says so in its URIs.

        Raises:
            RegionFullError: There is not enough room.
            RegionError: It can't be made for another reason.
        """
        stream_directory = self.directory / str(stream_id)
        making = stream_directory / f".{number}.making"
        final = stream_directory / str(number)
        fault_point("driver.before_create")
        try:
            self._make_directory(stream_directory)
            self._make_directory(making, exist_ok=False)
            ring = _native.create_ring(
                making,
                stream_id=stream_id,
                epoch=number,
                nslots=geometry.nslots,
                pools=geometry.pools,
                mode=self._shm.file_mode,
                allocate=allocate,
                require_hugepages=hugepages,
            )
            self._give_to_group(making)
            fault_point("driver.after_create")
            _sync(making)
            making.rename(final)
            _sync(stream_directory)
        except OSError as e:  # RegionError is one too
            _remove(making)
            _remove_if_empty(stream_directory)
            if isinstance(e, RegionError):
                raise
            raise _region_error(e, making) from None
        except BaseException:
            _remove(making)
            _remove_if_empty(stream_directory)
            raise
        fault_point("driver.after_rename")
        return Epoch(number, _moved(ring, final), geometry, allocate, hugepages)

    def remove(self, found: FoundEpoch) -> None:
        """Removes the files of an epoch; who has them mapped keeps them until they unmap."""
        directory = self.directory / str(found.stream_id) / str(found.epoch)
        going = directory.with_name(f".{found.epoch}.going")
        _remove(going)
        with contextlib.suppress(OSError):
            directory.rename(going)  # from here on it is nobody's epoch, however far the rest gets
        fault_point("driver.during_gc")
        _remove(going)
        _remove_if_empty(directory.parent)  # other epochs may be in it

    def remove_empty(self) -> None:
        """Removes the directories of streams that hold nothing."""
        for stream_directory in self._numbered(self.directory):
            _remove_if_empty(stream_directory)

    def remove_all(self) -> None:
        """Removes every epoch, whoever uses it."""
        for found in self.scan():
            self.remove(found)

    def activity(self, found: FoundEpoch) -> int | None:
        """The activity time stamp of an epoch; None when there is none to read."""
        path = self.directory / str(found.stream_id) / str(found.epoch) / _HEADER_FILE
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                return decode_superblock(os.pread(fd, SUPERBLOCK_BYTES, 0)).activity_timestamp_ns
            finally:
                os.close(fd)
        except (OSError, MalformedMessageError):
            return None

    def free_bytes(self) -> int | None:
        """What is left on the file system; None where it does not tell, as hugetlbfs."""
        try:
            status = os.statvfs(self.directory)
        except OSError:
            return None
        return status.f_bavail * status.f_frsize if status.f_blocks else None

    @property
    def has_hugepages(self) -> bool:
        """Whether regions lie on huge pages; found out by making one (decision M10)."""
        if self._has_hugepages is None:
            probe = self.directory / ".probe.making"
            _remove(probe)
            try:
                self._make_directory(probe)
                _native.create_ring(
                    probe,
                    stream_id=1,
                    epoch=1,
                    nslots=1,
                    pools=[(1, 64)],
                    allocate=False,
                    require_hugepages=True,
                )
                self._has_hugepages = True
            except (OSError, ConfigError):
                self._has_hugepages = False
            finally:
                _remove(probe)
        return self._has_hugepages

    def _numbered(self, directory: Path) -> Iterator[Path]:
        for entry in list(_entries(directory)):
            if _NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)

    def _make_directory(self, path: Path, *, exist_ok: bool = True, is_shared: bool = False) -> None:
        is_new = True
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            is_new = False
            if not exist_ok:
                raise RegionError(
                    f"{path} exists already", hint="another driver may use the namespace"
                ) from None
        except OSError as e:
            raise _region_error(e, path) from None
        fd = _open_own_directory(path)
        try:
            self._give_rights(fd, path, is_shared=is_shared and not is_new)
        finally:
            os.close(fd)

    def _give_rights(self, fd: int, path: Path, *, is_shared: bool) -> None:
        status = os.fstat(fd)
        mode = self._shm.directory_mode
        if is_shared:
            mode |= status.st_mode & _KEPT_RIGHTS
        if self._shm.permissions == "group" and self._gid is not None and status.st_gid != self._gid:
            if is_shared and status.st_mode & stat.S_IXGRP:
                mode |= stat.S_IXOTH  # another group is on its way through it: both must get past
            else:
                _change_group(fd, self._gid, path)
                status = os.fstat(fd)
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(fd, mode)  # whatever the umask [WIRE-15.21a.6-1]

    def _give_to_group(self, directory: Path) -> None:
        # Directories with the set-group-id bit hand their group down; file systems without it don't.
        if self._shm.permissions != "group" or self._gid is None:
            return
        for path in directory.iterdir():
            if path.lstat().st_gid != self._gid:
                os.chown(path, -1, self._gid, follow_symlinks=False)


def _moved(ring: _native.RingAddress, directory: Path) -> _native.RingAddress:
    """The address of a ring whose directory was renamed."""

    def uri(text: str) -> str:
        path, hugepages = _native.parse_region_uri(text)
        return _native.format_region_uri(str(directory / Path(path).name), require_hugepages=hugepages)

    return _native.RingAddress(
        stream_id=ring.stream_id,
        epoch=ring.epoch,
        nslots=ring.nslots,
        header_uri=uri(ring.header_uri),
        pools=[(pool_id, stride, uri(text)) for pool_id, stride, text in ring.pools],
    )


def _open_own_directory(path: Path) -> int:
    """A descriptor of a directory that is ours and no link: nobody else chose where our files go."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RegionError(f"{path} is not a directory", hint="remove what is there") from None
        raise _region_error(e, path) from None
    owner = os.fstat(fd).st_uid
    if owner != os.geteuid():
        os.close(fd)
        raise RegionError(
            f"{path} belongs to user {owner}, the driver runs as {os.geteuid()}",
            hint="set shm.namespace or shm.shm_base_dir to a place of your own",
        )
    return fd


def _change_group(fd: int, gid: int, path: Path) -> None:
    try:
        os.fchown(fd, -1, gid)
    except OSError as e:
        raise ConfigError(
            f"driver.group: {path} can't be given to group {gid}: {e.strerror}",
            hint="use a group that the driver's user is a member of",
        ) from None


def _group_id(group: str) -> int | None:
    if not group:
        return None
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(
            f"driver.group: there is no group {group!r}", hint="`getent group` lists those that exist"
        ) from None


def _region_error(error: OSError, path: Path) -> RegionError:
    kind = RegionFullError if error.errno in _FULL else RegionError
    return kind(f"can't make {path}: {error.strerror}", hint="check the file system of shm.shm_base_dir")


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        yield from entries


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_if_empty(directory: Path) -> None:
    """Removes a directory of ours that holds nothing; whoever makes something in it makes it again."""
    with contextlib.suppress(OSError):
        if directory.lstat().st_uid == os.geteuid():
            directory.rmdir()


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

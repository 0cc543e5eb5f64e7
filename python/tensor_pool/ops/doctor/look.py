"""Looks at the real machine and writes down the facts; judges nothing, changes nothing.

Whatever can't be found out (another kernel, a container that hides it) becomes None or the harmless value: a
doctor that crashes on a sick machine is of no use.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import stat
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.ops.doctor.machine import (
    Clocks,
    Cpus,
    Hugepages,
    Kernel,
    Limits,
    Machine,
    Namespaces,
    SharedMemory,
    Versions,
)

if TYPE_CHECKING:
    from tensor_pool.config import Config

__all__ = ["look", "mount_of", "read_clocks", "read_cpus", "read_hugepages", "read_limits", "read_namespaces"]

_ROOT: Final = Path("/")
_NS_PER_S: Final = 1_000_000_000

# The numbers of the namespaces that every machine starts with are constants of the kernel.
_INITIAL_NAMESPACES: Final = {"user": 0xEFFFFFFD, "pid": 0xEFFFFFFC, "time": 0xEFFFFFFA}

# System calls that are younger than 2019 have one number on all machines.
_SYS_OPENAT2: Final = 437
_SYS_FUTEX_WAITV: Final = 449

_STA_UNSYNC: Final = 0x40
_TIME_ERROR: Final = 5


def look(config: Config) -> Machine:
    """The facts about this machine, as seen with a configuration; takes up to a few seconds.

    Example:
        >>> from tensor_pool.config import load_config
        >>> config = load_config(environ={}, search=False, overrides={"aeron.dir": "/nonexistent"})
        >>> look(config).aeron.found
        False
    """
    versions = read_versions()
    machine = Machine(
        shared_memory=read_shared_memory(config.shm.shm_base_dir),
        limits=read_limits(),
        hugepages=read_hugepages(),
        clocks=read_clocks(),
        kernel=read_kernel(),
        namespaces=read_namespaces(),
        versions=versions,
        cpus=read_cpus(),
    )
    if versions.native_error is not None:
        return machine  # Aeron is inside of it
    from tensor_pool.ops.doctor import look_bridge, look_services  # noqa: PLC0415 - need the native module

    machine = msgspec.structs.replace(machine, bridge=look_bridge.read_bridge(config))
    return look_services.add_services(machine, config)


def read_shared_memory(path: str, root: Path = _ROOT) -> SharedMemory:
    """The directory for regions and the file system below it."""
    try:
        status = Path(path).stat()
        space = os.statvfs(path)
    except OSError:
        return SharedMemory(path=path, exists=False, total_bytes=0, free_bytes=0)
    place, file_system, options = mount_of(path, _text(root / "proc/self/mounts"))
    return SharedMemory(
        path=path,
        exists=True,
        is_directory=stat.S_ISDIR(status.st_mode),
        writable=os.access(path, os.W_OK | os.X_OK),
        mode=stat.S_IMODE(status.st_mode),
        mount_point=place,
        file_system=file_system,
        mount_options=options,
        total_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
    )


def mount_of(path: str, mounts: str) -> tuple[str, str, tuple[str, ...]]:
    r"""Where the file system is mounted that a path is on, its kind and options, by ``/proc/self/mounts``.

    Example:
        >>> mount_of("/dev/shm/x", "overlay / overlay rw 0 0\ntmpfs /dev/shm tmpfs rw,size=64k 0 0")
        ('/dev/shm', 'tmpfs', ('rw', 'size=64k'))
    """
    real = os.path.realpath(path)
    found: tuple[str, str, tuple[str, ...]] = ("", "unknown", ())
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        # Blanks in paths stand there as octal numbers. Of several mounts at one place the last one holds.
        place = fields[1].replace("\\040", " ")
        below = real == place or real.startswith(place.rstrip("/") + "/")
        if below and len(place) >= len(found[0]):
            found = (place, fields[2], tuple(fields[3].split(",")))
    return found


def read_limits(root: Path = _ROOT) -> Limits:
    """The limits of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Limits(
        open_files=_limit(soft),
        open_files_hard=_limit(hard),
        locked_bytes=_limit(locked),
        max_map_count=_number(root / "proc/sys/vm/max_map_count"),
        receive_buffer_bytes=_number(root / "proc/sys/net/core/rmem_max"),
        send_buffer_bytes=_number(root / "proc/sys/net/core/wmem_max"),
    )


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def read_hugepages(root: Path = _ROOT) -> Hugepages:
    """Huge pages of the usual size."""
    fields = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        number = value.split()[:1]
        if number and number[0].isdigit():
            fields[name] = int(number[0])
    mounts = (line.split() for line in _text(root / "proc/self/mounts").splitlines())
    return Hugepages(
        configured=fields.get("HugePages_Total", 0),
        free=fields.get("HugePages_Free", 0),
        page_bytes=fields.get("Hugepagesize", 2048) * 1024,
        mounts=tuple(mount[1] for mount in mounts if len(mount) > 2 and mount[2] == "hugetlbfs"),
    )


def read_clocks(root: Path = _ROOT) -> Clocks:
    """The clock source, the namespace's shift, and what the kernel says about its synchronisation."""
    offset_ns = 0
    for line in _text(root / "proc/self/timens_offsets").splitlines():
        name, *numbers = line.split()
        if name in {"monotonic", "1"} and len(numbers) == 2:
            with contextlib.suppress(ValueError):
                offset_ns = int(numbers[0]) * _NS_PER_S + int(numbers[1])
    synchronised, max_error_ms = _synchronisation()
    return Clocks(
        source=_text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource") or None,
        synchronised=synchronised,
        max_error_ms=max_error_ms,
        monotonic_offset_ns=offset_ns,
    )


class _Timex(ctypes.Structure):
    """The kernel's view of its clock; only the front of it matters here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def _synchronisation() -> tuple[bool | None, float | None]:
    try:
        timex = _Timex()
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))  # mode 0 only reads
    except (OSError, AttributeError):
        return None, None
    if state < 0:
        return None, None
    synchronised = state != _TIME_ERROR and not timex.status & _STA_UNSYNC
    return synchronised, round(timex.maxerror / 1e3, 3) if synchronised else None


def read_kernel() -> Kernel:
    """The release, and whether the young system calls are there."""
    return Kernel(
        release=platform.release(), openat2=_has_call(_SYS_OPENAT2), futex_waitv=_has_call(_SYS_FUTEX_WAITV)
    )


def _has_call(number: int) -> bool | None:
    """Asks with arguments that are refused; a call that is missing or forbidden says something else."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        nothing = ctypes.c_long(0)
        libc.syscall(ctypes.c_long(number), nothing, nothing, nothing, nothing, nothing)
    except (OSError, AttributeError):
        return None
    return ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}


def read_namespaces(root: Path = _ROOT) -> Namespaces:
    """Which namespaces are not those that the machine started with."""
    own = {}
    for kind, initial in _INITIAL_NAMESPACES.items():
        try:
            link = (root / "proc/self/ns" / kind).readlink().name  # such as pid:[4026531836]
        except OSError:
            continue
        number = link.partition("[")[2].partition("]")[0]
        own[kind] = number.isdigit() and int(number) != initial
    return Namespaces(**own)


def read_versions() -> Versions:
    """What is installed, and whether the native module loads."""
    aeron, native_error = None, None
    try:
        from tensor_pool import _native  # noqa: PLC0415 - its failure is a fact to report

        aeron = _native.aeron_version()
    except ImportError as e:
        native_error = str(e)
    return Versions(
        package=_installed("shm-tensor-pool"),
        python=".".join(map(str, sys.version_info[:3])),
        numpy=_installed("numpy"),
        msgspec=_installed("msgspec"),
        aeron=aeron,
        native_error=native_error,
    )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def read_cpus(root: Path = _ROOT) -> Cpus:
    """Processors, the container's share of them, and how their speed is governed."""
    quota = None
    match _text(root / "sys/fs/cgroup/cpu.max").split():
        case [most, period] if most.isdigit() and period.isdigit() and int(period):
            quota = int(most) / int(period)
    return Cpus(
        count=os.cpu_count() or 1,
        usable=len(os.sched_getaffinity(0)),
        quota=quota,
        governor=_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None

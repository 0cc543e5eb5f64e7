"""Checks of the machine itself: memory, limits, clocks, kernel, processors, versions.

Each takes a `Machine` and says what it found; none looks at anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.ops.doctor.finding import fine, human_bytes, problem, warning

if TYPE_CHECKING:
    from tensor_pool.ops.doctor.finding import Finding
    from tensor_pool.ops.doctor.machine import Machine

__all__ = [
    "check_clock_source",
    "check_cpus",
    "check_file_system",
    "check_hugepages",
    "check_kernel",
    "check_locked_memory",
    "check_mappings",
    "check_mode",
    "check_mount",
    "check_namespaces",
    "check_open_files",
    "check_real_time",
    "check_size",
    "check_time_namespace",
    "check_versions",
]

_MIB: Final = 1 << 20
_CONTAINER_DEFAULT: Final = 64 * _MIB
_ROOM_FOR_A_START: Final = 96 * _MIB  # a media driver, a handful of publications, one small ring
_COMFORTABLE: Final = 1024 * _MIB
_IN_MEMORY: Final = {"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"}
_STICKY: Final = 0o1000
_WORLD_WRITABLE: Final = 0o002
_FEW_FILES: Final = 256
_USUAL_FILES: Final = 1024
_USUAL_MAPPINGS: Final = 65_530
_LITTLE_LOCKED: Final = 8 * _MIB
_SLOW_SOURCES: Final = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}
_OLDEST_NUMPY: Final = (2, 1)
_OLDEST_MSGSPEC: Final = (0, 20)
_OLDEST_PYTHON: Final = (3, 11)


def check_mount(machine: Machine) -> Finding:
    """Can files be made there at all?"""
    shm, name = machine.shared_memory, "shared memory"
    if not shm.exists:
        return problem(
            name, f"{shm.path} does not exist", f"mkdir -p {shm.path}, or set shm.shm_base_dir elsewhere"
        )
    if not shm.is_directory:
        return problem(name, f"{shm.path} is not a directory", "set shm.shm_base_dir to a directory")
    if "ro" in shm.mount_options:
        return problem(
            name, f"{shm.path} is mounted read-only", f"mount -o remount,rw {shm.path}, or mount a tmpfs"
        )
    if not shm.writable:
        return problem(
            name,
            f"{shm.path} can't be written to by this user",
            f"ask for write permission (ls -ld {shm.path}), or set shm.shm_base_dir to a tmpfs of your own",
        )
    return fine(name, f"{shm.path}, mounted {','.join(shm.mount_options) or 'without options'}")


def check_size(machine: Machine) -> Finding | None:
    """Is there room for rings and for Aeron's buffers?"""
    shm, name = machine.shared_memory, "shared memory size"
    if not shm.exists:
        return None  # said already
    if shm.file_system == "hugetlbfs" and shm.total_bytes == 0:
        return None  # no limit of its own: the number of huge pages is one
    found = f"{human_bytes(shm.free_bytes)} free of {human_bytes(shm.total_bytes)}"
    if 0 < shm.total_bytes <= _CONTAINER_DEFAULT:
        return problem(
            name,
            f"{found}: what containers get by default",
            "docker run --shm-size=2g (Kubernetes: an emptyDir of medium Memory at /dev/shm)",
        )
    if shm.free_bytes < _ROOM_FOR_A_START:
        return problem(
            name,
            f"{found}; a start needs {human_bytes(_ROOM_FOR_A_START)}",
            "`tpool shm gc` removes what dead drivers left; `du -sh /dev/shm/*` shows who has the rest",
        )
    if shm.total_bytes < _COMFORTABLE:
        return warning(
            name,
            found,
            f"enough for small frames; mount -o remount,size=4g {shm.path}, or docker run --shm-size=4g",
        )
    return fine(name, found)


def check_file_system(machine: Machine) -> Finding | None:
    """Is it memory, or a disk that every frame would be written to?"""
    shm, name = machine.shared_memory, "file system"
    if not shm.exists:
        return None  # said already
    if shm.file_system in _IN_MEMORY:
        return fine(name, shm.file_system)
    return warning(
        name,
        f"{shm.path} is on {shm.file_system}, an ordinary file system",
        "it works, but the kernel writes frames back to the disk; /dev/shm or another tmpfs is faster",
    )


def check_mode(machine: Machine) -> Finding | None:
    """May others replace our directories?"""
    shm, name = machine.shared_memory, "directory mode"
    if not shm.exists:
        return None  # said already
    found = f"{shm.mode:04o}"
    if shm.mode & _WORLD_WRITABLE and not shm.mode & _STICKY:
        return warning(
            name,
            f"{shm.path} has {found}: everybody may rename and remove everybody's files",
            f"chmod +t {shm.path}",
        )
    return fine(name, found)


def check_open_files(machine: Machine) -> Finding:
    """RLIMIT_NOFILE: rings, Aeron's buffers, event descriptors."""
    limits, name = machine.limits, "open files"
    if limits.open_files is None:
        return fine(name, "unlimited")
    found = f"{limits.open_files} (hard limit {limits.open_files_hard or 'unlimited'})"
    raise_it = "ulimit -n 65536, or LimitNOFILE= of the systemd unit"
    if limits.open_files < _FEW_FILES:
        return problem(name, found, raise_it)
    if limits.open_files < _USUAL_FILES:
        return warning(name, found, f"{raise_it}: a process with hundreds of streams needs more")
    return fine(name, found)


def check_locked_memory(machine: Machine) -> Finding:
    """RLIMIT_MEMLOCK: only producers that lock their ring need it."""
    locked, name = machine.limits.locked_bytes, "locked memory"
    if locked is None:
        return fine(name, "unlimited")
    found = human_bytes(locked)
    tip = "only for rings that are locked in memory: ulimit -l unlimited, or LimitMEMLOCK=infinity"
    return warning(name, found, tip) if locked < _LITTLE_LOCKED else fine(name, found, tip)


def check_mappings(machine: Machine) -> Finding:
    """vm.max_map_count: a ring takes one mapping and one more for each pool, a publication one."""
    count, name = machine.limits.max_map_count, "memory mappings"
    if count is None:
        return fine(name, "limit unknown")
    if count < _USUAL_MAPPINGS:
        return warning(name, f"at most {count} in a process", f"sysctl -w vm.max_map_count={_USUAL_MAPPINGS}")
    return fine(name, f"at most {count} in a process")


def check_hugepages(machine: Machine) -> Finding:
    """Explicit huge pages are set up fully or not at all; transparent ones are a tip."""
    huge, name = machine.hugepages, "huge pages"
    size = human_bytes(huge.page_bytes)
    if huge.configured and not huge.mounts:
        return warning(
            name,
            f"{huge.configured} of {size} are configured, but no hugetlbfs is mounted",
            "mount -t hugetlbfs none /dev/hugepages, and name it in shm.allowed_base_dirs",
        )
    if huge.configured and not huge.free:
        return warning(
            name,
            f"none of {huge.configured} of {size} is free: rings that require them are refused",
            "raise vm.nr_hugepages, or end whoever holds them",
        )
    if huge.configured:
        return fine(name, f"{huge.free} of {huge.configured} of {size} free, at {', '.join(huge.mounts)}")
    memory = machine.shared_memory
    transparent = memory.transparent_hugepages
    if not memory.exists or memory.file_system != "tmpfs":
        return fine(name, "none configured")
    found = f"none configured; transparent ones at {memory.mount_point}: {transparent}"
    if transparent in {"never", "advise"}:
        # Memory is set aside before anybody maps it and could give advice.
        return fine(name, found, f"for large frames: mount -o remount,huge=within_size {memory.mount_point}")
    return fine(name, found)


def check_clock_source(machine: Machine) -> Finding:
    """A slow clock source makes every time stamp a system call."""
    source, name = machine.clocks.source, "clock source"
    if source in _SLOW_SOURCES:
        return warning(
            name,
            f"{source}: reading the time takes microseconds",
            "see `dmesg | grep -i clocksource` for why the kernel does not trust the processor's counter",
        )
    return fine(name, source or "unknown")


def check_time_namespace(machine: Machine) -> Finding:
    """Liveness compares CLOCK_MONOTONIC between processes."""
    shift_s, name = machine.clocks.monotonic_offset_ns / 1e9, "monotonic clock"
    if shift_s:
        return warning(
            name,
            f"this time namespace shifts it by {shift_s:g} s",
            "processes outside of it would take live rings for dead: run all of a pool in one time namespace",
        )
    return fine(name, "the host's")


def check_real_time(machine: Machine) -> Finding:
    """Dates of frames, and announces between hosts, need a clock that somebody sets."""
    clocks, name = machine.clocks, "real time"
    if clocks.synchronised is None:
        return fine(name, "can't be asked")
    if not clocks.synchronised:
        return warning(
            name,
            "not synchronised",
            "run chrony or systemd-timesyncd where frames of several hosts are compared; "
            "a container shows its host's clock",
        )
    error = "" if clocks.max_error_ms is None else f", at most {clocks.max_error_ms:g} ms off"
    return fine(name, f"synchronised{error}")


def check_kernel(machine: Machine) -> Finding:
    """Everything has a fallback; what it costs is worth knowing."""
    kernel, name = machine.kernel, "kernel"
    if kernel.futex_waitv is False:
        return warning(
            name,
            f"{kernel.release} has no futex_waitv: waiting for several streams asks each in turn",
            "Linux 5.16 or later, or let the container's seccomp profile allow it",
        )
    if kernel.openat2 is False:
        return warning(
            name,
            f"{kernel.release} has no openat2: paths are walked part by part",
            "Linux 5.6 or later, or let the container's seccomp profile allow it",
        )
    return fine(name, kernel.release)


def check_namespaces(machine: Machine) -> Finding:
    """What a container separates can't be shared, unless it is told to."""
    own = [kind for kind in ("user", "pid", "time") if getattr(machine.namespaces, kind)]
    if not own:
        return fine("namespaces", "the host's")
    notes = {
        "user": "other users' files show as nobody's",
        "pid": "process ids mean other processes than outside",
        "time": "monotonic times may differ from outside",
    }
    return warning(
        "namespaces",
        f"own {', '.join(own)} namespace: {'; '.join(notes[kind] for kind in own)}",
        "processes share a pool only with the same mount at the same path and the same numeric user",
    )


def check_cpus(machine: Machine) -> Finding:
    """Enough processors at full speed?"""
    cpus, name = machine.cpus, "processors"
    found = f"{cpus.usable} of {cpus.count}"
    if cpus.quota is not None:
        found += f", at most {cpus.quota:g} at a time"
    if cpus.governor is not None:
        found += f", governor {cpus.governor}"
    if cpus.usable < 2 or (cpus.quota is not None and cpus.quota < 2):
        return warning(
            name, found, "drivers, producers and consumers take turns: use the eco profile, or more cores"
        )
    if cpus.governor == "powersave":
        return warning(name, found, "for steady latency: cpupower frequency-set -g performance")
    return fine(name, found)


def check_versions(machine: Machine) -> Finding:
    """Does what is installed go together?"""
    versions, name = machine.versions, "versions"
    if versions.native_error is not None:
        return problem(
            name,
            f"the native module does not load: {versions.native_error}",
            "pip install --force-reinstall shm-tensor-pool; in a checkout, make build",
        )
    needed = (
        ("Python", versions.python, _OLDEST_PYTHON),
        ("numpy", versions.numpy, _OLDEST_NUMPY),
        ("msgspec", versions.msgspec, _OLDEST_MSGSPEC),
    )
    for package, installed, oldest in needed:
        if installed is None or _numbers(installed) < oldest:
            wanted = ".".join(map(str, oldest))
            return problem(
                name,
                f"{package} {installed or 'is not installed'}; {wanted} or later is needed",
                f"pip install '{package.lower()}>={wanted}'"
                if package != "Python"
                else f"use Python {wanted} or later",
            )
    return fine(
        name,
        f"shm-tensor-pool {versions.package or 'not installed'}, Python {versions.python}, "
        f"numpy {versions.numpy}, Aeron {versions.aeron}",
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.1.0rc1`` gives (2, 1)."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)

"""What the doctor knows about a machine: plain facts, so that a test can describe any machine there is.

`tensor_pool.ops.doctor.look` collects them from the real one. The defaults describe a healthy machine on
which nothing of ours runs yet.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "Aeron",
    "Bridge",
    "Clocks",
    "Cpus",
    "Driver",
    "Hugepages",
    "Kernel",
    "Limits",
    "Machine",
    "Namespaces",
    "SharedMemory",
    "Versions",
]

GIB: Final = 1 << 30


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts never change; `msgspec.structs.replace` makes other ones."""


class SharedMemory(_Facts, frozen=True):
    """The directory below which regions are made, and the file system that it is on."""

    path: str = "/dev/shm"  # noqa: S108 - the tmpfs of shared memory, not a temporary file
    exists: bool = True
    is_directory: bool = True
    writable: bool = True
    mode: int = 0o1777
    mount_point: str = "/dev/shm"  # noqa: S108 - as above
    file_system: str = "tmpfs"
    mount_options: tuple[str, ...] = ("rw", "nosuid", "nodev")
    total_bytes: int = 8 * GIB
    free_bytes: int = 7 * GIB

    @property
    def transparent_hugepages(self) -> str:
        """When the file system uses them by itself. The kernel's own setting is not for mounted ones."""
        options = (option.partition("=") for option in self.mount_options)
        return next((value for name, _, value in options if name == "huge"), "never")


class Limits(_Facts, frozen=True):
    """What this process may use; None stands for no limit."""

    open_files: int | None = 4096
    open_files_hard: int | None = 1 << 20
    locked_bytes: int | None = None
    max_map_count: int | None = 65_530
    receive_buffer_bytes: int | None = 4 << 20
    send_buffer_bytes: int | None = 4 << 20
    """The kernel's limits of socket buffers; None also where a network namespace hides them."""


class Hugepages(_Facts, frozen=True):
    """Explicit huge pages."""

    configured: int = 0
    free: int = 0
    page_bytes: int = 2 << 20
    mounts: tuple[str, ...] = ()


class Aeron(_Facts, frozen=True):
    """The media driver of the configured directory, and what dead ones left beside it."""

    directory: str = "/dev/shm/aeron-user"  # noqa: S108 - see above
    found: bool = False
    is_somebody_elses: bool = False
    """Whether this user may not see what is there."""
    alive: bool = False
    pid: int | None = None
    process_exists: bool = False
    heartbeat_age_s: float | None = None
    version: str | None = None
    timer_interval_ms: float | None = None
    """Measured; None when it could not be."""
    shortest_timeout_ms: float = 50
    """The shortest untethered time-out that is configured."""
    tethered: tuple[str, ...] = ()
    """Publications without untethered time-outs and tethered subscriptions on streams of ours."""
    leftovers: tuple[tuple[str, int], ...] = ()
    """Directories of dead media drivers, and the bytes that they take."""


class Driver(_Facts, frozen=True):
    """What the SHM driver said; None throughout when it was not asked, for want of a media driver."""

    asked: bool = False
    answer_ms: float | None = None
    """None when there was no answer."""
    refusal: str | None = None
    pid: int | None = None
    state: str | None = None
    version: str | None = None
    streams: int = 0
    free_bytes: int | None = None


class Bridge(_Facts, frozen=True):
    """The bridge that is configured; nothing when there is none."""

    mappings: tuple[str, ...] = ()
    refusal: str | None = None
    """What contradicts itself."""
    hint: str | None = None
    missing: tuple[str, ...] = ()
    """Interfaces and endpoints of its channels that this host does not have."""


class Clocks(_Facts, frozen=True):
    """Which clock the kernel counts with, and whether it agrees with other hosts'."""

    source: str | None = "tsc"
    synchronised: bool | None = True
    max_error_ms: float | None = 5.0
    monotonic_offset_ns: int = 0
    """How far this time namespace shifts CLOCK_MONOTONIC."""


class Kernel(_Facts, frozen=True):
    """Which system calls there are; None: could not be found out."""

    release: str = "6.1.0"
    openat2: bool | None = True
    futex_waitv: bool | None = True


class Namespaces(_Facts, frozen=True):
    """In which namespaces of its own this process lives."""

    user: bool = False
    pid: bool = False
    time: bool = False


class Versions(_Facts, frozen=True):
    """What this runs with; None: not installed."""

    package: str | None = "0.1.0"
    python: str = "3.11.7"
    numpy: str | None = "2.1.0"
    msgspec: str | None = "0.20.0"
    aeron: str | None = "1.54.0"
    native_error: str | None = None
    """Why the native module does not load."""


class Cpus(_Facts, frozen=True):
    """Processors, and what keeps this process from using them."""

    count: int = 8
    usable: int = 8
    quota: float | None = None
    governor: str | None = "performance"


class Machine(_Facts, frozen=True):
    """All of it.

    Example:
        >>> Machine().shared_memory.file_system
        'tmpfs'
    """

    shared_memory: SharedMemory = SharedMemory()
    limits: Limits = Limits()
    hugepages: Hugepages = Hugepages()
    aeron: Aeron = Aeron()
    driver: Driver = Driver()
    bridge: Bridge = Bridge()
    clocks: Clocks = Clocks()
    kernel: Kernel = Kernel()
    namespaces: Namespaces = Namespaces()
    versions: Versions = Versions()
    cpus: Cpus = Cpus()

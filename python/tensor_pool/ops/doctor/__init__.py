"""What would go wrong on this machine, and what to do about it.

Facts about the machine (`machine`) are collected by `look` and judged by small functions (`system_checks`,
`service_checks`, `bridge_checks`) that touch nothing, so that tests can describe every sick machine there is.

Example:
    >>> from tensor_pool.ops.doctor.machine import Machine, SharedMemory
    >>> small = Machine(shared_memory=SharedMemory(total_bytes=64 << 20, free_bytes=64 << 20))
    >>> [finding.check for finding in examine(small) if finding.status == "problem"]
    ['shared memory size']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.ops.doctor import bridge_checks, service_checks, system_checks
from tensor_pool.ops.doctor.finding import Finding, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.ops.doctor.machine import Machine

__all__ = ["CHECKS", "Finding", "Status", "examine"]

CHECKS: Final[tuple[Callable[[Machine], Finding | None], ...]] = (
    system_checks.check_versions,
    system_checks.check_mount,
    system_checks.check_size,
    system_checks.check_file_system,
    system_checks.check_mode,
    system_checks.check_open_files,
    system_checks.check_locked_memory,
    system_checks.check_mappings,
    system_checks.check_hugepages,
    system_checks.check_cpus,
    system_checks.check_kernel,
    system_checks.check_namespaces,
    system_checks.check_clock_source,
    system_checks.check_time_namespace,
    system_checks.check_real_time,
    service_checks.check_media_driver,
    service_checks.check_media_version,
    service_checks.check_media_timer,
    service_checks.check_tethers,
    service_checks.check_leftovers,
    service_checks.check_driver,
    bridge_checks.check_socket_buffers,
    bridge_checks.check_bridge,
    bridge_checks.check_bridge_addresses,
)
"""Every check, in the order in which people read them. None is for what does not apply."""


def examine(machine: Machine) -> list[Finding]:
    """All findings about a machine."""
    return [finding for check in CHECKS if (finding := check(machine)) is not None]

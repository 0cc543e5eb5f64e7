"""Checks of what a bridge needs: room in sockets, a configuration that holds together, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.ops.doctor.finding import fine, human_bytes, problem, warning

if TYPE_CHECKING:
    from tensor_pool.ops.doctor.finding import Finding
    from tensor_pool.ops.doctor.machine import Machine

__all__ = ["check_bridge", "check_bridge_addresses", "check_socket_buffers"]

_WANTED: Final = 4 << 20
"""What a bridge takes where it gets it."""
_SHOWN: Final = 3


def check_socket_buffers(machine: Machine) -> Finding:
    """net.core.rmem_max and wmem_max bound how much of a frame may be under way."""
    limits, name = machine.limits, "socket buffers"
    known = {"rmem_max": limits.receive_buffer_bytes, "wmem_max": limits.send_buffer_bytes}
    sizes = {key: size for key, size in known.items() if size is not None}
    if not sizes:
        return fine(name, "limits unknown")
    found = ", ".join(f"net.core.{key} {human_bytes(size)}" for key, size in sizes.items())
    small = [f"net.core.{key}={_WANTED}" for key, size in sizes.items() if size < _WANTED]
    if small:
        return warning(
            name, found, f"only for bridges, which are slow with so little: sysctl -w {' '.join(small)}"
        )
    return fine(name, found)


def check_bridge(machine: Machine) -> Finding | None:
    """Does what is configured hold together on this host?"""
    bridge, name = machine.bridge, "bridge"
    if not bridge.mappings:
        return None
    if bridge.refusal is not None:
        return problem(
            name, bridge.refusal, bridge.hint or "`tpool config explain bridge` lists what can be set"
        )
    return fine(name, f"{len(bridge.mappings)} mappings: {_some(bridge.mappings)}")


def check_bridge_addresses(machine: Machine) -> Finding | None:
    """Can it listen where it is told to?"""
    bridge, name = machine.bridge, "bridge addresses"
    if not bridge.mappings or bridge.refusal is not None:
        return None  # said already
    if bridge.missing:
        return problem(
            name,
            f"this host has no {_some(bridge.missing)}",
            "`ip -brief address` lists what it has; a receiver's endpoint is its own address, "
            "interface=ADDRESS/BITS one of its networks",
        )
    return fine(name, "this host has all that its channels name")


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

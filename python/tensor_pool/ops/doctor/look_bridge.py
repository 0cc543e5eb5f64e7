"""Looks at what a bridge needs: room in sockets, a configuration that holds together, addresses."""

from __future__ import annotations

import ipaddress
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensor_pool.bridging.config import BridgeSection, check_bridge
from tensor_pool.channels import Channel
from tensor_pool.errors import ConfigError
from tensor_pool.ops.doctor.machine import Bridge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.bridging.mapping import ResolvedMapping
    from tensor_pool.config import Config

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network

__all__ = ["local_networks", "missing_places", "read_bridge"]

_ROOT: Final = Path("/")
_HOST: Final = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:/\[]+))(?::\d+)?(?:/(?P<prefix>\d+))?")
"""An address as channels write it, maybe with a port and the length of its network."""


def read_bridge(config: Config, root: Path = _ROOT) -> Bridge:
    """The bridge that is configured, and what this host lacks for it."""
    section = config[BridgeSection]
    if not section.mappings:
        return Bridge()
    mappings = tuple(map(str, section.mappings))
    try:
        check_bridge(config)
    except ConfigError as e:
        return Bridge(mappings=mappings, refusal=e.message, hint=e.hint)
    devices = (root / "sys/class/net").glob("*")
    found = missing_places(
        section.resolved_mappings, local_networks(root), {device.name for device in devices}
    )
    return Bridge(mappings=mappings, missing=tuple(found))


def local_networks(root: Path = _ROOT) -> list[Network]:
    """The addresses of this host, each as the network of those that are here too: mostly itself alone."""
    found: list[Network | None] = []
    address = ""
    for line in _lines(root / "proc/net/fib_trie"):
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[-1]
        elif words[1:] == ["host", "LOCAL"]:
            found.append(_network(address + words[0]))
    for line in _lines(root / "proc/net/if_inet6"):
        digits = line.partition(" ")[0]
        found.append(_network(f"[{':'.join(textwrap.wrap(digits, 4))}]"))
    return list(dict.fromkeys(network for network in found if network is not None))


def missing_places(
    routes: Iterable[ResolvedMapping], local: Iterable[Network], devices: set[str]
) -> list[str]:
    """The interfaces and endpoints that channels name and this host does not have.

    Host names are not looked up: that may take long, and their answers change.

    Args:
        routes: The mappings.
        local: What `local_networks` returns; nothing is missed where it is empty.
        devices: The network devices of this host.
    """
    here = list(local)
    found: dict[str, None] = {}
    for route in routes:
        for stream in (route.payload, route.control, route.metadata):
            if stream is None or not here:
                continue
            params = Channel.parse(stream.channel).params
            interface = params.get("interface", "")
            if interface and not _has_interface(interface, here, devices):
                found[f"interface={interface}"] = None
            endpoint = params.get("endpoint", "")
            if route.receives and not _can_listen_at(endpoint, here):  # a sender only sends there
                found[f"endpoint={endpoint}"] = None
    return list(found)


def _has_interface(text: str, here: list[Network], devices: set[str]) -> bool:
    if text.startswith("{"):
        return text.strip("{}") in devices
    network = _network(text)
    return network is None or any(_overlap(network, own) for own in here)


def _can_listen_at(endpoint: str, here: list[Network]) -> bool:
    network = _network(endpoint)
    if network is None or network.is_multicast or network.network_address.is_unspecified:
        return True
    return any(_overlap(network, own) for own in here)


def _network(text: str) -> Network | None:
    """None for what is not an address."""
    parts = _HOST.fullmatch(text.replace("localhost", "127.0.0.1"))
    if parts is None:
        return None
    address = parts["v6"] or parts["v4"]
    try:
        return ipaddress.ip_network(
            f"{address}/{parts['prefix']}" if parts["prefix"] else address, strict=False
        )
    except ValueError:
        return None  # a host name


def _overlap(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []

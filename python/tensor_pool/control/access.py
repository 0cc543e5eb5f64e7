"""Who may command which services: decided by where a command comes from."""

from __future__ import annotations

import fnmatch
import ipaddress
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.channels import Channel
from tensor_pool.control.tags import PREFIX
from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Commanders", "CommandRule", "is_ipc", "is_local"]

IPC: Final = "ipc"
_LOCAL: Final = (IPC, "127.0.0.0/8", "::1/128")


class CommandRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some sources may command some services.

    Example:
        >>> rule = CommandRule(("10.7.0.0/24",), ("recorder", "recorder:*"))
        >>> rule.allows("service:recorder:2", "10.7.0.9:40456"), rule.allows("service:bridge", "10.7.0.9:1")
        (True, False)
    """

    sources: tuple[str, ...]
    """``ipc`` for this host's own processes, and addresses or networks such as 10.7.0.0/24."""
    services: tuple[str, ...] = ("*",)
    """Patterns of services, without ``service:``."""

    def __post_init__(self) -> None:
        for source in self.sources:
            if source != IPC:
                try:
                    ipaddress.ip_network(source)
                except ValueError as e:
                    raise ConfigError(
                        f"{source!r} is no source of commands: {e}", hint="ipc, an address or a network"
                    ) from e

    def allows(self, tag: str, source: str) -> bool:
        """Whether a command for `tag` may come from a source, as Aeron names it."""
        service = tag.removeprefix(PREFIX)
        return any(fnmatch.fnmatchcase(service, pattern) for pattern in self.services) and any(
            _is_of(source, place) for place in self.sources
        )


class Commanders:
    """All rules together; without any, only this host commands.

    Example:
        >>> Commanders(()).allow("service:recorder", "10.7.0.9:40456")
        False
    """

    def __init__(self, rules: Sequence[CommandRule]) -> None:
        self._rules = tuple(rules) or (CommandRule(_LOCAL),)

    def allow(self, tag: str, source: str) -> bool:
        """Whether a command may come from a source, as Aeron names it."""
        return any(rule.allows(tag, source) for rule in self._rules)


def is_ipc(source: str) -> bool:
    """Whether a source, as Aeron names it, is a process of this host.

    Example:
        >>> is_ipc("aeron:ipc"), is_ipc("127.0.0.1:40456")
        (True, False)
    """
    return source.startswith("aeron:ipc")


def is_local(channel: str) -> bool:
    """Whether nothing from another host comes over a channel.

    Example:
        >>> is_local("aeron:ipc"), is_local("aeron:udp?endpoint=10.7.0.2:20300")
        (True, False)
    """
    parsed = Channel.parse(channel)
    if parsed.media == "ipc":
        return True
    endpoint = parsed.params.get("endpoint", "")
    address = _address(endpoint)
    return endpoint.startswith("localhost:") or (address is not None and address.is_loopback)


def _is_of(source: str, place: str) -> bool:
    if place == IPC:
        return is_ipc(source)
    address = _address(source)
    return address is not None and address in ipaddress.ip_network(place)


def _address(endpoint: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

"""Hosts with networks of their own, joined by a cable or a switch, on one machine."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError
from tensor_pool.testing import namespaces
from tensor_pool.testing.cluster import Cluster
from tensor_pool.testing.namespaces import ip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Host", "TwoHosts"]

_DEVICE: Final = "eth0"
_SUBNET: Final = "10.77.0"
"""Seen only inside the namespaces, so that any number of networks can have the same."""
_MULTICAST: Final = "224.0.0.0/4"
_MAX_HOSTS: Final = 64


class Host(Cluster):
    """A cluster in a network namespace; made by `TwoHosts`.

    Args:
        netns: Its namespace, with a device that is up.
        address: Its address there.
        settings: As for `Cluster`, and all that follow.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        netns: str,
        address: str,
        driver: bool = True,
        loss: float | None = None,
        loss_seed: int = 1,
    ) -> None:
        self.address: Final = address
        """Where others reach it, such as ``10.77.0.1``; for the endpoint or the interface of a channel."""
        self._namespace: Final = netns
        super().__init__(settings, driver=driver, netns=netns, loss=loss, loss_seed=loss_seed)

    def unplug(self) -> None:
        """Takes it off the network, as a pulled cable does; its own programs still reach each other."""
        ip("-n", self._namespace, "link", "set", _DEVICE, "down")

    def plug_in(self) -> None:
        """Puts it back; may be called without `unplug`."""
        _bring_up(self._namespace)


class TwoHosts(Closing):
    """Hosts on one machine, each with a network, a media driver, an SHM driver and directories of its own.

    Two are joined by a cable (a veth pair), more by a switch (a bridge device). Needs the right to make
    network namespaces, which root has: a test asks `why_not` first. What it makes is gone after `close`;
    what a killed process left is removed by the next one that is made.

    Args:
        settings: Configuration keys with their values, for all hosts.
        count: How many hosts, if not two.
        driver: Whether each gets an SHM driver.
        loss: The part of the UDP messages that each media driver drops; a list has one for each host.
        loss_seed: The same seed drops the same messages; each host counts on from the one before.

    Raises:
        ConfigError: There can't be namespaces here, or a number is out of its range.
        AssertionError: A process did not start; shows what it wrote to standard error.

    Example:
        >>> with TwoHosts() as (left, right):  # doctest: +SKIP
        ...     channel = f"aeron:udp?endpoint={right.address}:40123"
        ...     left.run_python("...")  # runs on the left host
        ...     with right.connect() as pool:  # works from here too
        ...         ...
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        count: int = 2,
        driver: bool = True,
        loss: float | list[float | None] | None = None,
        loss_seed: int = 1,
    ) -> None:
        if not 2 <= count <= _MAX_HOSTS:
            raise ConfigError(f"{count} hosts", hint=f"from 2 to {_MAX_HOSTS}")
        losses = loss if isinstance(loss, list) else [loss] * count
        if len(losses) != count:
            raise ConfigError(f"{len(losses)} rates of loss for {count} hosts", hint="give one for each")
        if reason := self.why_not(count):
            raise ConfigError(reason, hint="run as root, with iproute2 installed")
        namespaces.remove_stale()
        self._resources = contextlib.ExitStack()
        self.hosts: tuple[Host, ...] = ()
        """All of them, in the order of their addresses."""
        try:
            names = [self._make_namespace() for _ in range(count)]
            addresses = [f"{_SUBNET}.{number}" for number in range(1, count + 1)]
            self._lay_cables(names)
            for name, address in zip(names, addresses, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", _DEVICE)
                _bring_up(name)
            for number, (name, address) in enumerate(zip(names, addresses, strict=True)):
                seed = loss_seed + number
                host = Host(
                    settings, netns=name, address=address, driver=driver, loss=losses[number], loss_seed=seed
                )
                self.hosts += (self._resources.enter_context(host),)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def why_not(count: int = 2) -> str | None:
        """Why this machine can't have so many hosts, for the reason of a skipped test; None when it can."""
        return namespaces.why_not(switch=count > 2)

    def _make_namespace(self) -> str:
        name = namespaces.make_namespace()
        self._resources.callback(namespaces.remove_namespace, name)
        return name

    def _lay_cables(self, names: list[str]) -> None:
        """Gives every namespace a device; both ends are made where they stay, so that no name can clash."""
        if len(names) == 2:
            _lay_cable(names[0], _DEVICE, names[1], _DEVICE)
            return
        switch = self._make_namespace()
        # Without snooping it floods multicast, as a plain switch does.
        ip("-n", switch, "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
        ip("-n", switch, "link", "set", "switch", "up")
        for number, name in enumerate(names):
            port = f"port{number}"
            _lay_cable(name, _DEVICE, switch, port)
            ip("-n", switch, "link", "set", port, "master", "switch", "up")

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def close(self) -> None:
        """Ends all processes and removes files and namespaces; may be called again."""
        self._resources.close()


def _lay_cable(left: str, left_device: str, right: str, right_device: str) -> None:
    near = ("link", "add", left_device, "netns", left, "type", "veth")
    ip(*near, "peer", "name", right_device, "netns", right)


def _bring_up(namespace: str) -> None:
    ip("-n", namespace, "link", "set", _DEVICE, "up")
    # A device that went down lost its routes; without this one nobody would know where multicast goes.
    ip("-n", namespace, "route", "replace", _MULTICAST, "dev", _DEVICE)

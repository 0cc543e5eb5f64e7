"""Who may see which streams."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

import msgspec

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.discovery.known import KnownStream

__all__ = ["AccessRule", "Visibility"]


class AccessRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some clients see the streams that have one of the names or one of the tags.

    Args:
        clients: First and last client id of each range; empty for all clients.
        names: Patterns such as ``camera-*``, compared with their case.
        tags: Tags, each as a whole.

    Example:
        >>> AccessRule(clients=((100, 199),), names=("camera-*",)).concerns(150)
        True
    """

    clients: tuple[tuple[int, int], ...] = ()
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for first, last in self.clients:
            if not 0 <= first <= last:
                raise ConfigError(
                    f"a rule of access is about clients {first} to {last}", hint="[FIRST, LAST], from 0 up"
                )
        if not self.names and not self.tags:
            raise ConfigError(
                "a rule of access has neither names nor tags, and so shows nothing",
                hint='names = ["*"] shows everything',
            )

    def concerns(self, client_id: int) -> bool:
        """Whether the rule is about a client."""
        return not self.clients or any(first <= client_id <= last for first, last in self.clients)

    def shows(self, stream: KnownStream) -> bool:
        """Whether the rule shows a stream."""
        return any(fnmatch.fnmatchcase(stream.name, pattern) for pattern in self.names) or any(
            tag in self.tags for tag in stream.tags
        )


class Visibility:
    """All rules together: without any everybody sees everything, with some only what one of them shows.

    A client id is what a client says of itself. Rules keep tidy what people see; they are no protection
    against somebody who lies [DSC-5.1-16], and nothing that is seen can be attached to without the driver.

    Example:
        >>> Visibility(()).is_limited
        False
    """

    def __init__(self, rules: Sequence[AccessRule]) -> None:
        self._rules = tuple(rules)

    @property
    def is_limited(self) -> bool:
        """Whether there are rules at all."""
        return bool(self._rules)

    def sees(self, client_id: int, stream: KnownStream) -> bool:
        """Whether a client sees a stream."""
        return not self._rules or any(rule.concerns(client_id) and rule.shows(stream) for rule in self._rules)

"""Where messages of discovery come from and go to."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - a field of a named tuple
from typing import NamedTuple

from tensor_pool.discovery.authority import Authority  # noqa: TC001 - a field of a named tuple

__all__ = ["Endpoint", "HeardDriver"]


class Endpoint(NamedTuple):
    """An Aeron stream."""

    channel: str
    stream_id: int


class HeardDriver(NamedTuple):
    """Where a driver, or many, are heard."""

    announces: Endpoint
    metadata: Endpoint
    authority: Authority | None
    """The driver; None where drivers say who they are."""
    speaks: Callable[[int], bool] = lambda _: True
    """Whether announces of a session are the driver's: others may use the same stream."""

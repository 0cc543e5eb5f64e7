"""Where messages of discovery come from and go to."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - a field of a named tuple
from typing import NamedTuple

from tensor_pool.channels import Endpoint  # noqa: TC001 - a field of a named tuple
from tensor_pool.discovery.authority import Authority  # noqa: TC001 - a field of a named tuple

__all__ = ["HeardDriver"]


class HeardDriver(NamedTuple):
    """Where a driver, or many, are heard."""

    announces: Endpoint
    metadata: Endpoint
    authority: Authority | None
    """The driver; None where drivers say who they are."""
    speaks: Callable[[int], bool] = lambda _: True
    """Whether announces of a session are the driver's: others may use the same stream."""

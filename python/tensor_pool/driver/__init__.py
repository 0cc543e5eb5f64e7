"""The SHM driver: owner of files, epochs, leases and announces.

`Driver` runs one; `DriverAgent` is the agent inside it. What they decide lives in nouns without I/O: the
`LeaseBook`, the `StreamRegistry`, the `EndedEpochs`; `EpochFiles` is the only part that touches files.

Example:
    >>> from tensor_pool.driver.config import DriverSection
    >>> DriverSection().keepalive_interval_ms
    1000
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensor_pool.driver.agent import DriverAgent
    from tensor_pool.driver.config import DriverSection
    from tensor_pool.driver.service import Driver

__all__ = ["Driver", "DriverAgent", "DriverSection"]

_LAZY = {
    "Driver": "tensor_pool.driver.service",
    "DriverAgent": "tensor_pool.driver.agent",
    "DriverSection": "tensor_pool.driver.config",
}
"""Loaded when used: reading the configuration of a client must not load a server."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What turns the time stamps of frames into real time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tensor_pool.pool.metadata import CLOCK_DOMAIN, CLOCK_OFFSET

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["clock_offset_ns"]


def clock_offset_ns(metadata: Mapping[str, Any]) -> int | None:
    """Real time minus the clock of a stream's time stamps; None when no clock of a computer made them.

    Args:
        metadata: What its producer says. Where it says nothing, stamps are of this host's monotonic clock.

    Example:
        >>> clock_offset_ns({"clock.domain": "monotonic", "clock.realtime_offset_ns": 17})
        17
        >>> clock_offset_ns({"clock.domain": "realtime_synced"})
        0
        >>> clock_offset_ns({"clock.domain": "sensor"}) is None
        True
    """
    domain = metadata.get(CLOCK_DOMAIN, "monotonic")
    if domain == "realtime_synced":
        return 0
    if domain != "monotonic":
        return None
    said = metadata.get(CLOCK_OFFSET)
    return said if isinstance(said, int) else time.time_ns() - time.monotonic_ns()

"""Which clock the time stamps of a stream's frames are of, and whether it can be read here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.errors import TensorPoolError
from tensor_pool.pool.metadata import CLOCK_DOMAIN, CLOCK_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FrameClock", "clock_row", "frame_clock"]

_CLOCK_ERROR: Final = "clock.error_budget_ns"
_SAME_CLOCK_NS: Final = 1_000_000_000
"""Two hosts, or one host before and after a restart, differ by more than a second."""


class FrameClock(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that can be read here, and how wrong it may be."""

    domain: str
    is_assumed: bool = False
    """Whether nobody said which clock it is."""
    error_ns: int = 0

    @property
    def read_ns(self) -> Callable[[], int]:
        """Reads it."""
        return time.monotonic_ns if self.domain == "monotonic" else time.time_ns


def frame_clock(
    metadata: Mapping[str, Any], *, stream: str, realtime_offset_ns: int | None = None
) -> FrameClock:
    """The clock that dates a stream's frames.

    Args:
        metadata: What the producer says of the stream.
        stream: What to call the stream.
        realtime_offset_ns: Real time minus monotonic time on this host; read now when left out.

    Raises:
        TensorPoolError: It can't be read here; says which one it is.

    Example:
        >>> said = {"clock.domain": "realtime_synced", "clock.error_budget_ns": 5_000}
        >>> frame_clock(said, stream="camera-1").error_ns
        5000
        >>> frame_clock({"clock.domain": "sensor"}, stream="camera-1")
        Traceback (most recent call last):
        tensor_pool.errors.TensorPoolError: the time stamps of camera-1 are of the clock 'sensor', which ...
    """
    domain = metadata.get(CLOCK_DOMAIN)
    if domain is None:
        # What the specification says where nothing else is said.
        return FrameClock(domain="monotonic", is_assumed=True)
    if domain == "realtime_synced":
        error_ns = metadata.get(_CLOCK_ERROR)
        return FrameClock(domain=domain, error_ns=error_ns if isinstance(error_ns, int) else 0)
    if domain != "monotonic":
        raise TensorPoolError(
            f"the time stamps of {stream} are of the clock {domain!r}, which can't be read here",
            hint="`tpool hz` measures without time stamps",
        )
    said_ns = metadata.get(CLOCK_OFFSET)
    here_ns = time.time_ns() - time.monotonic_ns() if realtime_offset_ns is None else realtime_offset_ns
    if isinstance(said_ns, int) and abs(said_ns - here_ns) > _SAME_CLOCK_NS:
        raise TensorPoolError(
            f"the time stamps of {stream} are of the monotonic clock of another host, or of another boot",
            hint='a producer with clock="realtime" on synchronised hosts can be compared; '
            "`tpool hz` measures without time stamps",
        )
    return FrameClock(domain=domain)


def clock_row(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The clock as people see it.

    Example:
        >>> clock_row({"clock.domain": "monotonic", "clock.realtime_offset_ns": 17})
        {'domain': 'monotonic', 'realtime_offset_ns': 17, 'error_budget_ns': None}
    """
    return {
        "domain": metadata.get(CLOCK_DOMAIN),
        "realtime_offset_ns": metadata.get(CLOCK_OFFSET),
        "error_budget_ns": metadata.get(_CLOCK_ERROR),
    }

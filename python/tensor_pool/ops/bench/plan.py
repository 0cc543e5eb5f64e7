"""What a benchmark measures, and what comes out of it."""

from __future__ import annotations

import enum
import time
from typing import Final

import msgspec

from tensor_pool.pool.config import WakeProfile  # noqa: TC001 - msgspec reads it when decoding

__all__ = ["BenchMode", "BenchPlan", "BenchResult", "PeerReport", "Report", "STREAM", "measure_memcpy"]

_MEMCPY_S: Final = 0.3
_MOST_MEMCPY_BYTES: Final = 1 << 30
"""Beyond every cache; more memory would make no difference to memcpy, but perhaps to the machine."""
STREAM: Final = "bench"
"""The name of the stream."""


class BenchMode(enum.StrEnum):
    """What is measured."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What both processes do.

    Example:
        >>> BenchPlan(mode=BenchMode.LATENCY, rate_hz=100.0).footprint_bytes
        67108864
    """

    mode: BenchMode
    config_file: str = ""
    """How to find the host; filled in when there is one."""
    profile: WakeProfile = "balanced"
    frame_bytes: int = 1 << 20
    rate_hz: float | None = None
    """None for as fast as it goes."""
    seconds: float = 3.0
    slots: int = 64
    loan: bool = False
    """Publish slots as they are instead of copying a frame into each."""

    @property
    def footprint_bytes(self) -> int:
        """How much memory the frames go round in."""
        return self.frame_bytes * self.slots


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of a benchmark says of itself."""

    role: str
    event: str
    """``ready``, ``progress``, ``done`` or ``failed``."""
    error: str = ""
    """Why it failed."""
    hint: str | None = None


class PeerReport(Report, frozen=True, kw_only=True):
    """What one of the two processes says: while it goes on, and at its end."""

    frames: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    missed: int = 0
    min_us: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: float | None = None


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; the names are the keys of JSON output."""

    mode: BenchMode
    profile: str
    loan: bool
    frame_bytes: int
    slots: int
    rate_hz: float | None
    seconds: float
    published: int
    received: int
    missed: int
    frames_per_s: float
    """Received."""
    gb_per_s: float
    """Of the frames that were received; with loans nothing was copied."""
    memcpy_gb_per_s: float
    """What one core copies between buffers of the same sizes."""
    of_memcpy: float
    min_us: float | None
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    max_us: float | None
    producer_cpu_s: float
    consumer_cpu_s: float


def measure_memcpy(frame_bytes: int, slots: int, *, seconds: float = _MEMCPY_S) -> float:
    """How many GB/s one core copies, from one buffer into many that it goes through in turn.

    Example:
        >>> measure_memcpy(65_536, 4, seconds=0.01) > 0
        True
    """
    import numpy as np  # noqa: PLC0415 - the plan itself needs none

    frame_bytes = min(frame_bytes, _MOST_MEMCPY_BYTES)
    slots = min(slots, _MOST_MEMCPY_BYTES // frame_bytes)
    source = np.ones(frame_bytes, np.uint8)
    target = np.zeros((slots, frame_bytes), np.uint8)
    target[:] = 1  # its pages exist from now on, as those of a ring do
    copies, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for slot in target:
            np.copyto(slot, source)
        copies += slots
    return copies * frame_bytes / elapsed / 1e9

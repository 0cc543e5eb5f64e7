"""What the benchmark of the bridge measures, and what comes out of it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tensor_pool.ops.bench.plan import Report

__all__ = ["DEST", "PHASES", "SOURCE", "BridgePlan", "BridgeResult", "EndReport", "Phase", "PhaseReport"]

SOURCE: Final = 10_000
DEST: Final = 50_000

Phase = Literal["fast", "steady"]
PHASES: Final[tuple[Phase, Phase]] = ("fast", "steady")
"""As fast as it goes, for the throughput; then at a rate, for the delay that a camera sees."""


class BridgePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What both ends do."""

    config_file: str = ""
    """How to find the host; filled in when there is one."""
    frame_bytes: int = 640 << 10
    rate_hz: float = 50.0
    """Of the second phase."""
    seconds: float = 2.0
    """Of each phase."""
    slots: int = 16
    mtu: int = 8192
    """Bytes of a packet."""


class PhaseReport(msgspec.Struct, kw_only=True):
    """What one end saw of one phase."""

    frames: int = 0
    seconds: float = 0.0
    """From the first frame to the last."""
    p50_us: float | None = None
    p99_us: float | None = None
    max_us: float | None = None


class EndReport(Report, frozen=True, kw_only=True):
    """What one end says: while it goes on, and at its end."""

    phases: dict[str, PhaseReport] = msgspec.field(default_factory=dict)
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    """Frames that its bridge did not send or gave up, by reason."""
    cpu_seconds: float = 0.0


class BridgeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; the names are the keys of JSON output."""

    frame_bytes: int
    mtu: int
    slots: int
    rate_hz: float
    """At which the delay was measured; the throughput as fast as it goes."""
    mib_per_s: float
    frames_per_s: float
    p50_us: float | None
    p99_us: float | None
    max_us: float | None
    """From the start of publishing a frame until its consumer has it."""
    published: int
    received: int
    loss: float
    """The part of the frames that did not arrive."""
    lost: dict[str, int]
    """By reason, at both ends; ``unread`` are those that the consumer came too late for."""
    sender_cpu_s: float
    receiver_cpu_s: float
    """Of the processes, who publishes and reads included."""

"""What a pair of processes does, and what comes out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

PEERS: Final = Path(__file__).parent.parent.parent / ".build" / "bench-peers"
"""Where `make bench` installs the other libraries; nothing else ever sees them."""

LinkName = Literal["pool", "iceoryx2", "zmq", "plain"]
WaitName = Literal["sleep", "waitset", "spin"]


class LinkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair of processes does."""

    link: LinkName
    copy: bool = False
    """Copy in and copy out, rather than fill and look in place."""
    wait: WaitName = "sleep"
    """Whether the receiver sleeps until it is woken (iceoryx2 alone: as one of many), or never sleeps."""
    frame_bytes: int = 1 << 20
    slots: int = 16
    """How many frames may be under way."""
    seconds: float = 2.0
    rate_hz: float | None = None
    """None: as fast as it goes."""
    idle_s: float = 0.0
    """How long the receiver waits before anything is sent, to see what waiting costs."""
    name: str = "bench"
    settings: dict[str, Any] = {}
    """Configuration of the pool's processes."""

    @property
    def words(self) -> int:
        """The length of a frame in 64-bit words."""
        return self.frame_bytes // 8


class SenderReport(msgspec.Struct, frozen=True, kw_only=True):
    """What sending took."""

    frames: int
    cpu_s: float
    """CPU time of the sending process: what other programs on the machine change least."""


class LinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the receiver saw of the frames, each of them checked."""

    frames: int
    lost: int
    """Numbers between the first and the last that never came, or were overwritten while read."""
    seconds: float
    """From the first frame to the last."""
    cpu_s: float
    """CPU time that the receiving process took for it, all its threads together."""
    idle_cpu: float
    """CPU time a second while it waited for nothing."""
    p50_us: float
    p99_us: float
    p999_us: float
    sender: SenderReport | None = None

    @property
    def send_cpu_us(self) -> float:
        """CPU time of sending one frame."""
        return self.sender.cpu_s / self.sender.frames * 1e6 if self.sender and self.sender.frames else 0.0

    @property
    def receive_cpu_us(self) -> float:
        """CPU time of receiving one frame; with a receiver that never sleeps it says little."""
        return self.cpu_s / self.frames * 1e6 if self.frames else 0.0

    @property
    def frames_per_s(self) -> float:
        """Frames that were received and found whole."""
        return (self.frames - 1) / self.seconds if self.frames > 1 else 0.0


def peers_installed() -> bool:
    """Whether the other libraries are there."""
    return (PEERS / "iceoryx2").is_dir() and (PEERS / "zmq").is_dir()

"""What a pair of processes does, and what comes out of it."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

__all__ = ["DEST", "SOURCE", "EndReport", "PairReport", "StreamPlan"]

SOURCE: Final = 10_000
DEST: Final = 50_000
GIGA: Final = 1e9


class StreamPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair of processes does."""

    way: Literal["bridge", "bare"]
    frame_bytes: int
    mtu: int = 8192
    term_length: str = ""
    """Of the payload channel, as Aeron writes sizes; empty for the media driver's own."""
    channel: str = ""
    """More parameters of the payload channel, such as ``rcv-wnd=512k``."""
    buffers: int = 16
    """How many frames both ends go round in: slots of the bridge's rings, memory of the bare stream's."""
    rate_hz: float = 0.0
    """0: as fast as it goes."""
    frames: int = 0
    """How many are sent, and then no more; 0: until the measurement ends."""
    loss: float | None = None
    """The part of all UDP messages that the media driver drops."""
    seconds: float = 3.0
    warm_up_s: float = 1.0
    settings: dict[str, Any] = {}
    """Configuration of the processes."""

    @property
    def words(self) -> int:
        """The length of a frame in 64-bit words."""
        return self.frame_bytes // 8


class EndReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one end did between the beginning and the end of the measurement."""

    frames: int
    nbytes: int
    seconds: float
    cpu_s: float
    """User and system time of the process."""
    user_cpu_s: float = 0.0
    """The part of it that the producer or the consumer took, who are not the bridge's."""
    p50_us: float = 0.0
    p99_us: float = 0.0
    """From the moment a frame was published until it could be read at its destination."""
    dropped: dict[str, int] = {}
    """Frames that did not arrive, by reason."""


class PairReport(msgspec.Struct, frozen=True, kw_only=True):
    """What both ends did, and what it cost."""

    sent: EndReport
    received: EndReport
    media_cpu_s: float
    """User and system time of the media driver."""

    @property
    def bytes_per_s(self) -> float:
        """Payload that arrived."""
        return self.received.nbytes / self.received.seconds

    @property
    def send_cpu_s_a_gb(self) -> float:
        """CPU time of the sending process for 10^9 bytes that arrived."""
        return self.sent.cpu_s / self._gigabytes

    @property
    def receive_cpu_s_a_gb(self) -> float:
        """The same of the receiving process."""
        return self.received.cpu_s / self._gigabytes

    @property
    def media_cpu_s_a_gb(self) -> float:
        """The same of the media driver."""
        return self.media_cpu_s / self._gigabytes

    @property
    def ends_cpu_s_a_gb(self) -> float:
        """The same of both ends together, without the media driver."""
        return self.send_cpu_s_a_gb + self.receive_cpu_s_a_gb

    @property
    def bridges_cpu_s_a_gb(self) -> float:
        """The same without those who publish and read."""
        users_cpu_s = self.sent.user_cpu_s + self.received.user_cpu_s
        return self.ends_cpu_s_a_gb - users_cpu_s / self._gigabytes

    @property
    def _gigabytes(self) -> float:
        return max(self.received.nbytes, 1) / GIGA

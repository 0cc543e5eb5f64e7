"""How a consumer reads: what a program asked for."""

from __future__ import annotations

import msgspec

from tensor_pool.wire.messages import Mode

__all__ = ["ConsumerOptions", "Start"]

Start = str | int
"""``"latest"``, ``"oldest"`` or a sequence number."""


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer reads."""

    start: Start = "latest"
    mode: Mode = Mode.STREAM
    max_rate_hz: float = 0
    progress: bool = False
    own_stream: bool = False
    attach: bool = True
    shm: bool = True
    fallback_uri: str = ""
    """Where chunks are when nobody says so."""
    copy_mode: bool = False
    relaxed_stride: bool = False
    max_outstanding_seq_gap: int = 256

    @property
    def whole_rate_hz(self) -> int:
        """The rate as a hello tells it; 0 for one that no whole number tells, which is kept here alone."""
        return int(self.max_rate_hz) if float(self.max_rate_hz).is_integer() else 0

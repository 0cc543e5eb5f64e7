"""Which driver is responsible for a stream."""

from __future__ import annotations

import msgspec

__all__ = ["Authority"]


class Authority(msgspec.Struct, frozen=True):
    """A driver, and where it is asked for leases. Announces don't say it; whoever listens to them knows it.

    Example:
        >>> Authority("lab-3", "aeron:ipc?term-length=4m", 1000).can_be_asked
        True
    """

    instance_id: str
    control_channel: str
    control_stream_id: int
    host: str = ""
    """What its host is called; empty where nobody said so."""

    @property
    def can_be_asked(self) -> bool:
        """Whether a client could attach there: without an endpoint its streams are never shown."""
        return bool(self.control_channel) and self.control_stream_id != 0

"""How a recording is replayed, and what became of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from tensor_pool.pipeline.record.selection import Moment, TimeOf

__all__ = ["ReplayOptions", "ReplayStats", "ReplayedStream"]

_MIB: Final = 1 << 20


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a recording is replayed.

    Example:
        >>> ReplayOptions(speed=2.0).loop
        False
        >>> ReplayOptions(rename={"camera-1": "test-camera"}, prefix="replay/").published_as("camera-1")
        'test-camera'
        >>> ReplayOptions(prefix="replay/").published_as("camera-1")
        'replay/camera-1'
    """

    streams: tuple[str, ...] = ()
    """Which streams; none for all."""
    start: Moment = None
    """From when: seconds from the start of the recording, or a time; as text too."""
    end: Moment = None
    """Until when."""
    time_of: TimeOf = "event"
    """Which time orders and spaces frames: when they were taken, or when they were recorded."""
    speed: float = 1.0
    """2 for twice as fast, 0 for as fast as possible."""
    loop: bool = False
    """Begin again at the end."""
    keep_timestamps: bool = False
    """Publish the recorded time stamps, and not the present time."""
    rename: dict[str, str | int] = {}
    """Other names, or ids, for streams."""
    prefix: str = ""
    """What the names of all other streams begin with."""
    wait_consumers: int = 0
    """Begin when each stream has so many consumers."""
    slots: int | None = None
    """How many frames the ring of each stream holds; a power of two."""
    late_s: float = 0.01
    """A frame that comes so much later than it should is late."""
    read_ahead_bytes: int = 64 * _MIB
    """How much is read before it is due."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speed) and self.speed >= 0):
            raise ConfigError(f"speed={self.speed!r}", hint="1 for as recorded, 0 for as fast as possible")
        if self.time_of not in {"event", "recorded"}:
            raise ConfigError(f"time_of={self.time_of!r}", hint="event or recorded")
        if self.wait_consumers < 0 or self.late_s < 0 or self.read_ahead_bytes <= 0:
            raise ConfigError(
                "a number below 0", hint="wait_consumers, late_s and read_ahead_bytes have none"
            )

    def published_as(self, stream: str) -> str | int:
        """What a stream is called when it is replayed."""
        return self.rename.get(stream, f"{self.prefix}{stream}")


class ReplayedStream(msgspec.Struct, kw_only=True):
    """What became of one stream so far."""

    published_as: str = ""
    frames: int = 0
    nbytes: int = 0
    late: int = 0
    """Frames that were published later than they should have been."""
    worst_late_s: float = 0.0
    """The one that was late by the most."""
    damaged: int = 0
    """Frames that are not what was recorded, or can't be read; they were left out."""
    skipped: int = 0
    """Frames that no slot can carry; they were left out."""
    missing: int = 0
    """Frames that the recording itself says are missing."""


class ReplayStats(msgspec.Struct, kw_only=True):
    """What became of a replay so far.

    Example:
        >>> ReplayStats(streams={"a": ReplayedStream(frames=2), "b": ReplayedStream(frames=3)}).frames
        5
    """

    streams: dict[str, ReplayedStream] = {}
    rounds: int = 0
    """How often the end was reached."""
    position_s: float = 0.0
    """Where in the recording it is, from the first moment that is replayed."""
    length_s: float = 0.0
    seconds: float = 0.0
    """How long it has run, without waiting for consumers."""
    is_waiting: bool = False
    """Whether it still waits for consumers."""

    def _total(self, name: str) -> Any:
        return sum(getattr(stream, name) for stream in self.streams.values())

    @property
    def frames(self) -> int:
        """Frames that were published."""
        return int(self._total("frames"))

    @property
    def nbytes(self) -> int:
        """Their bytes."""
        return int(self._total("nbytes"))

    @property
    def late(self) -> int:
        """Frames that were published late."""
        return int(self._total("late"))

    @property
    def damaged(self) -> int:
        """Frames that could not be read."""
        return int(self._total("damaged"))

    @property
    def skipped(self) -> int:
        """Frames that could not be published."""
        return int(self._total("skipped"))

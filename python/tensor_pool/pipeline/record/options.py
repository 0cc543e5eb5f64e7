"""How a recorder works, and what it has done."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tensor_pool.errors import ConfigError

__all__ = ["RecorderOptions", "StreamProgress", "SyncPolicy"]

SyncPolicy = Literal["frame", "interval", "seal"]

_MIB: Final = 1 << 20


class RecorderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How streams are recorded.

    ========== ==================================================== ==========================================
    sync       rows survive a crash of the machine                  costs
    ========== ==================================================== ==========================================
    frame      at once                                              a wait for the disk for each frame
    interval   after a second or 64 MiB, whichever comes first      hardly anything
    seal       when their segment is full                           nothing
    ========== ==================================================== ==========================================

    A crash of the recorder alone loses at most what was not written yet, whatever the policy.

    Example:
        >>> RecorderOptions(sync="frame").segment_bytes
        134217728
    """

    sync: SyncPolicy = "interval"
    sync_interval_s: float = 1.0
    sync_bytes: int = 64 * _MIB
    segment_bytes: int = 128 * _MIB
    """A segment that is this long is sealed."""
    segment_s: float = 60.0
    """So is one that is this old."""
    silence_s: float = 5.0
    """And one to which nothing was added for so long."""
    max_backlog_bytes: int | None = None
    """Frames of a stream that wait for the disk; beyond, they are dropped and counted.

    By default all streams together may take an eighth of the memory that is free, and each of them 64 MiB to
    2 GiB.
    """
    keep_bytes: int | None = None
    """Remove the oldest segments of a stream beyond this."""
    keep_s: float | None = None
    """Remove segments whose last frame was recorded longer ago than this."""
    start: Literal["latest", "oldest"] = "latest"
    """Begin with the newest frame, or with the oldest one that is still there."""

    def __post_init__(self) -> None:
        for name in (
            "sync_interval_s",
            "sync_bytes",
            "segment_bytes",
            "segment_s",
            "silence_s",
            "max_backlog_bytes",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}={value!r}", hint="a number above 0")


class StreamProgress(msgspec.Struct, kw_only=True):
    """What became of one stream so far."""

    frames: int = 0
    nbytes: int = 0
    lost: int = 0
    """Frames that were never seen, by their missing numbers."""
    dropped: int = 0
    """Frames that were seen and not written, because the disk was too slow or failed."""
    segments: int = 0
    epoch: int | None = None
    last_seq: int | None = None
    """The newest frame in the file."""
    durable_seq: int | None = None
    """The newest frame that survives a crash of the machine; everything before it does too."""
    backlog_bytes: int = 0
    error: str | None = None
    """Why nothing can be written at the moment."""

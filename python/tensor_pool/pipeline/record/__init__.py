"""Streams on disk: recording, reading, checking, replaying, exporting.

=============  ========================================================================================
`recorder`     records streams of a pool
`recording`    reads recordings, here and elsewhere
`reading`      reads segments, also while they are written
`verify`       finds what a crash or a bad disk did, and repairs what can be
`replay`       publishes a recording back into a pool
`export`       writes a recording as files of other formats
=============  ========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.pipeline.lazy import lazy_names

if TYPE_CHECKING:
    from tensor_pool.pipeline.record.options import RecorderOptions, StreamProgress
    from tensor_pool.pipeline.record.recorder import Recorder
    from tensor_pool.pipeline.record.recording import Recording
    from tensor_pool.pipeline.record.replay import Replay
    from tensor_pool.pipeline.record.replay_options import ReplayOptions, ReplayStats

__all__ = [
    "Recorder",
    "RecorderOptions",
    "Recording",
    "Replay",
    "ReplayOptions",
    "ReplayStats",
    "StreamProgress",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Recorder": "recorder",
        "RecorderOptions": "options",
        "Recording": "recording",
        "Replay": "replay",
        "ReplayOptions": "replay_options",
        "ReplayStats": "replay_options",
        "StreamProgress": "options",
    },
)

"""Streams on disk: recording, reading, checking.

=============  ========================================================================================
`recorder`     records streams of a pool
`reading`      reads segments, also while they are written
`verify`       finds what a crash or a bad disk did, and repairs what can be
=============  ========================================================================================
"""

from __future__ import annotations

from tensor_pool.pipeline.record.options import RecorderOptions, StreamProgress
from tensor_pool.pipeline.record.recorder import Recorder

__all__ = ["Recorder", "RecorderOptions", "StreamProgress"]

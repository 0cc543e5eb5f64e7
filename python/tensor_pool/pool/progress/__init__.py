"""Progress of frames that are still being written: who tells how often, and who believes what.

None of it makes a frame available. Its commit does.
"""

from __future__ import annotations

from tensor_pool.pool.progress.throttle import ProgressHints, ProgressPolicy, ProgressThrottle
from tensor_pool.pool.progress.tracker import ProgressCounts, ProgressTracker, TrackedFrame

__all__ = [
    "ProgressCounts",
    "ProgressHints",
    "ProgressPolicy",
    "ProgressThrottle",
    "ProgressTracker",
    "TrackedFrame",
]

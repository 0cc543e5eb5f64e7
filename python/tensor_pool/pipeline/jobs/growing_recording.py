"""A recording that is written while it is read."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from tensor_pool.pipeline.record.recording import Recording

if TYPE_CHECKING:
    import os

__all__ = ["GrowingRecording"]

_FRESH_S: Final = 1.0
"""However often somebody asks, catalogues are read once in this time: they may lie far away."""


class GrowingRecording:
    """What is known of a recording, looked up again when that was long ago. For any thread.

    Args:
        where: Its directory, or a URI.

    Raises:
        RegionError: There is no recording.
    """

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.place: Final = where
        self._lock = threading.Lock()
        self._known = Recording(where)
        self._looked_s = time.monotonic()

    def now(self) -> Recording:
        """What is in it, or was at most a second ago.

        Raises:
            RegionError: It is gone.
            MalformedMessageError: A catalogue can't be understood.
        """
        with self._lock:
            if time.monotonic() - self._looked_s >= _FRESH_S:
                self._known, self._looked_s = Recording(self.place), time.monotonic()
            return self._known

"""What is said of frames, as lines of a CSV file."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from tensor_pool.closing import Closing
from tensor_pool.pipeline.record.formats.writer import COLUMNS, describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tensor_pool.pipeline.record.recording import RecordedFrame

__all__ = ["FrameLines"]


class FrameLines(Closing):
    """Writes a line for each frame or gap.

    Args:
        path: The file.
        stream: The stream's name.
        more: Names of columns before those of every export.
    """

    def __init__(self, path: Path, stream: str, more: Sequence[str] = ()) -> None:
        self._stream = stream
        self._file = path.open("w", encoding="utf-8", newline="")
        self._lines = csv.writer(self._file, lineterminator="\n")
        self._lines.writerow([*more, *COLUMNS.names])

    def add(self, frame: RecordedFrame, status: str = "ok", *more: object) -> None:
        """Writes the line of a frame; shapes as ``480x640``, what is not known as nothing."""
        about = describe(self._stream, frame, status)
        about["shape"] = "x".join(map(str, about["shape"]))
        self._lines.writerow([*more, *(about[name] for name in COLUMNS.names)])

    def close(self) -> None:
        """Closes the file. May be called again."""
        self._file.close()

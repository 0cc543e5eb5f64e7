"""The metadata of a stream as lines of JSON: one for each change, with the frame that it begins with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tensor_pool.closing import Closing
from tensor_pool.pipeline.record.formats.writer import plain_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tensor_pool.pipeline.record.recording import RecordedFrame

__all__ = ["MetadataChanges", "MetadataLines"]


class MetadataChanges:
    """Notices when the metadata of frames changes."""

    def __init__(self) -> None:
        self._told: Mapping[str, Any] | None = None
        self._text = json.dumps({})

    def of(self, frame: RecordedFrame) -> dict[str, Any] | None:
        """What is new with a frame; None when nothing is."""
        if frame.metadata is self._told:
            return None
        self._told = frame.metadata
        metadata = plain_metadata(frame.metadata)
        text = json.dumps(metadata, sort_keys=True)
        if text == self._text:
            return None
        self._text = text
        return {"epoch": frame.row.epoch, "seq": frame.row.seq, "metadata": metadata}


class MetadataLines(Closing):
    """Writes them to a file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._changes = MetadataChanges()

    def note(self, frame: RecordedFrame) -> None:
        """Writes a line if the metadata of a frame is new."""
        change = self._changes.of(frame)
        if change is not None:
            self._file.write(json.dumps(change) + "\n")

    def close(self) -> None:
        """Closes the file. May be called again."""
        self._file.close()

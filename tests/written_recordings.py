"""Recordings made without a pool, frame by frame as a test wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tensor_pool.pipeline.record.catalogue import Catalogue, stream_directory
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.record.rows import Row
from tensor_pool.pipeline.record.store import StreamStore
from tensor_pool.pool.metadata import to_attribute

START_NS = 1_700_000_000_000_000_000
"""When recordings of tests begin, real time."""
CLOCK_NS = START_NS - 1_000
"""Real time minus the clock of their frames."""
STEP_NS = 10_000_000
"""Their frames come a hundred times a second."""

MIXED = [
    np.arange(12, dtype="uint16").reshape(3, 4),
    np.asfortranarray(np.arange(6, dtype="float64").reshape(2, 3)),
    np.zeros((3, 0, 2), "float32"),
    np.array([True, False, True]),
    np.arange(12, 24, dtype="uint16").reshape(3, 4),
    np.array([-(2**63), 2**63 - 1], "int64"),
]
"""What one stream may hold."""


class RecordingWriter:
    """Writes one stream of a recording."""

    def __init__(
        self, recording: Path, stream: str | int = "camera-1", *, segment_bytes: int = 4_000
    ) -> None:
        self.recording = recording
        about = (
            Catalogue(stream_name=stream, stream_id=10_000)
            if isinstance(stream, str)
            else Catalogue(stream_id=stream)
        )
        options = RecorderOptions(segment_bytes=segment_bytes)
        self._store = StreamStore(stream_directory(recording, stream), options, about=about)
        self._common: dict[str, Any] = {"stream_id": 10_000, "epoch": 7, "realtime_offset_ns": CLOCK_NS}
        self.seq = 0

    def metadata(self, version: int = 1, **values: Any) -> None:
        common = self._common | {"meta_version": version, "recorded_ns": self._at_ns() + 500}
        self._common["meta_version"] = version
        row = Row(kind="metadata", seq=self.seq, count=0, **common)
        content = msgspec.json.encode([to_attribute(key, value) for key, value in values.items()])
        self._store.append(row, content, now_ns=0)
        self._store.set_head([(row, content)])

    def frame(self, array: np.ndarray, **changes: Any) -> None:
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        fields = {
            "seq": self.seq,
            "timestamp_ns": self._at_ns() - CLOCK_NS,
            "recorded_ns": self._at_ns() + 500,
            "dtype": array.dtype.name,
            "shape": array.shape,
            "order": order,
        }
        row = Row(kind="frame", **(self._common | fields | changes))
        self._store.append(row, array.ravel(order="K"), now_ns=0)
        self.seq = row.seq + 1

    def gap(self, count: int, status: str = "lost") -> None:
        times = {"timestamp_ns": self._at_ns() - CLOCK_NS, "recorded_ns": self._at_ns() + 500}
        row = Row(kind="gap", seq=self.seq, count=count, status=status, **(self._common | times))
        self._store.append(row, now_ns=0)
        self.seq += count

    def close(self) -> Recording:
        self._store.close()
        return Recording(self.recording)

    def _at_ns(self) -> int:
        return START_NS + self.seq * STEP_NS


def numbered(recording: Path, stream: str | int = "camera-1", count: int = 20, **changes: Any) -> Recording:
    """Frames whose values are their numbers."""
    writer = RecordingWriter(recording, stream)
    writer.metadata(exposure_ms=1.5)
    for seq in range(count):
        writer.frame(np.full((2, 3), seq, "uint16"), **changes)
    return writer.close()


def damage_frame(recording: Path, values: np.ndarray, stream: str = "camera-1") -> None:
    """Flips a bit of the frame that has these values."""
    for path in stream_directory(recording, stream).glob("*.arrow"):
        content = bytearray(path.read_bytes())
        at = content.find(values.tobytes())
        if at >= 0:
            content[at] ^= 0xFF
            path.write_bytes(content)
            return
    raise AssertionError("no frame has these values")


def damage_table(recording: Path, number: int, stream: str = "camera-1") -> None:
    """Flips a bit of the table of a segment."""
    path = stream_directory(recording, stream) / f"{number:08}.rows"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)

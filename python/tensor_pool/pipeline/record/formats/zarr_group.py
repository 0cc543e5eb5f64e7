"""A stream as a group of Zarr arrays (version 3): frames first, one chunk a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from tensor_pool.pipeline.record.contents import Layout
from tensor_pool.pipeline.record.formats.metadata_lines import MetadataChanges
from tensor_pool.pipeline.record.formats.writer import StreamWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.formats.writer import StreamOutput
    from tensor_pool.pipeline.record.recording import RecordedFrame

__all__ = ["ZarrGroup"]

_CHUNK: Final = 4096
"""Frames whose numbers and times are in one chunk."""
_TOGETHER: Final = 8
_TOGETHER_BYTES: Final = 16 << 20
"""So many frames are given to Zarr at a time, which writes their chunks side by side."""
_NUMBERS: Final = ("epoch", "seq", "timestamp_ns", "event_ns", "recorded_ns")
_UNKNOWN: Final = -1


class ZarrGroup(StreamWriter):
    """A group ``camera-1`` with ``frames``, their numbers and times, and gaps and metadata as attributes.

    Frames of several element types or shapes are in groups of their own in it, such as ``uint16-480x640``.
    An ``event_ns`` of -1 means that no clock says when.

    Args:
        output: Where to.
    """

    def __init__(self, output: StreamOutput) -> None:
        self.name = output.file
        root = zarr.open_group(str(output.directory), mode="a", zarr_format=3)
        self._group = root.create_group(output.file)
        self._output = output
        self._arrays: dict[Layout, _Arrays] = {}
        self._changes = MetadataChanges()
        self._metadata: list[dict[str, Any]] = []
        self._missing: list[dict[str, Any]] = []

    def write(self, frame: RecordedFrame, array: NDArray[Any]) -> None:
        """See `StreamWriter`."""
        change = self._changes.of(frame)
        if change is not None:
            self._metadata.append(change)
        layout = Layout(frame.row.dtype, frame.row.shape)
        if layout not in self._arrays:
            contents = self._output.contents
            group = self._group if contents.layout is not None else self._group.create_group(layout.label)
            compressors = None if self._output.compression == "none" else ZstdCodec()
            self._arrays[layout] = _Arrays(group, layout, contents.layouts[layout], compressors)
        self._arrays[layout].append(frame, array)

    def miss(self, gap: RecordedFrame, status: str) -> None:
        """See `StreamWriter`."""
        row = gap.row
        self._missing.append(
            {
                "epoch": row.epoch,
                "seq": row.seq,
                "count": row.count,
                "status": status,
                "timestamp_ns": row.timestamp_ns,
                "recorded_ns": row.recorded_ns,
            }
        )

    def finish(self) -> None:
        """See `StreamWriter`."""
        for arrays in self._arrays.values():
            arrays.finish()
        first = self._metadata[0]["metadata"] if self._metadata else {}
        self._group.update_attributes(
            {
                "stream": self._output.stream,
                "metadata": first,
                "metadata_changes": self._metadata[1:],
                "missing": self._missing,
            }
        )

    def close(self) -> None:
        """Nothing is open between two chunks."""


class _Arrays:
    """The arrays of frames of one layout."""

    def __init__(self, group: zarr.Group, layout: Layout, count: int, compressors: Any) -> None:
        self._frames = group.create_array(
            "frames",
            shape=(count, *layout.shape),
            chunks=(1, *(max(1, length) for length in layout.shape)),
            dtype=layout.dtype,
            compressors=compressors,
            dimension_names=("frame", *(f"axis_{n}" for n in range(len(layout.shape)))),
        )
        self._numbers = {
            name: group.create_array(
                name, shape=(count,), chunks=(_CHUNK,), dtype="int64", dimension_names=("frame",)
            )
            for name in _NUMBERS
        }
        self._waiting_numbers: list[tuple[int, ...]] = []
        self._waiting_frames: list[NDArray[Any]] = []
        self._count = 0

    def append(self, frame: RecordedFrame, array: NDArray[Any]) -> None:
        row, event_ns = frame.row, frame.event_ns
        known = _UNKNOWN if event_ns is None else event_ns
        self._waiting_numbers.append((row.epoch, row.seq, row.timestamp_ns, known, row.recorded_ns))
        self._waiting_frames.append(array)
        self._count += 1
        together = len(self._waiting_frames)
        if together == _TOGETHER or together * array.nbytes >= _TOGETHER_BYTES:
            self._write_frames()
        if len(self._waiting_numbers) == _CHUNK:
            self._write_numbers()

    def finish(self) -> None:
        """Damaged frames were counted too when there was room made for all."""
        self._write_frames()
        self._write_numbers()
        self._frames.resize((self._count, *self._frames.shape[1:]))
        for numbers in self._numbers.values():
            numbers.resize((self._count,))

    def _write_frames(self) -> None:
        waiting = self._waiting_frames
        if waiting and waiting[0].size:
            self._frames[self._count - len(waiting) : self._count] = np.stack(waiting)
        waiting.clear()

    def _write_numbers(self) -> None:
        if self._waiting_numbers:
            columns = np.array(self._waiting_numbers, np.int64).T
            for numbers, column in zip(self._numbers.values(), columns, strict=True):
                numbers[self._count - len(column) : self._count] = column
        self._waiting_numbers.clear()

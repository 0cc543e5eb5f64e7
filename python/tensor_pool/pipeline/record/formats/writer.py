"""What all formats share: what a writer of one stream does, and what is said of each frame."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.contents import Contents
    from tensor_pool.pipeline.record.recording import RecordedFrame

__all__ = [
    "COLUMNS",
    "DAMAGED",
    "StreamFormat",
    "StreamOutput",
    "StreamWriter",
    "bytes_of",
    "describe",
    "plain_metadata",
]

DAMAGED: Final = "damaged"
"""The status of a frame that was recorded and is not what it was."""

COLUMNS: Final = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("stream_id", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("timestamp_ns", pa.int64(), nullable=False),
        pa.field("event_ns", pa.int64()),
        pa.field("recorded_ns", pa.int64(), nullable=False),
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("shape", pa.list_(pa.int64()), nullable=False),
        pa.field("order", pa.string(), nullable=False),
        pa.field("meta_version", pa.int64(), nullable=False),
        pa.field("trace_id", pa.uint64()),
    ]
)
"""What is said of each frame."""


class StreamOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream is written to, and how."""

    stream: str
    directory: Path
    """That of the whole export."""
    file: str
    """What begins the names of the stream's files."""
    contents: Contents
    stack: bool = False
    """One array of all frames, instead of one a frame."""
    compression: Literal["none", "zstd"] = "none"


class StreamWriter(Closing, Protocol):
    """Writes one stream."""

    name: str
    """The file or directory that it makes."""

    def write(self, frame: RecordedFrame, array: NDArray[Any]) -> None:
        """Adds a frame."""

    def miss(self, gap: RecordedFrame, status: str) -> None:
        """Tells of frames that are missing, or damaged."""

    def finish(self) -> None:
        """Writes what is still waiting; the output is whole then."""


class StreamFormat(Protocol):
    """Makes a writer of one stream."""

    __name__: str

    def __call__(self, output: StreamOutput) -> StreamWriter:
        """See `StreamOutput`."""


def describe(stream: str, frame: RecordedFrame, status: str = "ok") -> dict[str, Any]:
    """The `COLUMNS` of a frame or a gap."""
    row = frame.row
    return {
        "stream": stream,
        "stream_id": row.stream_id,
        "epoch": row.epoch,
        "seq": row.seq,
        "count": row.count,
        "status": status,
        "timestamp_ns": row.timestamp_ns,
        "event_ns": frame.event_ns,
        "recorded_ns": row.recorded_ns,
        "dtype": row.dtype,
        "shape": list(row.shape),
        "order": row.order,
        "meta_version": row.meta_version,
        "trace_id": row.trace_id,
    }


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a contiguous array as they lie in memory, not copied.

    Example:
        >>> bytes_of(np.array([[1, 2], [3, 4]], "uint8", order="F")).tolist()
        [1, 3, 2, 4]
    """
    return array.ravel(order="K").view(np.uint8)


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    r"""Metadata as JSON can say it: arrays as lists, bytes in base64.

    Example:
        >>> plain_metadata({"gain": 2, "dark": np.arange(2), "key": b"\0"})
        {'gain': 2, 'dark': [0, 1], 'key': {'base64': 'AA=='}}
    """
    return {key: _plain(value) for key, value in metadata.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, complex) or (isinstance(value, float) and not np.isfinite(value)):
        return str(value)  # JSON has neither
    return value

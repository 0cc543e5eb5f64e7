"""The columns that describe a frame, in tables of Spark and in training sets alike."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["FRAME_COLUMNS"]

_LONGS: Final = pa.list_(pa.field("element", pa.int64(), nullable=False))
_TIME: Final = pa.timestamp("us", tz="UTC")

FRAME_COLUMNS: Final = (
    pa.field("stream_id", pa.int64(), nullable=False),
    pa.field("stream_name", pa.string(), nullable=False),
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("timestamp_ns", pa.int64(), nullable=False),
    pa.field("event_time", _TIME),
    pa.field("recorded_time", _TIME),
    pa.field("dtype", pa.string(), nullable=False),
    pa.field("shape", _LONGS, nullable=False),
    pa.field("strides", _LONGS, nullable=False),
    pa.field("order", pa.string(), nullable=False),
    pa.field("nbytes", pa.int64(), nullable=False),
    pa.field("meta_version", pa.int64(), nullable=False),
    pa.field("trace_id", pa.int64()),
    pa.field("status", pa.string(), nullable=False),
    pa.field("count", pa.int64(), nullable=False),
)
"""All but the bytes, or where they are."""

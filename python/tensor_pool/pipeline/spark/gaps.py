"""Rows for what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tensor_pool.pipeline.spark.schema import arrow_schema

if TYPE_CHECKING:
    from tensor_pool.pipeline.spark.schema import Payload

__all__ = ["gap_batch", "gap_row"]


def gap_row(**known: Any) -> dict[str, Any]:
    """A row without a tensor.

    Example:
        >>> gap_row(stream_id=1, seq=7, count=3, status="lost")["nbytes"]
        0
    """
    nothing = {
        "stream_name": "",
        "epoch": 0,
        "timestamp_ns": 0,
        "dtype": "",
        "shape": [],
        "strides": [],
        "order": "C",
        "nbytes": 0,
        "meta_version": 0,
    }
    return nothing | known


def gap_batch(payload: Payload, **known: Any) -> pa.RecordBatch:
    """One such row as a batch.

    Example:
        >>> gap_batch("ref", stream_id=1, seq=7, count=3, status="lost").num_rows
        1
    """
    return pa.RecordBatch.from_pylist([gap_row(**known)], arrow_schema(payload))

"""What there is to know of a stream that somebody produces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tensor_pool.datatypes import Dtype, MajorOrder, to_numpy

if TYPE_CHECKING:
    from tensor_pool.wire.messages import StreamEntry

__all__ = ["PRESENT", "StreamInfo", "StreamState", "stream_info", "stream_state"]

StreamState = Literal["live", "waiting", "ended", "named"]
"""``live`` streams have a producer; ``waiting`` ones have memory or consumers, but none. Of the others the
driver only knows the name: it keeps the id of what ended (``ended``); what somebody asks for, or what an
earlier driver knew, has one too (``named``)."""

PRESENT: Final = frozenset({"live", "waiting"})
"""The states of streams that are there."""


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, as the driver knows it; what it doesn't know is None."""

    stream_id: int
    name: str
    state: StreamState
    dtype: str | None
    shape: tuple[int, ...] | None
    order: str | None
    rate_hz: float | None
    epoch: int | None
    seq: int | None
    producer_id: int | None
    consumers: int
    slots: int | None
    max_frame_bytes: int | None
    region_bytes: int
    activity_timestamp_ns: int | None


def stream_state(entry: StreamEntry) -> StreamState:
    """How far a stream is there."""
    if entry.producer_id:
        return "live"
    if entry.epoch is not None or entry.consumer_count:
        return "waiting"
    return "ended" if entry.activity_timestamp_ns is not None else "named"


def stream_info(entry: StreamEntry) -> StreamInfo:
    """A stream of a driver's list, in the words of the library.

    Example:
        >>> from tensor_pool.wire.messages import StreamEntry
        >>> stream_info(StreamEntry(
        ...     epoch=5, current_seq=None, activity_timestamp_ns=None, max_frame_bytes=64, region_bytes=4096,
        ...     stream_id=7, producer_id=1, consumer_count=2, nslots=8, rate_milli_hz=2500,
        ...     dims=(4, 0, 0, 0, 0, 0, 0, 0), dtype=Dtype.UINT8, major_order=MajorOrder.ROW, ndims=1,
        ...     name="a")).rate_hz
        2.5
    """
    known = entry.dtype is not Dtype.UNKNOWN
    return StreamInfo(
        stream_id=entry.stream_id,
        name=entry.name,
        state=stream_state(entry),
        dtype=to_numpy(entry.dtype).name if known else None,
        shape=tuple(entry.dims[: entry.ndims]) if entry.ndims else None,
        order={MajorOrder.ROW: "C", MajorOrder.COLUMN: "F"}.get(entry.major_order),
        rate_hz=None if entry.rate_milli_hz is None else entry.rate_milli_hz / 1000,
        epoch=entry.epoch,
        seq=entry.current_seq,
        producer_id=entry.producer_id or None,
        consumers=entry.consumer_count,
        slots=entry.nslots,
        max_frame_bytes=entry.max_frame_bytes,
        region_bytes=entry.region_bytes,
        activity_timestamp_ns=entry.activity_timestamp_ns,
    )

"""What is known of a frame in a program's hands."""

from __future__ import annotations

import msgspec

from tensor_pool._native import Frame

__all__ = ["Frame", "FrameInfo", "describe"]


class FrameInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a frame besides its values; stays true whatever becomes of them."""

    stream_id: int
    epoch: int
    seq: int
    timestamp_ns: int
    """When it was taken, on the producer's clock; CLOCK_MONOTONIC unless its metadata says otherwise."""
    shape: tuple[int, ...]
    dtype: str
    order: str
    nbytes: int
    meta_version: int
    """Which version of the stream's metadata belongs to it."""
    publish_timestamp_ns: int | None = None
    """When its descriptor was sent, if the producer says so."""
    trace_id: int | None = None


def describe(frame: Frame) -> FrameInfo:
    """What `Frame.info` tells; the native frame asks for it once, and only when a program does."""
    descriptor = frame.descriptor  # one that was missed tells nothing (decision M16)
    return FrameInfo(
        stream_id=frame.stream_id,
        epoch=frame.epoch,
        seq=frame.seq,
        timestamp_ns=frame.timestamp_ns,
        shape=frame.shape,
        dtype=frame.dtype,
        order=frame.order,
        nbytes=frame.nbytes,
        meta_version=frame.meta_version,
        publish_timestamp_ns=None if descriptor is None else descriptor.timestamp_ns,
        trace_id=None if descriptor is None else descriptor.trace_id,
    )

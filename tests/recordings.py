"""Recordings made without a pool, for tests of those who read them."""

from __future__ import annotations

import msgspec
import numpy as np

from tensor_pool.pipeline.record.catalogue import Catalogue, stream_directory
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.record.rows import Row
from tensor_pool.pipeline.record.store import StreamStore
from tensor_pool.wire.messages import MetaAttribute

OFFSET_NS = 1_000_000
"""Real time minus the clock of the frames of these tests."""


def record(recording, name="camera/1", frames=20, segment_bytes=4_000, **changes):
    """A recording of frames whose values are their numbers, taken every 100 ns; 7 to 9 are missing."""
    about = Catalogue(stream_name=name, stream_id=10_000)
    options = RecorderOptions(segment_bytes=segment_bytes)
    metadata = msgspec.json.encode([MetaAttribute("exposure_ms", "application/json", b"1.5")])
    common = {"stream_id": 10_000, "epoch": 7, "realtime_offset_ns": OFFSET_NS} | changes
    with StreamStore(stream_directory(recording, name), options, about=about) as store:
        store.set_head([(Row(kind="metadata", seq=0, count=0, **common), metadata)])
        for seq in range(frames):
            common["timestamp_ns"] = 100 * seq
            if seq == 7:
                store.append(Row(kind="gap", seq=7, count=3, status="lost", **common), now_ns=seq)
            elif seq not in {8, 9}:
                array = np.full((2, 3), seq, "uint16")
                row = Row(kind="frame", seq=seq, dtype="uint16", shape=(2, 3), **common)
                store.append(row, array, now_ns=seq)
    return Recording(recording)


def record_arrays(recording, arrays, name="camera-1", **changes):
    """A recording of these arrays."""
    about = Catalogue(stream_name=name, stream_id=10_000)
    common = {"stream_id": 10_000, "epoch": 7, "realtime_offset_ns": OFFSET_NS} | changes
    with StreamStore(stream_directory(recording, name), RecorderOptions(), about=about) as store:
        for seq, array in enumerate(arrays):
            order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
            row = Row(
                kind="frame",
                seq=seq,
                timestamp_ns=100 * seq,
                dtype=array.dtype.name,
                shape=array.shape,
                order=order,
                **common,
            )
            store.append(row, array.tobytes(order), now_ns=seq)
    return Recording(recording)


def record_rows(recording, rows, name="camera-1", stream_id=10_000, epoch=7):
    """A recording of rows that are given in full.

    Args:
        rows: Fields of a `Row` each, with the ``array`` of a frame, or ``status`` and ``count`` of a gap.
    """
    about = Catalogue(stream_name=name, stream_id=stream_id)
    with StreamStore(stream_directory(recording, name), RecorderOptions(), about=about) as store:
        for fields in rows:
            array = fields.pop("array", None)
            known = {"stream_id": stream_id, "epoch": epoch} | fields
            if array is None:
                store.append(Row(kind="gap", **known), now_ns=0)
            else:
                row = Row(kind="frame", dtype=array.dtype.name, shape=array.shape, **known)
                store.append(row, array.tobytes(), now_ns=0)
    return Recording(recording)

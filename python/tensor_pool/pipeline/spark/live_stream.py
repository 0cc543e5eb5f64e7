"""Following live streams: each frame at most once, and a row for what was missed.

An offset says for each stream which frame comes next: ``{"camera-1": {"epoch": 7, "seq": 17, ...}}``. A batch
that is repeated finds what is still in the ring, and gaps for the rest.

The first batch only wakes Spark's workers up and attaches them: that takes seconds, and frames that had been
asked for would be overwritten meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from tensor_pool.errors import FrameOverwrittenError, NoDriverError, NoMediaDriverError, NoStreamError
from tensor_pool.pipeline.machine import boot_id, host_name
from tensor_pool.pipeline.record.clock import clock_offset_ns
from tensor_pool.pipeline.spark.gaps import gap_row
from tensor_pool.pipeline.spark.live_pool import RingUri, Window, live_ring
from tensor_pool.pipeline.spark.rows import strides_of
from tensor_pool.pipeline.spark.schema import OK, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.datasource import ReadLimit

    from tensor_pool._native import Frame
    from tensor_pool.pipeline.spark.live_pool import LiveRing
    from tensor_pool.pipeline.spark.options import SourceOptions

__all__ = ["ENDED", "OVERWRITTEN", "LivePart", "LiveReader", "LiveStreamReader"]

OVERWRITTEN: Final = "overwritten"
"""The status of frames whose slot was used again before they were read."""
ENDED: Final = "epoch_ended"
"""The status of frames that were not read before their producer ended."""
_SLEEPING: Final = {"epoch": 0, "seq": -2, "first": 0, "lost": 0}
_AWAKE: Final = {"epoch": 0, "seq": -1, "first": 0, "lost": 0}
_NEW_EPOCH_S: Final = 3.0
"""How long a worker waits until it has heard of an epoch that the driver's side knows."""
_BATCH_BYTES: Final = 16 << 20
_LARGEST: Final = 2**63

Offset: TypeAlias = dict[str, Any]


class LivePart(InputPartition):
    """What one task reads.

    Args:
        stream: Its name or number.
        epoch: Of the frames.
        first: The first one.
        end: The one after the last; the same for a task that only attaches.
        lost: Frames that were lost before, and why.
    """

    def __init__(
        self, stream: str, epoch: int = 0, first: int = 0, end: int = 0, lost: tuple[int, str] = (0, "")
    ) -> None:
        self.stream = stream
        self.epoch = epoch
        self.first = first
        self.end = end
        self.lost = lost


class LiveStreamReader(DataSourceStreamReader):
    """Follows live streams.

    Args:
        options: Which ones, and how.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._missing_since: dict[str, float] = {}
        self._ended: dict[str, int] = {}
        """Frames that had been lost with their epoch, by stream, when it was last looked at."""

    # --- in the driver's process ----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before anything was asked for."""
        return dict.fromkeys(sorted(self._options.stream), _SLEEPING)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What the options say."""
        if self._options.maxFramesPerTrigger is not None:
            return ReadMaxRows(self._options.maxFramesPerTrigger)
        if self._options.maxBytesPerTrigger is not None:
            return ReadMaxBytes(self._options.maxBytesPerTrigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As far as the streams are by now, or as one batch goes."""
        return {
            stream: self._advanced(stream, start.get(stream, _AWAKE), limit)
            for stream in sorted(self._options.stream)
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The frames between two offsets, cut into tasks."""
        return [
            part for stream in end for part in self._parts(stream, start.get(stream, _SLEEPING), end[stream])
        ]

    def _advanced(self, stream: str, start: Offset, limit: ReadLimit) -> Offset:
        if start["seq"] == _SLEEPING["seq"]:
            return _AWAKE
        ring, window = self._look(stream)
        if window is None or ring is None:
            return start
        is_new = start["seq"] < 0 or window.epoch != start["epoch"]
        lost = 0
        if is_new:
            is_first = start["seq"] < 0
            wants_newest = is_first and self._options.startingOffsets == "latest"
            first = max(window.oldest, window.end - 1) if wants_newest else window.oldest
            lost = 0 if is_first else ring.ended_frames - self._ended.get(stream, 0)
        else:
            first = start["seq"]
        self._ended[stream] = ring.ended_frames
        most = _most_frames(limit, window, share=len(self._options.stream))
        end = min(window.end, max(first, window.oldest) + most)
        ring.passed(end)
        if not is_new and end == start["seq"]:
            return start
        return {"epoch": window.epoch, "seq": end, "first": first, "lost": lost}

    def _look(self, stream: str) -> tuple[LiveRing | None, Window | None]:
        """The ring of a stream; neither when it is not there, which is borne for a while."""
        error: Exception | None = None
        ring, window = None, None
        try:
            ring = live_ring(self.uri(stream))
            window = ring.window
        except (NoDriverError, NoMediaDriverError) as e:
            error = e
        if window is not None:
            self._missing_since.pop(stream, None)
            return ring, window
        waited_s = time.monotonic() - self._missing_since.setdefault(stream, time.monotonic())
        if waited_s >= self._options.waitSeconds:
            raise error or NoStreamError(
                f"nobody has produced stream {stream} for {waited_s:.0f} s",
                hint="`tpool streams` lists what is there; the option waitSeconds waits longer",
            )
        return None, None

    def _parts(self, stream: str, start: Offset, end: Offset) -> Iterator[LivePart]:
        if end["seq"] == _AWAKE["seq"]:
            if start["seq"] != end["seq"]:
                yield from (LivePart(stream) for _ in range(os.cpu_count() or 1))
            return
        epoch, first = end["epoch"], end["first"]
        if start["seq"] >= 0 and start["epoch"] == epoch:
            first = start["seq"]
        elif start["seq"] >= 0:
            yield LivePart(stream, start["epoch"], start["seq"], start["seq"], (end["lost"], ENDED))
            if first:
                yield LivePart(stream, epoch, 0, 0, (first, OVERWRITTEN))
        _, window = self._look(stream)
        planned = Window(epoch, first, end["seq"], 1 if window is None else window.frame_bytes)
        yield from _cut(stream, planned, first, end["seq"], self._options.partitionBytes)

    # --- in the workers -------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The frames of one task."""
        if not isinstance(partition, LivePart):
            return
        uri = self.uri(partition.stream)
        if partition.lost[1]:
            yield from self._told(live_ring(uri), partition)
        elif partition.first == partition.end:
            # The driver's side judges whether a stream is missing for too long.
            with contextlib.suppress(NoStreamError, NoDriverError, NoMediaDriverError):
                live_ring(uri).consumer.wait_for_stream(_NEW_EPOCH_S)
        else:
            yield from self._frames(live_ring(uri), partition, str(uri))

    def _told(self, ring: LiveRing, part: LivePart) -> Iterator[pa.RecordBatch]:
        count, status = part.lost
        rows = _Rows(self._options, ring, part.epoch)
        rows.miss(part.first, count, status)
        yield rows.batch()

    def _frames(self, ring: LiveRing, part: LivePart, uri: str) -> Iterator[pa.RecordBatch]:
        is_there = ring.await_epoch(part.epoch, _NEW_EPOCH_S)
        rows = _Rows(self._options, ring, part.epoch)
        seq = part.first
        while seq < part.end:
            frame = ring.read(part.epoch, seq)
            if frame is None:
                missing = self._missing(ring, part, seq)
                rows.miss(seq, missing, OVERWRITTEN if is_there else ENDED)
                seq += missing
                continue
            rows.add(frame, uri)
            seq += 1
            if rows.nbytes > _BATCH_BYTES:
                yield rows.batch()
        yield rows.batch()

    def _missing(self, ring: LiveRing, part: LivePart, seq: int) -> int:
        """How many frames are missing from here on, at least; a ring that was lapped often has many."""
        window = ring.window
        if window is None or window.epoch != part.epoch:
            return part.end - seq
        return max(1, min(window.oldest, part.end) - seq)

    def uri(self, stream: str) -> RingUri:
        """Which ring that is."""
        return RingUri(stream, self._options.connection)


class LiveReader(DataSourceReader):
    """What lies in the rings of live streams at the moment, as a table.

    Args:
        options: Which ones, and how.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._following = LiveStreamReader(options)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Everything from the oldest to the newest frame, cut into tasks."""
        parts: list[InputPartition] = []
        for stream in self._options.stream:
            ring = live_ring(self._following.uri(stream))
            ring.consumer.wait_for_stream(self._options.waitSeconds)
            window = ring.window
            if window is not None:
                span = self._options.span
                first, end = max(window.oldest, span.first_seq), min(window.end, span.last_seq + 1)
                parts += _cut(stream, window, first, end, self._options.partitionBytes)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The frames of one task."""
        return self._following.read(partition)


def _cut(stream: str, window: Window, first: int, end: int, max_bytes: int) -> Iterator[LivePart]:
    """Frames in tasks of about so many bytes."""
    frames = max(1, max_bytes // window.frame_bytes)
    for begin in range(first, end, frames):
        yield LivePart(stream, window.epoch, begin, min(begin + frames, end))


class _Rows:
    """Collects rows of one stream."""

    def __init__(self, options: SourceOptions, ring: LiveRing, epoch: int) -> None:
        self._payload = options.payload
        self._fails = options.fails_on_loss
        self._metadata = ring.consumer.metadata
        self._common = {
            "stream_id": ring.consumer.stream_id or 0,
            "stream_name": ring.consumer.name,
            "epoch": epoch,
        }
        self._rows: list[dict[str, Any]] = []
        self._offset_ns: tuple[int, int | None] = (-1, None)
        self.nbytes = 0

    def add(self, frame: Frame, uri: str) -> None:
        """A frame that is there, unless its values are asked for and are gone by then."""
        info = frame.info
        if max(info.seq, info.timestamp_ns, info.epoch) >= _LARGEST:
            self.miss(min(info.seq, _LARGEST - 1), 1, "number_too_large")
            return
        trace_id = info.trace_id
        row: dict[str, Any] = self._common | {
            "seq": info.seq,
            "timestamp_ns": info.timestamp_ns,
            "event_time": self._event_us(info.meta_version, info.timestamp_ns),
            "dtype": info.dtype,
            "shape": info.shape,
            "strides": strides_of(info.dtype, info.shape, info.order),
            "order": info.order,
            "nbytes": info.nbytes,
            "meta_version": info.meta_version,
            "trace_id": None if trace_id is None else (trace_id ^ _LARGEST) - _LARGEST,
            "status": OK,
            "count": 1,
        }
        if self._payload == "bytes":
            try:
                row["values"] = frame.copy().tobytes(order="A")
            except FrameOverwrittenError:
                self.miss(info.seq, 1, OVERWRITTEN)
                return
            self.nbytes += info.nbytes
        else:
            row["ref"] = {
                "kind": "ring",
                "uri": uri,
                "offset": info.seq,
                "length": info.nbytes,
                "host": host_name(),
                "boot": boot_id(),
            }
        self._rows.append(row)

    def miss(self, seq: int, count: int, status: str) -> None:
        """Frames that are not there; one row for all that follow each other.

        Raises:
            FrameOverwrittenError: That ends the query, as asked for.
        """
        if self._fails and count:
            raise FrameOverwrittenError(
                f"{count} frames from {seq} of epoch {self._common['epoch']} are lost ({status})",
                hint="make the ring longer, or leave failOnDataLoss out and get a row for them",
            )
        last = self._rows[-1] if self._rows else None
        if last is not None and last["status"] == status and last["seq"] + last["count"] == seq:
            last["count"] += count
        else:
            self._rows.append(gap_row(**self._common, seq=seq, count=count, status=status))

    def batch(self) -> pa.RecordBatch:
        """What was collected so far."""
        rows, self._rows, self.nbytes = self._rows, [], 0
        return pa.RecordBatch.from_pylist(rows, arrow_schema(self._payload))

    def _event_us(self, meta_version: int, timestamp_ns: int) -> int | None:
        if self._offset_ns[0] != meta_version:
            version = self._metadata.at(meta_version)
            self._offset_ns = (meta_version, clock_offset_ns({} if version is None else version))
        offset = self._offset_ns[1]
        return None if offset is None else (timestamp_ns + offset) // 1_000


def _most_frames(limit: ReadLimit, window: Window, *, share: int) -> int:
    if isinstance(limit, ReadMaxRows):
        return max(1, limit.max_rows // share)
    if isinstance(limit, ReadMaxBytes):
        return max(1, limit.max_bytes // share // window.frame_bytes)
    return _LARGEST

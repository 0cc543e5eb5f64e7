"""Following recordings: each recorded row once, in batches that can be repeated.

An offset says for each stream which row comes next: ``{"camera-1": {"segment": 3, "row": 17}}``. Sealed
segments never change, so the same two offsets always mean the same rows, also after a crash.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tensor_pool.errors import NoStreamError, RegionError
from tensor_pool.pipeline.record.catalogue import number_of
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.spark.gaps import gap_batch
from tensor_pool.pipeline.spark.recording_reader import SegmentPart, parts_of, read_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from tensor_pool.pipeline.record.catalogue import SegmentInfo
    from tensor_pool.pipeline.record.recording import RecordedStream
    from tensor_pool.pipeline.spark.options import SourceOptions

__all__ = ["RecordingStreamReader", "RemovedPart"]

Offset: TypeAlias = dict[str, dict[str, int]]
_START = {"segment": 0, "row": 0}
REMOVED = "removed"
"""The status of segments that were removed before they were read."""


class RemovedPart(InputPartition):
    """Stands for segments that are gone.

    Args:
        stream_name: Whose.
        stream_id: Its number.
        following: The first segment that is still there, if one is.
    """

    def __init__(self, stream_name: str, stream_id: int, following: SegmentInfo | None) -> None:
        self.stream_name = stream_name
        self.stream_id = stream_id
        self.following = following


class RecordingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a recording, also while it is written.

    Args:
        options: What to read.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Offset | None = None
        self._patience_ends = time.monotonic() + options.waitSeconds

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before everything."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What the options say."""
        if self._options.maxFramesPerTrigger is not None:
            return ReadMaxRows(self._options.maxFramesPerTrigger)
        if self._options.maxBytesPerTrigger is not None:
            return ReadMaxBytes(self._options.maxBytesPerTrigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """From now on what is added later does not count."""
        self._target = self._newest(self._streams())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As far as one batch goes."""
        streams = self._streams()
        newest = self._newest(streams) if self._target is None else self._target
        waiting = [name for name in newest if _place(newest, name) > _place(start, name)]
        end: Offset = {**start}
        for name in waiting:
            end[name] = _advanced(
                streams[name], _place(start, name), _place(newest, name), limit, len(waiting)
            )
        return {name: end[name] for name in sorted(end)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The rows between two offsets, cut into tasks."""
        streams = self._streams()
        return [
            part
            for name in end
            for part in self._parts(streams, name, _place(start, name), _place(end, name))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, SegmentPart):
            yield from read_part(partition, self._options, self._options.span)
        elif isinstance(partition, RemovedPart):
            following = partition.following
            yield gap_batch(
                self._options.payload,
                stream_id=partition.stream_id,
                stream_name=partition.stream_name,
                epoch=following.first_epoch if following else 0,
                seq=following.first_seq if following else 0,
                count=0,
                status=REMOVED,
            )

    def _parts(
        self, streams: dict[str, RecordedStream], name: str, first: tuple[int, int], end: tuple[int, int]
    ) -> Iterator[InputPartition]:
        if first >= end:
            return
        stream = streams.get(name)
        if stream is None:
            raise RegionError(f"the stream {name} is no longer in {self._options.path}")
        catalogue = stream.catalogue
        if catalogue.removed_through >= first[0] > 0:
            if self._options.fails_on_loss:
                raise RegionError(
                    f"segments up to {catalogue.removed_through} of {name} were removed, and not read before",
                    hint="keep more (tpool record --keep-mib), or set failOnDataLoss to false and get a row",
                )
            following = next(iter(catalogue.segments), None)
            yield RemovedPart(catalogue.stream_name, catalogue.stream_id, following)
        for segment in catalogue.segments:
            number = number_of(segment.file)
            if first[0] <= number <= end[0]:
                first_row = first[1] if number == first[0] else 0
                end_row = end[1] if number == end[0] else segment.rows
                yield from parts_of(
                    stream, segment, self._options.partitionBytes, first_row=first_row, end_row=end_row
                )

    def _streams(self) -> dict[str, RecordedStream]:
        """What there is by now; an empty recording is waited for."""
        try:
            recording = Recording(self._options.path)
        except RegionError:
            if time.monotonic() > self._patience_ends:
                raise
            return {}
        wanted = self._options.stream or tuple(recording)
        missing = [name for name in wanted if name not in recording]
        if missing and time.monotonic() > self._patience_ends:
            raise NoStreamError(
                f"{', '.join(missing)} did not appear in {recording.place}",
                hint=f"there are {', '.join(recording)}; `tpool record` adds streams; "
                f"waitSeconds={self._options.waitSeconds:g} can be more",
            )
        return {name: recording[name] for name in sorted(wanted) if name in recording}

    def _newest(self, streams: dict[str, RecordedStream]) -> Offset:
        """After the last row of each stream."""
        return {
            name: {"segment": number_of(stream.catalogue.segments[-1].file) + 1, "row": 0}
            for name, stream in streams.items()
            if stream.catalogue.segments
        }


def _place(offset: dict[str, Any], name: str) -> tuple[int, int]:
    place = offset.get(name, _START)
    return place["segment"], place["row"]


def _advanced(
    stream: RecordedStream, first: tuple[int, int], newest: tuple[int, int], limit: ReadLimit, share: int
) -> dict[str, int]:
    """How far one batch goes in one of several streams that share a limit; at least by one row."""
    rows_left = max(1, limit.max_rows // share) if isinstance(limit, ReadMaxRows) else None
    bytes_left = max(1, limit.max_bytes // share) if isinstance(limit, ReadMaxBytes) else None
    if rows_left is None and bytes_left is None:
        return {"segment": newest[0], "row": newest[1]}
    for segment in stream.catalogue.segments:
        number = number_of(segment.file)
        if not first[0] <= number < newest[0]:
            continue
        first_row = first[1] if number == first[0] else 0
        if bytes_left is not None:
            rows_left = max(1, segment.rows * bytes_left // max(1, segment.nbytes))
        assert rows_left is not None
        rows = segment.rows - first_row
        if rows > rows_left:
            return {"segment": number, "row": first_row + rows_left}
        rows_left -= rows
        if bytes_left is not None:
            bytes_left = max(0, bytes_left - segment.nbytes * rows // max(1, segment.rows))
        if not rows_left or bytes_left == 0:
            return {"segment": number + 1, "row": 0}
    return {"segment": newest[0], "row": newest[1]}

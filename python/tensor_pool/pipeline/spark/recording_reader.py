"""Reading recordings in one go: which segments, cut into which tasks, filtered where."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.recording import RecordedStream, Recording
from tensor_pool.pipeline.record.row_table import read_row_table
from tensor_pool.pipeline.spark.gaps import gap_batch
from tensor_pool.pipeline.spark.rows import refs_of, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.datasource import Filter

    from tensor_pool.pipeline.record.catalogue import Catalogue, SegmentInfo
    from tensor_pool.pipeline.record.span import Span
    from tensor_pool.pipeline.spark.options import SourceOptions

__all__ = ["FilteringReader", "RecordingReader", "SegmentPart", "parts_of", "read_part"]

_NS_PER_US: Final = 1_000
MISSING: Final = "segment_missing"
"""The status of what a segment held that can't be read."""


class SegmentPart(InputPartition):
    """What one task reads: some rows of one segment.

    Args:
        stream: The directory of the stream, as a URI.
        catalogue: Of the stream, without its segments.
        segment: The segment.
        first_row: The first one.
        end_row: The one after the last.
    """

    def __init__(
        self, stream: str, catalogue: Catalogue, segment: SegmentInfo, first_row: int, end_row: int
    ) -> None:
        self.stream = stream
        self.catalogue = catalogue
        self.segment = segment
        self.first_row = first_row
        self.end_row = end_row


def parts_of(
    stream: RecordedStream,
    segment: SegmentInfo,
    part_bytes: int,
    *,
    first_row: int = 0,
    end_row: int | None = None,
) -> Iterator[SegmentPart]:
    """Cuts rows of a segment into parts of about so many bytes, all about as long.

    A task costs as much as reading some ten megabytes: a segment that is a little longer than two parts is no
    reason for a third one.
    """
    end_row = segment.rows if end_row is None else end_row
    rows = end_row - first_row
    nbytes = segment.nbytes * rows // max(1, segment.rows)
    count = min(max(1, round(nbytes / part_bytes)), rows)
    edges = [first_row + rows * part // count for part in range(count + 1)] if rows > 0 else []
    for first, end in itertools.pairwise(edges):
        yield SegmentPart(*_about(stream), segment, first, end)


def _about(stream: RecordedStream) -> tuple[str, Catalogue]:
    """Where a stream lies, and what of its catalogue a task needs."""
    return stream.place.uri, msgspec.structs.replace(stream.catalogue, segments=[])


def read_part(part: SegmentPart, options: SourceOptions, span: Span) -> Iterator[pa.RecordBatch]:
    """The rows of a part that belong to a span."""
    stream = Place(part.stream)
    try:
        table = read_row_table(stream, part.segment)
    except (RegionError, MalformedMessageError, OSError):
        if options.fails_on_loss:
            raise
        yield from _missing(part, options)
        return
    table = span.of(table.slice(part.first_row, part.end_row - part.first_row))
    if options.named is not None:
        table = options.named.of(table)
    table = table.filter(pc.not_equal(table["kind"], "metadata"))
    if not table.num_rows:
        return
    file = stream.child(part.segment.file)
    if options.payload == "ref":
        yield refs_of(table, part.catalogue, file)
    else:
        try:
            pieces = RecordedStream(stream, part.catalogue).pieces(part.segment)
        except RegionError:
            if options.fails_on_loss:
                raise
            yield from _missing(part, options)
            return
        yield from values_of(table, part.catalogue, pieces)


def _missing(part: SegmentPart, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """One row for all frames of a segment; its first part tells of it, the others of nothing."""
    segment = part.segment
    if options.named is not None:
        for stream_id, epoch, seq in options.named.in_segment(part.catalogue, segment):
            yield gap_batch(
                options.payload,
                stream_id=stream_id,
                stream_name=part.catalogue.stream_name,
                epoch=epoch,
                seq=seq,
                count=1,
                status=MISSING,
            )
    elif part.first_row == 0:
        yield gap_batch(
            options.payload,
            stream_id=part.catalogue.stream_id,
            stream_name=part.catalogue.stream_name,
            epoch=segment.first_epoch,
            seq=segment.first_seq,
            timestamp_ns=segment.first_timestamp_ns,
            count=segment.frames + segment.lost,
            status=MISSING,
        )


class RecordingReader(DataSourceReader):
    """Reads a recording.

    Args:
        options: What to read.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._span = options.span
        self._streams: tuple[str, ...] | None = options.stream or None

    def partitions(self) -> list[InputPartition]:
        """Parts of about the same size, oldest first."""
        recording = Recording(self._options.path)
        streams = [recording[name] for name in (recording if self._streams is None else self._streams)]
        named = self._options.named
        if named is not None:  # few rows of a segment: nothing to share out
            return [
                SegmentPart(*_about(stream), segment, 0, segment.rows)
                for stream in streams
                for segment in stream.segments(self._span)
                if named.in_segment(stream.catalogue, segment)
            ]
        return [
            part
            for stream in streams
            for segment in stream.segments(self._span)
            for part in parts_of(stream, segment, self._options.partitionBytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        if isinstance(partition, SegmentPart):  # Spark makes one without a value when there are none
            yield from read_part(partition, self._options, self._span)


class FilteringReader(RecordingReader):
    """Also leaves out what a query's filters leave out anyway: whole segments, before they are opened.

    Spark refuses readers that filter unless ``spark.sql.python.filterPushdown.enabled`` is set, so this one
    is used only where it asks for filters; and only with the option ``filterPushdown``, as Spark 4.3 keeps
    the filters of one query in the table, and the next query over it would lack rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes filters on streams, numbers and times; Spark looks at all rows again."""
        for each in filters:
            self._take(each)
            yield each

    def _take(self, each: Filter) -> None:
        column = ".".join(getattr(each, "attribute", ()))
        value: Any = getattr(each, "value", None)
        if column == "stream_name" and isinstance(each, EqualTo | In):
            named = {value} if isinstance(each, EqualTo) else set(value)
            known = Recording(self._options.path) if self._streams is None else self._streams
            self._streams = tuple(name for name in known if name in named)
        elif column == "seq" and isinstance(value, int):
            self._narrow("seq", each, value, step=1)
        elif column == "event_time" and value is not None:
            self._narrow("ns", each, round(value.timestamp() * 1e6) * _NS_PER_US, step=_NS_PER_US)

    def _narrow(self, axis: str, each: Filter, value: int, *, step: int) -> None:
        """Moves an end of the span; `step` is the next larger value that the column can have."""
        first, last = (getattr(self._span, f"{end}_{axis}") for end in ("first", "last"))
        if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
            first = max(first, value + (step if isinstance(each, GreaterThan) else 0))
        if isinstance(each, EqualTo | LessThan | LessThanOrEqual):
            last = min(last, value - 1 + (0 if isinstance(each, LessThan) else step))
        self._span = msgspec.structs.replace(self._span, **{f"first_{axis}": first, f"last_{axis}": last})

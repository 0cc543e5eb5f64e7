"""A recording for those who read it: its streams, and their frames in order, loaded when looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from tensor_pool import _native
from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.record.catalogue import load_catalogue
from tensor_pool.pipeline.record.consumers import load_consumers
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.row_table import read_row_table
from tensor_pool.pipeline.record.rows import Row
from tensor_pool.pipeline.record.span import EVERYTHING, Span

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.catalogue import Catalogue, SegmentInfo
    from tensor_pool.pipeline.record.consumers import RecordedConsumer
    from tensor_pool.pipeline.record.place import Pieces

__all__ = [
    "EVERYTHING",
    "RecordedFrame",
    "RecordedStream",
    "Recording",
    "Span",
    "as_array",
    "read_attributes",
]

_LINES: Final = 256
"""Rows that are Python objects at a time; a segment of small frames has a hundred thousand."""


class RecordedFrame:
    """A frame, or a gap, of a recording."""

    __slots__ = ("_crc32c", "_nbytes", "_pieces", "_start", "metadata", "row")

    def __init__(
        self, row: Row, place: tuple[int, int, int], pieces: Pieces, metadata: Mapping[str, Any]
    ) -> None:
        self.row: Final = row
        """What is known of it."""
        self.metadata: Final = metadata
        """What its producer had said when it was taken, as far as it was heard."""
        self._start, self._nbytes, self._crc32c = place
        self._pieces = pieces

    @property
    def event_ns(self) -> int | None:
        """When it was taken, real time; None when no clock says so."""
        offset = self.row.realtime_offset_ns
        return None if offset is None else self.row.timestamp_ns + offset

    @property
    def nbytes(self) -> int:
        """How long its values are; 0 for a gap."""
        return self._nbytes

    def array(self, *, check: bool = True) -> NDArray[Any]:
        """Its values; a read-only view of the file if that is here.

        Args:
            check: Compare them with their checksum.

        Raises:
            MalformedMessageError: They are not what was recorded, or it is a gap.
        """
        row = self.row
        if row.kind != "frame":
            raise MalformedMessageError(f"frame {row.seq} of epoch {row.epoch} is a gap ({row.status})")
        values = self._pieces.read(self._start, self._nbytes)
        if len(values) != self._nbytes or (check and _native.crc32c(values) != self._crc32c):
            raise MalformedMessageError(
                f"frame {row.seq} of epoch {row.epoch} is not what was recorded",
                hint="`tpool verify` lists all that are damaged",
            )
        return as_array(values, row.dtype, row.shape, row.order)


def as_array(values: Any, dtype: str, shape: tuple[int, ...], order: str) -> NDArray[Any]:
    """Bytes as the array that they are.

    Raises:
        MalformedMessageError: They are not as many as dtype and shape say.

    Example:
        >>> as_array(bytes(range(6)), "uint8", (2, 3), "F")[1].tolist()
        [1, 3, 5]
    """
    try:
        flat: NDArray[Any] = np.frombuffer(values, dtype)
        return flat.reshape(shape, order="F" if order == "F" else "C")
    except (ValueError, TypeError) as e:
        raise MalformedMessageError(f"{len(values)} bytes are no {dtype} of {shape}: {e}") from None


class RecordedStream:
    """One stream of a recording.

    Args:
        place: Its directory.
        catalogue: What is in it.
    """

    def __init__(self, place: Place, catalogue: Catalogue) -> None:
        self.place: Final = place
        self.catalogue: Final = catalogue

    @property
    def name(self) -> str:
        """What it was called, or its number."""
        return self.catalogue.stream_name or str(self.catalogue.stream_id)

    def consumers(self) -> list[RecordedConsumer]:
        """What its consumers said of themselves while it was recorded; none in older recordings.

        Raises:
            MalformedMessageError: The file is damaged.
            OSError: It can't be read.
        """
        return load_consumers(self.place)

    def segments(self, span: Span = EVERYTHING) -> list[SegmentInfo]:
        """The segments in which something of a span may be, oldest first."""
        return [segment for segment in self.catalogue.segments if span.touches(segment)]

    def pieces(self, segment: SegmentInfo) -> Pieces:
        """The file of a segment, to read pieces of.

        Raises:
            RegionError: It is missing.
            OSError: It can't be opened.
        """
        try:
            return self.place.child(segment.file).pieces()
        except FileNotFoundError:
            raise RegionError(
                f"{segment.file} of {self.place} is missing, the catalogue lists it",
                hint="copy the recording again, or have `tpool verify --repair` forget the segment",
            ) from None

    def frames(self, span: Span = EVERYTHING, *, gaps: bool = False) -> Iterator[RecordedFrame]:
        """Its frames as they were recorded.

        Args:
            span: Which ones.
            gaps: Also what is missing, as frames without values.

        Raises:
            MalformedMessageError: A table of rows is damaged.
            OSError: Something can't be read.
        """
        for segment in self.segments(span):
            yield from self.frames_of(segment, span, gaps=gaps)

    def frames_of(
        self, segment: SegmentInfo, span: Span = EVERYTHING, *, gaps: bool = False
    ) -> Iterator[RecordedFrame]:
        """Those of one segment, so that who reads on after a damaged one can; see `frames`."""
        whole = read_row_table(self.place, segment)
        # Of each version: a recorder hears of it up to a moment after the first frames that refer to it.
        told = whole.filter(pc.equal(whole["kind"], "metadata")).to_pylist()
        versions = {
            (line["epoch"], line["meta_version"]): read_attributes(line["attributes"]) for line in told
        }
        table = span.of(whole)
        pieces = self.pieces(segment)
        for batch in table.to_batches(max_chunksize=_LINES):
            for line in batch.to_pylist():
                if line["kind"] == "frame" or (gaps and line["kind"] == "gap"):
                    metadata = versions.get((line["epoch"], line["meta_version"]), {})
                    where = (line["values_start"], line["nbytes"], line["crc32c"])
                    yield RecordedFrame(_row(line), where, pieces, metadata)


def read_attributes(content: bytes) -> Mapping[str, Any]:
    """The metadata of a recording's row."""
    from tensor_pool.pool.metadata import read_attribute  # noqa: PLC0415 - planning a query needs none of it
    from tensor_pool.wire.messages import MetaAttribute  # noqa: PLC0415

    attributes = msgspec.json.decode(content, type=list[MetaAttribute])
    return {attribute.key: read_attribute(attribute) for attribute in attributes}


def _row(line: Mapping[str, Any]) -> Row:
    fields = {name: line[name] for name in Row.__struct_fields__}
    fields["shape"] = tuple(fields["shape"])
    return Row(**fields)


class Recording(Mapping[str, RecordedStream]):
    """All streams of a recording, by name.

    Args:
        where: Its directory, or a URI that pyarrow understands.

    Raises:
        RegionError: There is no recording.
        MalformedMessageError: A catalogue can't be understood.

    Example:
        >>> Recording("nowhere")
        Traceback (most recent call last):
        tensor_pool.errors.RegionError: there is no recording in ...
    """

    def __init__(self, where: str | os.PathLike[str] | Place) -> None:
        self.place: Final = where if isinstance(where, Place) else Place(where)
        self._streams: dict[str, RecordedStream] = {}
        for directory in self.place.directories():
            catalogue = load_catalogue(directory)
            if catalogue is not None:
                stream = RecordedStream(directory, catalogue)
                self._streams[stream.name] = stream
        if not self._streams:
            raise RegionError(
                f"there is no recording in {self.place}",
                hint="`tpool record STREAM --out DIR` makes one; `tpool verify --repair` mends one",
            )

    def __getitem__(self, name: str) -> RecordedStream:
        try:
            return self._streams[name]
        except KeyError:
            raise RegionError(
                f"there is no stream {name} in {self.place}", hint=f"there are {', '.join(self)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._streams))

    def __len__(self) -> int:
        return len(self._streams)

"""The files of one recorded stream: opens, syncs, seals and removes segments, and keeps the catalogue.

For one thread. Times are given, so that tests need not wait.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing
from tensor_pool.driver.lock import BaseDirLock
from tensor_pool.errors import RegionError
from tensor_pool.pipeline.record.catalogue import Catalogue, load_catalogue, number_of, save_catalogue
from tensor_pool.pipeline.record.reading import describe_segment
from tensor_pool.pipeline.record.repair import FIRST_TEMPORARY, left_open, seal_left_open
from tensor_pool.pipeline.record.row_table import ROWS
from tensor_pool.pipeline.record.segment import INDEX, OPEN, SEALED, SegmentWriter
from tensor_pool.pipeline.record.synced import sync_directory
from tensor_pool.runtime.faults import fault_point

if TYPE_CHECKING:
    from pathlib import Path

    from tensor_pool.pipeline.record.options import RecorderOptions
    from tensor_pool.pipeline.record.row_table import Located
    from tensor_pool.pipeline.record.rows import Row

__all__ = ["LOCK", "StreamStore"]

_LOG: Final = logging.getLogger(__name__)
_NS: Final = 1_000_000_000
LOCK: Final = "recorder.lock"
"""Held while a stream is recorded."""
_RETRY_NS: Final = _NS // 4
"""How long a disk that failed is left alone."""


class StreamStore(Closing):
    """Where the rows of one stream go.

    Args:
        directory: Of the stream; made when it is not there.
        options: When to sync, to seal and to remove.
        about: Name, id and origin of the stream, for a catalogue that is new.

    Raises:
        RegionError: The directory can't be made, or another recorder has it.

    Example:
        >>> import pathlib, tempfile
        >>> from tensor_pool.pipeline.record.options import RecorderOptions
        >>> from tensor_pool.pipeline.record.rows import Row
        >>> with tempfile.TemporaryDirectory() as name:
        ...     with StreamStore(pathlib.Path(name, "camera-1"), RecorderOptions(sync="frame")) as store:
        ...         store.append(Row(kind="frame", stream_id=1, epoch=1, seq=0), b"1234", now_ns=0)
        ...         store.durable_seq
        ...     load_catalogue(pathlib.Path(name, "camera-1")).frames
        0
        1
    """

    def __init__(self, directory: Path, options: RecorderOptions, *, about: Catalogue | None = None) -> None:
        self.directory: Final = directory
        self._options = options
        try:
            directory.mkdir(parents=True, exist_ok=True)
            sync_directory(directory.parent)
        except OSError as e:
            raise RegionError(
                f"can't record into {directory}: {e.strerror}",
                hint="choose a directory that can be written to",
            ) from None
        self._lock = BaseDirLock(
            directory,
            what="recorder",
            file=LOCK,
            hint="end that one, or record into another directory",
        )
        try:
            self.catalogue = load_catalogue(directory) or about or Catalogue()
            self._seal_left_open()
        except BaseException:
            self._lock.close()
            raise
        self._removing = ThreadPoolExecutor(1, thread_name_prefix="record remove")
        """A disk may need as long to give a segment's blocks back as for ten frames."""
        self._writer: SegmentWriter | None = None
        self._head: list[tuple[Row, Any]] = []
        self._opened_ns = 0
        self._appended_ns = 0
        self._synced_ns = 0
        self._unsynced_bytes = 0
        self._failed: tuple[OSError, int] | None = None
        """How the disk failed, and when it is tried again."""
        self._lost: list[Located] = []
        self.error: str | None = None
        """Why the last segment could not be sealed at the end."""
        self.last_seq: int | None = None
        self.durable_seq: int | None = None
        """The newest frame that survives a crash of the machine."""
        self.safe_elsewhere_through = 0
        """Segments up to this number need not be kept here; another thread may move it on."""

    def _seal_left_open(self) -> None:
        """What a crash or a full disk left comes before what is recorded from now on.

        Nothing is written behind it before: who has read further would never come back for it.
        """
        for path in left_open(self.directory):
            kept = seal_left_open(path)
            _LOG.warning("%s was left open; %d rows were kept", path, kept)
            sealed = path.with_name(path.name.removesuffix(OPEN) + SEALED)
            if sealed.exists():
                self.catalogue.segments.append(describe_segment(sealed)[0])
                save_catalogue(self.directory, self.catalogue)

    def set_head(self, rows: list[tuple[Row, Any]]) -> None:
        """What every segment begins with from now on: the metadata of the moment."""
        self._head = rows

    def append(self, row: Row, values: Any = b"", *, now_ns: int, crc32c: int | None = None) -> None:
        """Writes a row; opens, syncs and seals as the options say.

        Args:
            row: The row.
            values: Its bytes.
            now_ns: The time.
            crc32c: The checksum of the bytes, if it is known.

        Raises:
            OSError: The disk failed. The segment is left as it is, and sealed once the disk works again.
        """
        if self._failed is not None and now_ns < self._failed[1]:
            raise self._failed[0]
        try:
            writer = self._writer or self._open(now_ns)
            entry = writer.append(row, values, crc32c)
            self._appended_ns = now_ns
            self._unsynced_bytes += entry.end - entry.start
            if row.kind == "frame":
                self.last_seq = row.seq
            options = self._options
            if options.sync == "frame" or (
                options.sync == "interval" and self._unsynced_bytes >= options.sync_bytes
            ):
                self._sync(now_ns)
            # Metadata comes before its frame: a segment of nothing else could not be sealed.
            if row.kind != "metadata" and writer.nbytes >= options.segment_bytes:
                self.seal()
            self._failed = None
        except OSError as e:
            self._failed = (e, now_ns + _RETRY_NS)
            self._abandon()
            self._lost = [located for located in self._lost if located.row is not row]
            raise

    def take_lost(self) -> list[Located]:
        """Rows that were appended without an error, but had not reached the disk when it failed; once."""
        lost, self._lost = self._lost, []
        return lost

    def on_time(self, now_ns: int) -> None:
        """Does what time asks for: syncs, seals after silence and old age, removes what need not be kept.

        Raises:
            OSError: The disk failed.
        """
        if self._writer is None:
            return
        options = self._options
        try:
            if options.sync == "interval" and now_ns - self._synced_ns >= options.sync_interval_s * _NS:
                self._sync(now_ns)
            silent_s, old_s = (now_ns - since for since in (self._appended_ns, self._opened_ns))
            if silent_s >= options.silence_s * _NS or old_s >= options.segment_s * _NS:
                self.seal()
        except OSError:
            self._abandon()
            raise

    def seal(self) -> None:
        """Seals the open segment, if there is one with frames or gaps in it.

        Raises:
            OSError: The disk failed.
        """
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            info = writer.seal()
        except OSError:
            self._lost += writer.in_doubt
            raise
        finally:
            writer.close()
        fault_point("record.before_catalogue")
        self.durable_seq = self.last_seq
        self.catalogue.segments.append(info)
        gone = self._forget_oldest()
        save_catalogue(self.directory, self.catalogue)
        if gone:
            self._removing.submit(_remove, self.directory, gone)

    def close(self) -> None:
        """Seals and ends; a disk that fails now is logged. May be called again."""
        try:
            self.seal()
        except OSError as e:
            self.error = e.strerror or str(e)
            _LOG.error("the last segment of %s stays open: %s", self.directory, e)
        finally:
            self._removing.shutdown()
            self._lock.close()

    def _open(self, now_ns: int) -> SegmentWriter:
        self._seal_left_open()
        self._writer = writer = SegmentWriter(self.directory, self._next_number())
        self._opened_ns = self._synced_ns = self._appended_ns = now_ns
        self._unsynced_bytes = 0
        for row, values in self._head:
            writer.append(row, values)
        return writer

    def _next_number(self) -> int:
        names = [path.name for path in self.directory.iterdir() if path.name.endswith((SEALED, OPEN, INDEX))]
        numbers = [int(name.partition(".")[0]) for name in names if name[:8].isdecimal()]
        used = [number for number in numbers if number < FIRST_TEMPORARY]
        return max([*used, self.catalogue.removed_through]) + 1  # numbers are never used again

    def _sync(self, now_ns: int) -> None:
        assert self._writer is not None
        self._writer.sync()
        self._synced_ns = now_ns
        self._unsynced_bytes = 0
        self.durable_seq = self.last_seq

    def _abandon(self) -> None:
        if self._writer is not None:
            self._lost += self._writer.in_doubt
            self._writer.close()
            self._writer = None

    def _forget_oldest(self) -> list[str]:
        """Takes the segments that need not be kept out of the catalogue, never the newest; their names."""
        options, segments = self._options, self.catalogue.segments
        newest_ns = segments[-1].last_recorded_ns
        total = sum(segment.nbytes for segment in segments)
        gone = []
        while len(segments) > 1:
            oldest = segments[0]
            too_much = options.keep_bytes is not None and total > options.keep_bytes
            too_old = (
                options.keep_s is not None and newest_ns - oldest.last_recorded_ns > options.keep_s * _NS
            )
            is_elsewhere = number_of(oldest.file) <= self.safe_elsewhere_through
            if not too_much and not too_old and not is_elsewhere:
                break
            total -= oldest.nbytes
            gone.append(segments.pop(0).file)
            self.catalogue.removed_through = number_of(oldest.file)
        return gone


def _remove(directory: Path, segments: list[str]) -> None:
    for name in segments:
        number = name.partition(".")[0]
        for ending in (SEALED, ROWS):
            path = directory / f"{number}{ending}"
            try:
                path.unlink(missing_ok=True)
            except OSError as e:
                _LOG.error("%s is no longer needed, but can't be removed: %s", path, e)

"""The files of one recorded stream: opens, syncs, seals and removes segments, and keeps the catalogue.

For one thread. Times are given, so that tests need not wait.
"""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tensor_pool.closing import Closing
from tensor_pool.driver.lock import BaseDirLock
from tensor_pool.errors import MalformedMessageError, RegionError
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
    from tensor_pool.pipeline.record.rows import Row

__all__ = ["LOCK", "Lost", "StreamStore"]

_LOG: Final = logging.getLogger(__name__)
_NS: Final = 1_000_000_000
LOCK: Final = "recorder.lock"
"""Held while a stream is recorded."""
_RETRY_NS: Final = _NS // 4
"""How long a disk that failed is left alone."""


class Lost(NamedTuple):
    """A row that is not in the recording because the disk failed."""

    row: Row
    nbytes: int
    """How many bytes came with it."""


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
        self._removing = ThreadPoolExecutor(1, thread_name_prefix="record remove")
        """A disk may need as long to give a segment's blocks back as for ten frames."""
        self._has_forgotten = False
        """Segments were taken out of the catalogue, and still are to be removed."""
        try:
            self.catalogue = load_catalogue(directory) or about or Catalogue()
            self._is_stale = bool(self._unlisted())
            """The catalogue on the disk may not name all that is sealed."""
            self._seal_left_open()
        except BaseException:
            self._lock.close()
            raise
        self._writer: SegmentWriter | None = None
        self._head: list[tuple[Row, Any]] = []
        self._opened_ns = 0
        self._appended_ns = 0
        self._synced_ns = 0
        self._unsynced_bytes = 0
        self._failed: tuple[OSError, int] | None = None
        """How the disk failed, and when it is tried again."""
        self._lost: list[Lost] = []
        self.error: str | None = None
        """Why the last segment could not be sealed at the end."""
        self.last_frame: Row | None = None
        """The newest one that is in the recording, or on its way there."""
        self._last_frame_before: Row | None = None
        """That of all segments but the open one."""
        self.durable_seq: int | None = None
        """The newest frame that survives a crash of the machine."""
        self.safe_elsewhere_through = 0
        """Segments up to this number need not be kept here; another thread may move it on."""

    def _seal_left_open(self) -> None:
        """What a crash or a full disk left comes before what is recorded from now on.

        Nothing is written behind it before: who has read further would never come back for it.
        """
        for path in left_open(self.directory):
            self._is_stale = True
            kept = seal_left_open(path)
            _LOG.warning("%s was left open; %d rows were kept", path, kept)
        if self._is_stale:
            self._list_sealed()

    def _list_sealed(self) -> None:
        segments = self.catalogue.segments
        for path in self._unlisted():
            try:
                segments.append(describe_segment(path)[0])
            except MalformedMessageError as e:
                _LOG.warning("%s; it is not listed", e.message)
        segments.sort(key=lambda segment: number_of(segment.file))
        self._save_catalogue()

    def _unlisted(self) -> list[Path]:
        """Sealed segments that are to be kept and are not in the catalogue: it came to an end in between."""
        listed = {segment.file for segment in self.catalogue.segments}
        return [
            path
            for path in self.directory.glob(f"*{SEALED}")
            if path.name not in listed
            and path.stem.isdecimal()
            and self.catalogue.removed_through < number_of(path.name) < FIRST_TEMPORARY
        ]

    def _save_catalogue(self) -> None:
        self._is_stale = True
        save_catalogue(self.directory, self.catalogue)
        self._is_stale = False
        if self._has_forgotten:
            self._has_forgotten = False
            kept = {segment.file for segment in self.catalogue.segments}
            with contextlib.suppress(RuntimeError):  # no thread to spare: with the next one
                self._removing.submit(_remove_forgotten, self.directory, self.catalogue.removed_through, kept)

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
            OSError: The disk failed. The segment is left as it is, and sealed once the disk works again. This
                row may be in it; `take_lost` names it if it is not, and those before it that are not.
        """
        try:
            if self._failed is not None and now_ns < self._failed[1]:
                raise self._failed[0].with_traceback(None)  # which would keep every frame that meets it alive
            writer = self._writer or self._open(now_ns)
            entry = writer.append(row, values, crc32c)
        except OSError as e:
            self._fail(e, now_ns)
            self._lost.append(Lost(row, pa.py_buffer(values).size))
            raise
        self._appended_ns = now_ns
        self._unsynced_bytes += entry.end - entry.start
        if row.kind == "frame":
            self.last_frame = row
        options = self._options
        try:
            if options.sync == "frame" or (
                options.sync == "interval" and self._unsynced_bytes >= options.sync_bytes
            ):
                self._sync(now_ns)
            # Metadata comes before its frame: a segment of nothing else could not be sealed.
            if row.kind != "metadata" and writer.nbytes >= options.segment_bytes:
                self.seal()
        except OSError as e:
            self._fail(e, now_ns)
            raise
        self._failed = None

    def take_lost(self) -> list[Lost]:
        """Rows that were appended and are not in the recording, because the disk failed; each only once."""
        lost, self._lost = self._lost, []
        return lost

    def try_again(self) -> None:
        """Lets the next `append` try a disk that failed, however short ago that was."""
        self._failed = None

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
            self._leave_open(writer)
            raise
        finally:
            writer.close()
        fault_point("record.before_catalogue")
        self._acknowledge()
        self.catalogue.segments.append(info)
        self._forget_oldest()
        self._save_catalogue()

    def close(self) -> None:
        """Seals and ends; a disk that fails now is logged. May be called again."""
        try:
            self.seal()
            if self._lock.held:
                self._seal_left_open()  # of a disk that failed meanwhile, and works again
                self._acknowledge()
        except OSError as e:
            self.error = e.strerror or str(e)
            _LOG.error("the last segment of %s stays open: %s", self.directory, e)
        finally:
            self._removing.shutdown()
            self._lock.close()

    def _open(self, now_ns: int) -> SegmentWriter:
        self._seal_left_open()
        self._writer = writer = SegmentWriter(self.directory, self._next_number())
        self._last_frame_before = self.last_frame
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
        self._acknowledge()

    def _acknowledge(self) -> None:
        self.durable_seq = None if self.last_frame is None else self.last_frame.seq

    def _fail(self, error: OSError, now_ns: int) -> None:
        if self._failed is None or error is not self._failed[0]:
            self._failed = (error, now_ns + _RETRY_NS)
        self._abandon()

    def _abandon(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._leave_open(writer)

    def _leave_open(self, writer: SegmentWriter) -> None:
        """For a repair, without what had not landed."""
        self._is_stale = True  # it may be sealed already
        self._lost += [Lost(located.row, located.nbytes) for located in writer.abandon()]
        self.last_frame = writer.last_frame or self._last_frame_before

    def _forget_oldest(self) -> None:
        """Takes the segments that need not be kept out of the catalogue, never the newest."""
        options, segments = self._options, self.catalogue.segments
        newest_ns = segments[-1].last_recorded_ns
        total = sum(segment.nbytes for segment in segments)
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
            del segments[0]
            self.catalogue.removed_through = number_of(oldest.file)
            self._has_forgotten = True


def _remove_forgotten(directory: Path, through: int, kept: set[str]) -> None:
    """Removes segments up to a number, also those that a crash or an error left there earlier."""
    for path in directory.iterdir():
        if path.suffix not in (SEALED, ROWS) or not path.stem.isdecimal():
            continue
        if int(path.stem) <= through and f"{path.stem}{SEALED}" not in kept:
            try:
                path.unlink(missing_ok=True)
            except OSError as e:
                _LOG.error("%s is no longer needed, but can't be removed: %s", path, e)

"""Recording one stream: a thread that reads and a thread that writes.

The reading thread only copies and sums up, so that it never misses a frame for the disk's sake; between the
two lies a `Backlog`. What does not fit into it is dropped, counted, and told in the recording itself as a
gap.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError, FrameOverwrittenError, TensorPoolError
from tensor_pool.pipeline.record.backlog import Backlog, Taken
from tensor_pool.pipeline.record.clock import clock_offset_ns
from tensor_pool.pipeline.record.consumers import ConsumerNotes
from tensor_pool.pipeline.record.options import StreamProgress
from tensor_pool.pipeline.record.rows import Row, checksum, to_batch

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.store import StreamStore
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.frame import Frame
    from tensor_pool.wire.messages import QosConsumer

__all__ = ["StreamRecorder"]

_LOG: Final = logging.getLogger(__name__)
_SLICE_S: Final = 0.1
_NOTHING: Final[NDArray[Any]] = np.empty(0, np.uint8)
_TOO_LARGE: Final = 2**63
"""Numbers are signed in tables."""


class StreamRecorder(Closing):
    """Records one stream until it is closed.

    Args:
        consumer: Where frames come from, in copy mode; belongs to the recorder from now on.
        store: Where rows go; belongs to the recorder too.
        backlog_bytes: What may wait for the disk.
    """

    def __init__(self, consumer: Consumer, store: StreamStore, *, backlog_bytes: int) -> None:
        self._consumer = consumer
        self._store = store
        self._backlog = Backlog(max_bytes=backlog_bytes)
        self._notes = ConsumerNotes(store.directory)
        self._progress = StreamProgress()
        self._next: tuple[int, int] | None = None
        self._gap: Row | None = None
        """Frames that the reading thread misses and has not told of yet."""
        self._unwritten: list[Row] = []
        """Gaps of what the writing thread could not write and has not told of yet: one for each epoch."""
        self._told_metadata: tuple[int, int] | None = None
        self._clock_of: tuple[int, int] | None = None
        self._clock_offset_ns = clock_offset_ns({})
        to_batch(Row(kind="frame", stream_id=0, epoch=0, seq=0))  # the first one imports for half a second
        self._stop = threading.Event()
        self._reading = threading.Thread(target=self._read, name="record read", daemon=True)
        self._writing = threading.Thread(target=self._write, name="record write", daemon=True)
        consumer.session.watch_reports(self._note)
        self._writing.start()
        self._reading.start()
        _close_at_exit(self)

    @property
    def progress(self) -> StreamProgress:
        """What became of the stream so far."""
        return msgspec.structs.replace(
            self._progress,
            backlog_bytes=self._backlog.nbytes,
            durable_seq=self._store.durable_seq,
            segments=len(self._store.catalogue.segments),
        )

    def let_go_through(self, number: int) -> None:
        """Segments up to this number are safe elsewhere, and removed when the next one is sealed."""
        self._store.safe_elsewhere_through = number

    @property
    def is_running(self) -> bool:
        """Whether it still reads."""
        return self._reading.is_alive()

    def close(self) -> None:
        """Writes what was read, seals the segment, and gives the stream back. May be called again."""
        self._stop.set()
        self._reading.join()
        self._writing.join()
        self._consumer.close()
        _open_recorders.discard(self)

    # --- reading --------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                frame = self._consumer.poll(timeout=_SLICE_S)
                if frame is not None:
                    self._take(frame)
        except ClosedError:
            pass
        except TensorPoolError as e:
            self._progress.error = e.message
            _LOG.error("recording of %s ends: %s", self._consumer.name, e)
        finally:
            if self._gap is not None:
                self._backlog.put(Taken(self._gap, _NOTHING))
            self._backlog.close()

    def _take(self, frame: Frame) -> None:
        epoch, seq = frame.epoch, frame.seq
        if self._next is not None and self._next[0] == epoch and seq > self._next[1]:
            missing = seq - self._next[1]
            self._progress.lost += missing
            self._miss(frame, self._next[1], missing, "lost")
        self._next = (epoch, seq + 1)
        reason = self._keep(frame)
        if reason is not None:
            self._progress.dropped += 1
            self._miss(frame, seq, 1, reason)

    def _keep(self, frame: Frame) -> str | None:
        """Hands a frame over to be written; why not, if not."""
        if frame.epoch >= _TOO_LARGE or frame.seq >= _TOO_LARGE or frame.timestamp_ns >= _TOO_LARGE:
            return "number_too_large"
        try:
            array = frame.copy() if frame.borrowed else frame.array
        except FrameOverwrittenError:
            return "overwritten"
        info = frame.info
        row = Row(
            kind="frame",
            stream_id=info.stream_id,
            epoch=info.epoch,
            seq=info.seq,
            timestamp_ns=info.timestamp_ns,
            recorded_ns=time.time_ns(),
            dtype=info.dtype,
            shape=info.shape,
            order=info.order,
            meta_version=info.meta_version,
            trace_id=info.trace_id,
        )
        before = [] if self._gap is None else [Taken(self._gap, _NOTHING)]
        if not self._backlog.put(*before, Taken(row, array, checksum(array))):
            return "backlog_full"
        self._gap = None
        return None

    def _miss(self, frame: Frame, seq: int, count: int, status: str) -> None:
        """Tells of missing frames in a row as one."""
        gap = Row(
            kind="gap",
            stream_id=frame.stream_id,
            epoch=min(frame.epoch, _TOO_LARGE - 1),
            seq=min(seq, _TOO_LARGE - 1),
            count=count,
            status=status,
            timestamp_ns=min(frame.timestamp_ns, _TOO_LARGE - 1),
            recorded_ns=time.time_ns(),
        )
        before = self._gap
        self._gap = gap if before is None else before.extended(gap) or gap
        if before is not None and self._gap is gap:
            self._backlog.put(Taken(before, _NOTHING))

    def _note(self, report: QosConsumer, is_recorder: bool) -> None:
        self._notes.on_report(report, is_recorder, now_ns=time.time_ns())

    # --- writing --------------------------------------------------------------------------------------

    def _write(self) -> None:
        while True:
            taken = self._backlog.take(_SLICE_S)
            try:
                if taken is not None:
                    self._append(taken)
                self._store.on_time(time.monotonic_ns())
                self._notes.on_time(time.monotonic_ns())
            except OSError as e:
                self._take_back()
                self._on_disk_error(e)
            finally:
                if taken is not None:
                    self._backlog.done(taken)
            if taken is None and self._backlog.is_over:
                break
        self._tell_the_rest()
        self._notes.save()  # before the last catalogue, after which an upload is done
        self._store.close()
        self._take_back()
        if self._store.error is not None:
            self._progress.error = self._store.error

    def _append(self, taken: Taken) -> None:
        row = msgspec.structs.replace(taken.row, realtime_offset_ns=self._realtime_offset_ns(taken.row))
        try:
            if row.kind == "frame":
                self._tell_metadata(row)
            self._tell_unwritten()
        except OSError:
            self._take_back()
            self._give_up(row)
            raise
        try:
            self._store.append(row, taken.array, now_ns=time.monotonic_ns(), crc32c=taken.crc32c)
        except OSError:
            if not self._take_back(row):  # it is in the file, and what came next has failed
                self._count(row, taken.array.nbytes)
            raise
        self._count(row, taken.array.nbytes)
        self._on_disk_works()

    def _count(self, row: Row, nbytes: int) -> None:
        if row.kind == "frame":
            self._progress.frames += 1
            self._progress.nbytes += nbytes
            self._progress.epoch, self._progress.last_seq = row.epoch, row.seq

    def _take_back(self, uncounted: Row | None = None) -> bool:
        """Counts and tells of rows that were on their way to the disk when it failed.

        Args:
            uncounted: The row that was not counted as recorded yet.

        Returns:
            Whether that one is among them.
        """
        later, self._unwritten = self._unwritten, []
        lost = self._store.take_lost()
        for row, nbytes in lost:
            if row.kind == "frame" and row is not uncounted:
                self._progress.frames -= 1
                self._progress.nbytes -= nbytes
                last = self._store.last_frame
                self._progress.epoch = None if last is None else last.epoch
                self._progress.last_seq = None if last is None else last.seq
            if row.kind != "metadata":
                self._give_up(row)
        self._unwritten += later
        return any(row is uncounted for row, _ in lost)

    def _give_up(self, row: Row) -> None:
        """Remembers what could not be written, to tell of it when the disk works again."""
        self._progress.dropped += row.count if row.kind == "frame" else 0
        gap = Row(
            kind="gap",
            stream_id=row.stream_id,
            epoch=row.epoch,
            seq=row.seq,
            count=row.count,
            status="disk",
            timestamp_ns=row.timestamp_ns,
            recorded_ns=row.recorded_ns,
        )
        extended = self._unwritten[-1].extended(gap) if self._unwritten else None
        if extended is not None:
            self._unwritten.pop()
        self._unwritten.append(extended or gap)

    def _tell_unwritten(self) -> None:
        while self._unwritten:
            gap = self._unwritten.pop(0)  # before: what fails now comes back as lost
            self._store.append(gap, now_ns=time.monotonic_ns())

    def _tell_the_rest(self) -> None:
        """No frame comes any more that could be told with: tries the disk once more, by itself."""
        if not self._unwritten:
            return
        self._store.try_again()
        try:
            self._tell_unwritten()
        except OSError as e:
            self._take_back()
            self._on_disk_error(e)
        else:
            self._on_disk_works()

    def _tell_metadata(self, row: Row) -> None:
        """Writes the metadata that a frame refers to, once, and at the start of each later segment."""
        if (row.epoch, row.meta_version) == self._told_metadata:
            return
        version = self._consumer.metadata.at(row.meta_version)
        if version is None:
            return  # not heard yet: with one of the next frames
        about = Row(
            kind="metadata",
            stream_id=row.stream_id,
            epoch=row.epoch,
            seq=row.seq,
            count=0,
            timestamp_ns=row.timestamp_ns,
            recorded_ns=row.recorded_ns,
            meta_version=row.meta_version,
        )
        values = msgspec.json.encode(list(version.attributes.values()))
        self._store.append(about, values, now_ns=time.monotonic_ns())
        self._store.set_head([(about, values)])
        self._told_metadata = (row.epoch, row.meta_version)

    def _realtime_offset_ns(self, row: Row) -> int | None:
        """What turns the time stamp of a row into real time; None when nothing does."""
        version = None if row.kind != "frame" else self._consumer.metadata.at(row.meta_version)
        if version is not None and (row.epoch, row.meta_version) != self._clock_of:
            self._clock_of = (row.epoch, row.meta_version)
            self._clock_offset_ns = clock_offset_ns(version)
        return self._clock_offset_ns

    def _on_disk_works(self) -> None:
        if self._progress.error is not None:
            _LOG.warning("recording of %s goes on", self._consumer.name)
            self._progress.error = None

    def _on_disk_error(self, error: OSError) -> None:
        text = error.strerror or str(error)
        if self._progress.error != text:
            _LOG.error("can't record %s: %s; frames are dropped until it works", self._consumer.name, text)
        self._progress.error = text


_open_recorders: Final[weakref.WeakSet[StreamRecorder]] = weakref.WeakSet()


def _close_at_exit(recorder: StreamRecorder) -> None:
    """Seals what a program forgets to close; a thread that still wrote while Python ends could abort it."""
    if not _open_recorders:
        # Anew, to come before the exit hook of the pools: last come, first served.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _open_recorders.add(recorder)


def _close_all() -> None:
    for recorder in list(_open_recorders):
        recorder.close()

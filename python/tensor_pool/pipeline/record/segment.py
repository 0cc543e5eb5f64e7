"""One file of a recording while it is written: an Arrow IPC file that grows row by row, and its index.

Until it is sealed the file has no footer; whoever reads it then goes through it from its start, up to the
last whole row. Its name says so: ``00000003.arrow.open`` becomes ``00000003.arrow``, with the table of its
rows beside it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.pipeline.record.growing_file import GrowingFile
from tensor_pool.pipeline.record.index import IndexEntry
from tensor_pool.pipeline.record.row_table import ROWS, Located, describe_rows, row_table, to_bytes
from tensor_pool.pipeline.record.rows import SCHEMA, to_batch
from tensor_pool.pipeline.record.synced import sync_directory, write_synced
from tensor_pool.runtime.faults import fault_point

if TYPE_CHECKING:
    from pathlib import Path

    from tensor_pool.pipeline.record.catalogue import SegmentInfo
    from tensor_pool.pipeline.record.rows import Row

__all__ = ["INDEX", "OPEN", "SEALED", "SegmentWriter"]

SEALED: Final = ".arrow"
OPEN: Final = ".arrow.open"
INDEX: Final = ".index"
_ALIGNMENT: Final = 8
"""Arrow pads buffers to that."""


class SegmentWriter(Closing):
    """Writes one segment.

    Args:
        directory: Where it lies; must exist.
        number: Of the segment; there must be none with it yet.

    Raises:
        OSError: The files can't be made.

    Example:
        >>> import pathlib, tempfile
        >>> from tensor_pool.pipeline.record.rows import Row
        >>> with tempfile.TemporaryDirectory() as name:
        ...     writer = SegmentWriter(pathlib.Path(name), 1)
        ...     entry = writer.append(Row(kind="frame", stream_id=1, epoch=1, seq=0), b"12345678")
        ...     writer.sync()
        ...     writer.seal().file
        '00000001.arrow'
    """

    def __init__(self, directory: Path, number: int) -> None:
        self.number = number
        self.directory: Final = directory
        self.path: Final = directory / f"{number:08}{OPEN}"
        self._index_path: Final = directory / f"{number:08}{INDEX}"
        self.entries: list[IndexEntry] = []
        """Rows that are in the file, synced or not."""
        self.synced_rows = 0
        self._resources = contextlib.ExitStack()
        self._unindexed: list[IndexEntry] = []
        self._rows: list[Located] = []
        try:
            self._file = self._resources.enter_context(GrowingFile(self.path))
            self._index_fd = self._open_index()
            self._writer = pa.ipc.new_file(self._file, SCHEMA)
            fault_point("record.segment_open")
        except BaseException:
            self.close()
            for path in (self.path, self._index_path):  # nothing is in them
                path.unlink(missing_ok=True)
            raise

    def _open_index(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND
        fd = os.open(self._index_path, flags, 0o644)
        self._resources.callback(os.close, fd)
        return fd

    @property
    def last_frame(self) -> Row | None:
        """The newest frame in it."""
        return next((located.row for located in reversed(self._rows) if located.row.kind == "frame"), None)

    @property
    def nbytes(self) -> int:
        """How long the file is."""
        return self.entries[-1].end if self.entries else 0

    def append(self, row: Row, values: Any = b"", crc32c: int | None = None) -> IndexEntry:
        """Writes a row, or leaves it under way; it counts once `sync` has returned.

        Args:
            row: The row.
            values: Its bytes.
            crc32c: Their checksum, if it is known.

        Raises:
            OSError: It, or a row that was under way, can't be written. What was before them stays readable;
                no more can be added.
        """
        batch, crc = to_batch(row, values, crc32c)
        start = self._file.tell()
        self._writer.write_batch(batch)
        self._file.flush()
        end = self._file.tell()
        nbytes = batch.column(batch.num_columns - 1).buffers()[2].size
        padded = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        entry = IndexEntry(
            start, end, end - padded, row.epoch, row.seq, row.timestamp_ns, nbytes, crc, row.count
        )
        self.entries.append(entry)
        attributes = bytes(values) if row.kind == "metadata" else None
        self._rows.append(Located(row, crc, entry.values_start if nbytes else 0, nbytes, attributes))
        self._unindexed.append(entry)
        return entry

    def sync(self) -> None:
        """Makes all rows so far survive a crash: the rows first, then the entries that vouch for them.

        Raises:
            OSError: The disk failed, or the file was removed meanwhile.
        """
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, f"{self.path} was removed while it was written")
        if self._unindexed:
            fault_point("record.before_sync")
            self._file.settle()
            os.fdatasync(self._file.fileno())
            fault_point("record.before_index")
            self._write_index(b"".join(entry.encode() for entry in self._unindexed))
            self._unindexed.clear()
            os.fdatasync(self._index_fd)
        self.synced_rows = len(self.entries)

    def _write_index(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._index_fd, data) :]

    def seal(self) -> SegmentInfo:
        """Writes the footer and the table of rows, syncs, and gives the file its final name.

        Raises:
            OSError: The disk failed; the open segment stays as it is.
            MalformedMessageError: There is no frame in it.
        """
        self.sync()
        self._writer.close()
        self._file.settle()
        os.fsync(self._file.fileno())
        self._resources.close()
        fault_point("record.before_rename")
        sealed = self.path.with_name(f"{self.number:08}{SEALED}")
        table = to_bytes(row_table(self._rows))
        info = describe_rows(
            sealed.name,
            self.path.stat().st_size,
            [located.row for located in self._rows],
            rows_crc32c=_native.crc32c(table),
        )
        write_synced(self.path.with_name(f"{self.number:08}{ROWS}"), table)
        self.path.rename(sealed)
        sync_directory(self.directory)
        self._index_path.unlink(missing_ok=True)
        return info

    def abandon(self) -> list[Located]:
        """Lets go of the files after an error; the rows that had not landed, which are in them no longer.

        A row that is told missing must not be found there later, when the segment is repaired.
        """
        landed = self._file.landed
        kept = sum(entry.end <= landed for entry in self.entries)
        lost = self._rows[kept:]
        del self.entries[kept:], self._rows[kept:]
        if not self._file.closed:
            with contextlib.suppress(OSError):  # the rows that are cut off are rarely whole anyway
                self._file.cut(self.nbytes)
        self.close()
        return lost

    def close(self) -> None:
        """Lets go of the files as they are: an unsealed segment waits for a repair. May be called again."""
        self._resources.close()

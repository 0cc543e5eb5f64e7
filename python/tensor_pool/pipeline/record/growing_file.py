"""A file that only grows, whose large pieces go to the disk past the page cache while the next ones are made.

A recorder writes more than it will ever read, at rates at which filling the page cache costs more than the
disk does: on a virtual machine whose host takes unused memory back, each fresh page of the cache is a fault
in the host, and a disk of 1,300 MB/s looks like one of 300. Small pieces, and blocks that two pieces share,
go through the page cache as ever, so that a direct write never meets a dirty page.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["GrowingFile"]

_BLOCK: Final = 4096
"""Direct writes begin and end at multiples of this, in the file and in memory; enough for all usual disks."""
_LARGE: Final = 1 << 20
_STAGE_BYTES: Final = 4 << 20
_STAGES: Final = 2
"""One is written while the other is filled."""


class _UnderWay(NamedTuple):
    start: int
    writing: Future[None]
    stage: NDArray[np.uint8] | None
    """What is free again afterwards."""


class GrowingFile(io.RawIOBase):
    """A new file that is written from its start to its end, by one thread.

    Args:
        path: Must not exist.

    Raises:
        OSError: It can't be made.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     path = pathlib.Path(name, "rows")
        ...     with GrowingFile(path) as file:
        ...         _ = file.write(b"head"), file.write(bytes(3 << 20)), file.settle()
        ...     path.stat().st_size
        3145732
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._direct_fd = _open_direct(path)
        self._end = 0
        """Of what was written, also if it waits among the small pieces or is under way."""
        self._small = bytearray()
        self._stages: list[NDArray[np.uint8]] = []
        """Aligned memory that is not in use; there is none before the first large piece."""
        self._under_way: deque[_UnderWay] = deque()
        self._disk: ThreadPoolExecutor | None = None

    @property
    def is_direct(self) -> bool:
        """Whether the file system lets large pieces past the page cache."""
        return self._direct_fd is not None

    @property
    def landed(self) -> int:
        """Up to where everything is in the file for certain."""
        return self._under_way[0].start if self._under_way else self._end - len(self._small)

    def fileno(self) -> int:
        """Of the file."""
        return self._fd

    def writable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """How long the file is, or will be once everything has landed."""
        return self._end

    def write(self, data: Any) -> int:
        """Adds bytes; small pieces wait for `flush`, large ones may be under way until `settle`.

        Raises:
            OSError: These or earlier ones can't be written; the file is of no use for more.
        """
        piece = np.frombuffer(data, np.uint8)
        if piece.size < _LARGE:
            self._add_small(piece)
            return piece.size
        head = -self._end % _BLOCK
        tail = (self._end + piece.size) % _BLOCK
        self._add_small(piece[:head])
        self.flush()
        for start in range(head, piece.size - tail, _STAGE_BYTES):
            self._write_blocks(piece[start : min(start + _STAGE_BYTES, piece.size - tail)])
        self._add_small(piece[piece.size - tail :])
        return piece.size

    def flush(self) -> None:
        """Hands small pieces over to the operating system, or leaves them under way behind large ones.

        Raises:
            OSError: They can't be written; the file is of no use for more.
        """
        if not self._small:
            return
        waiting = memoryview(self._small)
        start = self._end - len(waiting)
        if self._under_way:  # a file takes one write at a time: it would wait, and so would the next frame
            self._send(_write_all, self._fd, waiting, start)
        else:
            _write_all(self._fd, waiting, start)
        self._small = bytearray()  # not before: what can't be written has not landed

    def settle(self) -> None:
        """Returns when everything is in the file: it survives the end of this process.

        Raises:
            OSError: Something can't be written; the file is of no use for more.
        """
        self.flush()
        while self._under_way:
            self._settle_oldest()

    def cut(self, end: int) -> None:
        """Takes back everything from there on, landed or not; the file is of no use for more.

        Raises:
            OSError: It can't be cut.
        """
        self._small = bytearray()
        if self._disk is not None:
            self._disk.shutdown(cancel_futures=True)  # what comes behind a failed write may still succeed
        os.ftruncate(self._fd, end)

    def close(self) -> None:
        """Lets go of the file; what has not landed may be missing in it. May be called again."""
        if self.closed:
            return
        self._small = bytearray()
        if self._disk is not None:
            self._disk.shutdown()
        super().close()
        os.close(self._fd)
        if self._direct_fd is not None:
            os.close(self._direct_fd)

    def _add_small(self, piece: NDArray[np.uint8]) -> None:
        self._small += piece.data
        self._end += piece.size

    def _write_blocks(self, blocks: NDArray[np.uint8]) -> None:
        if self._direct_fd is None:
            _write_all(self._fd, blocks.data, self._end)
        else:
            stage = self._free_stage()
            staged = stage[: blocks.size]
            np.copyto(staged, blocks)  # lets other threads run meanwhile, which a slice of bytes would not
            self._send(self._write_direct, self._direct_fd, staged.data, self._end, stage)
        self._end += blocks.size

    def _free_stage(self) -> NDArray[np.uint8]:
        if self._disk is None:
            self._disk = ThreadPoolExecutor(1, thread_name_prefix="record disk")
            self._stages += [np.frombuffer(mmap.mmap(-1, _STAGE_BYTES), np.uint8) for _ in range(_STAGES)]
        while not self._stages:
            self._settle_oldest()
        return self._stages.pop()

    def _send(
        self,
        write: Callable[[int, memoryview, int], None],
        fd: int,
        data: memoryview,
        at: int,
        stage: NDArray[np.uint8] | None = None,
    ) -> None:
        assert self._disk is not None, "only large pieces begin to be under way"
        try:
            self._under_way.append(_UnderWay(at, self._disk.submit(write, fd, data, at), stage))
        except RuntimeError:  # the machine has no thread to spare, or Python is about to end
            while self._under_way:
                self._settle_oldest()
            self._disk.shutdown(cancel_futures=True)  # it may wait there all the same
            write(fd, data, at)
            if stage is not None:
                self._stages.append(stage)

    def _write_direct(self, fd: int, blocks: memoryview, at: int) -> None:
        try:
            _write_all(fd, blocks, at)
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise
            _write_all(self._fd, blocks, at)  # the disk wants larger blocks, or other memory

    def _settle_oldest(self) -> None:
        oldest = self._under_way[0]
        oldest.writing.result()
        self._under_way.popleft()
        if oldest.stage is not None:
            self._stages.append(oldest.stage)


def _open_direct(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
    return None


def _write_all(fd: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written

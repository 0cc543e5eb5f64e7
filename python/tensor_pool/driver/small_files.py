"""Small files beside regions, also where files can only be mapped (hugetlbfs)."""

from __future__ import annotations

import errno
import mmap
import os

__all__ = ["read_small", "write_small"]


def write_small(fd: int, content: bytes) -> None:
    """Writes the contents of an empty file that is open for reading and writing; synced on return.

    Where the file system has no `write`, the file becomes as long as a page of it, filled up with zeros.

    Raises:
        OSError: They can't be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryFile() as file:
        ...     write_small(file.fileno(), b"{}")
        ...     read_small(file.fileno(), 100)
        b'{}'
    """
    try:
        while content:
            content = content[os.write(fd, content) :]
    except OSError as e:
        if e.errno != errno.EINVAL:
            raise
        page_bytes = os.fstat(fd).st_blksize
        size = -(-len(content) // page_bytes) * page_bytes
        os.ftruncate(fd, size)
        with mmap.mmap(fd, size) as memory:
            memory[: len(content)] = content
    os.fsync(fd)


def read_small(fd: int, most: int) -> bytes:
    """At most so many bytes of what `write_small` wrote: text, which has no zeros of its own.

    Raises:
        OSError: It can't be read.
    """
    return os.pread(fd, most, 0).rstrip(b"\0")

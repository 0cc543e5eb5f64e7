"""The distinct errors that a media driver keeps in its file ``cnc.dat``: each once, with how often and when.

The file is read, never mapped: a file that shrinks while it is looked at gives fewer errors and no signal.
Its layout is Aeron's: metadata of 128 bytes, then the buffers whose lengths stand in it, the log last. A
record is its length, a count, two times in milliseconds since 1970 and the text, on multiples of 8 bytes.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool.errors import NoMediaDriverError
from tensor_pool.transport.aeron_dir import start_hint
from tensor_pool.transport.media import resolve_aeron_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DriverError", "read_driver_errors"]

_FILE: Final = "cnc.dat"
_METADATA_BYTES: Final = 128
_LENGTHS: Final = struct.Struct("<6i")  # version, to driver, to clients, counter metadata and values, log
_RECORD: Final = struct.Struct("<iiqq")
_ALIGNMENT: Final = 8
_MOST_LOG_BYTES: Final = 64 << 20
_LONGEST_TEXT: Final = 64 << 10


class DriverError(NamedTuple):
    """One distinct error; times are milliseconds since 1970."""

    observations: int
    first_ms: int
    last_ms: int
    text: str


def read_driver_errors(aeron_dir: str | os.PathLike[str] | None = None) -> list[DriverError]:
    """The errors of a media driver, dead or alive, in the order in which they first occurred.

    Args:
        aeron_dir: The media driver's directory; `default_aeron_dir()` when not given.

    Raises:
        NoMediaDriverError: The directory holds no media driver's file.

    Example:
        >>> from tensor_pool.transport import EmbeddedMediaDriver
        >>> with EmbeddedMediaDriver.temporary() as driver:
        ...     read_driver_errors(driver.aeron_dir)
        []
    """
    directory = resolve_aeron_dir(aeron_dir)
    return list(_records(_read_log(directory)))


def _read_log(directory: str) -> bytes:
    """The bytes of the log. Non-blocking, so that a pipe of that name can't make us wait."""
    try:
        descriptor = os.open(Path(directory) / _FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as e:
        raise _none(directory, e.strerror or str(e)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _none(directory, f"{_FILE} is not a file")
    with os.fdopen(descriptor, "rb") as file:
        metadata = file.read(_METADATA_BYTES)
        if len(metadata) < _METADATA_BYTES:
            raise _none(directory, f"{_FILE} is too short")
        version, *before, length = _LENGTHS.unpack_from(metadata)
        if version == 0 or min(*before, length) < 0:
            raise _none(directory, f"{_FILE} is not complete")
        file.seek(_METADATA_BYTES + sum(before))
        return file.read(min(length, _MOST_LOG_BYTES))


def _records(log: bytes) -> Iterator[DriverError]:
    offset = 0
    while offset + _RECORD.size <= len(log):
        length, count, last_ms, first_ms = _RECORD.unpack_from(log, offset)
        if length < _RECORD.size or offset + length > len(log):
            return  # the end, a record that is being written, or damage: nothing behind it can be found
        text = log[offset + _RECORD.size : offset + min(length, _LONGEST_TEXT)]
        yield DriverError(count, first_ms, last_ms, text.decode("utf-8", "replace").rstrip("\0"))
        offset += -(-length // _ALIGNMENT) * _ALIGNMENT


def _none(directory: str, why: str) -> NoMediaDriverError:
    return NoMediaDriverError(
        f"no media driver's errors in {directory}: {why}",
        hint=start_hint(directory),
    )

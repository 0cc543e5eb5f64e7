"""What a driver remembers over restarts: which id each name has, and the highest epoch that was used."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from tensor_pool.driver.small_files import read_small, write_small
from tensor_pool.runtime.faults import fault_point

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RememberedStream", "StateFile", "StateRecord"]

_LOG: Final = logging.getLogger(__name__)
_FILE: Final = "driver-state.json"
_LARGEST: Final = 64 << 20


class RememberedStream(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream that keeps its id."""

    id: Annotated[int, Meta(ge=1, le=2**32 - 2)]
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    is_claimed: bool = True
    """Whether anybody ever attached to it."""


class StateRecord(msgspec.Struct, frozen=True):
    """The contents of the file."""

    version: Annotated[int, Meta(ge=1, le=1)] = 1
    highest_epoch: Annotated[int, Meta(ge=0, le=2**62)] = 0
    streams: tuple[RememberedStream, ...] = ()
    shutdown_requests: tuple[int, ...] = ()
    """Correlation ids of shutdown requests that were granted: a log that lingers must not end us again."""


class StateFile:
    """The file, replaced as a whole: a reader finds the old contents or the new ones, never a mixture.

    Args:
        directory: Where it lies.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     file = StateFile(pathlib.Path(directory))
        ...     file.save(StateRecord(highest_epoch=5))
        ...     file.load().highest_epoch
        5
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE

    def load(self) -> StateRecord:
        """What was saved; an empty record when there is nothing that can be read.

        A file that can't be read is no reason to refuse to start: epochs also grow with the clock and with
        the directories found (decision D6). Only names may get other ids.
        """
        try:
            with self._path.open("rb") as file:
                content = read_small(file.fileno(), _LARGEST)
            return msgspec.json.decode(content, type=StateRecord)
        except FileNotFoundError:
            return StateRecord()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as e:
            _LOG.warning("%s can't be read and is replaced: %s", self._path, e)
            return StateRecord()

    def save(self, record: StateRecord) -> None:
        """Replaces the contents.

        Raises:
            OSError: They can't be written; the old ones are still there.
        """
        fault_point("driver.before_state")
        temporary = self._path.with_suffix(".new")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                write_small(fd, msgspec.json.encode(record))
            finally:
                os.close(fd)
            temporary.rename(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        fault_point("driver.after_state")

"""Makes sealed segments of those that a crash left open."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.record.index import read_entries
from tensor_pool.pipeline.record.reading import read_rows
from tensor_pool.pipeline.record.row_table import ROWS
from tensor_pool.pipeline.record.segment import INDEX, OPEN, SEALED, SegmentWriter
from tensor_pool.pipeline.record.synced import TEMPORARY, sync_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FIRST_TEMPORARY", "acknowledged_rows", "left_open", "seal_left_open"]

_LOG: Final = logging.getLogger(__name__)
FIRST_TEMPORARY: Final = 90_000_000
"""Numbers from here on are those of segments that are being repaired."""
_ASIDE: Final = ".arrow.unreadable"


def left_open(directory: Path) -> list[Path]:
    """The open segments of a directory, oldest first."""
    return sorted(
        path for path in directory.glob(f"[0-9]*{OPEN}") if path.is_file() and _number(path) < FIRST_TEMPORARY
    )


def _number(path: Path) -> int:
    digits = path.name.removesuffix(OPEN)
    return int(digits) if digits.isdecimal() else FIRST_TEMPORARY


def acknowledged_rows(path: Path) -> int:
    """How many rows of an open segment were synced, by its index."""
    index = path.with_name(path.name.removesuffix(OPEN) + INDEX)
    with contextlib.suppress(OSError):
        return len(read_entries(index.read_bytes()))
    return 0


def seal_left_open(path: Path) -> int:
    """Makes a sealed segment of what is whole in an open one; how many rows that is.

    An empty one goes. One that can't be read at all is set aside under another name.

    Raises:
        OSError: The disk failed; the open segment is as it was.
    """
    number, directory = _number(path), path.parent
    temporary = FIRST_TEMPORARY + number
    _remove_temporary(directory, temporary)  # of a repair that was interrupted
    try:
        kept = [recorded for recorded in read_rows(path) if recorded.is_whole]
    except MalformedMessageError as e:
        _LOG.warning("%s; it is set aside", e.message)
        path.rename(path.with_name(path.name.removesuffix(OPEN) + _ASIDE))
        return 0
    if any(recorded.row.kind != "metadata" for recorded in kept):
        try:
            with SegmentWriter(directory, temporary) as writer:
                for recorded in kept:
                    writer.append(recorded.row, recorded.values)
                writer.seal()
        except OSError:
            _remove_temporary(directory, temporary)
            raise
        for ending in (ROWS, SEALED):
            (directory / f"{temporary:08}{ending}").rename(directory / f"{number:08}{ending}")
        sync_directory(directory)
    for old in (path, *(directory / f"{number:08}{ending}" for ending in (INDEX, ROWS + TEMPORARY))):
        old.unlink(missing_ok=True)
    return len(kept)


def _remove_temporary(directory: Path, number: int) -> None:
    for old in directory.glob(f"{number:08}.*"):
        old.unlink(missing_ok=True)

"""Makes sealed segments of those that a crash left open."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tensor_pool.pipeline.record.index import read_entries
from tensor_pool.pipeline.record.reading import read_rows
from tensor_pool.pipeline.record.row_table import ROWS
from tensor_pool.pipeline.record.segment import INDEX, OPEN, SEALED, SegmentWriter
from tensor_pool.pipeline.record.synced import sync_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["acknowledged_rows", "seal_left_open"]

_REPAIR: Final = 90_000_000
"""Numbers from here on are those of segments that are being repaired."""


def acknowledged_rows(path: Path) -> int:
    """How many rows of an open segment were synced, by its index."""
    index = path.with_name(path.name.removesuffix(OPEN) + INDEX)
    with contextlib.suppress(OSError):
        return len(read_entries(index.read_bytes()))
    return 0


def seal_left_open(path: Path) -> int:
    """Makes a sealed segment of what is whole in an open one; how many rows that is. An empty one goes."""
    number, directory = int(path.name.removesuffix(OPEN)), path.parent
    temporary = _REPAIR + number
    for old in directory.glob(f"{temporary:08}.*"):
        old.unlink()  # of a repair that was interrupted
    kept = [recorded for recorded in read_rows(path) if recorded.is_whole]
    if any(recorded.row.kind != "metadata" for recorded in kept):
        with SegmentWriter(directory, temporary) as writer:
            for recorded in kept:
                writer.append(recorded.row, recorded.values)
            writer.seal()
        for ending in (ROWS, SEALED):
            (directory / f"{temporary:08}{ending}").rename(directory / f"{number:08}{ending}")
        sync_directory(directory)
    for old in (path, directory / f"{number:08}{INDEX}"):
        old.unlink(missing_ok=True)
    return len(kept)

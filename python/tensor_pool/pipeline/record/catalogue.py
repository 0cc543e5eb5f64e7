"""What a recording holds, stream by stream: the list of its segments and what is in them.

A recording is a directory with one directory for each stream; in it lie segments and ``catalogue.json``. The
catalogue saves looking into every file. It is replaced as a whole after each segment, and can be made anew
from the segments.
"""

from __future__ import annotations

import os
import urllib.parse
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.record.rows import FORMAT_VERSION
from tensor_pool.pipeline.record.segment import sync_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CATALOGUE", "Catalogue", "SegmentInfo", "load_catalogue", "save_catalogue", "stream_directory"]

CATALOGUE: Final = "catalogue.json"


class SegmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a sealed segment."""

    file: str
    nbytes: int
    rows: int
    frames: int
    lost: int
    """Frames that its gaps stand for."""
    first_epoch: int
    last_epoch: int
    first_seq: int
    """Of its first epoch."""
    last_seq: int
    """Of its last epoch."""
    first_timestamp_ns: int
    last_timestamp_ns: int
    first_recorded_ns: int
    last_recorded_ns: int


class Catalogue(msgspec.Struct, kw_only=True):
    """All segments of one stream, oldest first."""

    version: int = FORMAT_VERSION
    stream_name: str = ""
    stream_id: int = 0
    host: str = ""
    boot_id: str = ""
    segments: list[SegmentInfo] = []

    @property
    def frames(self) -> int:
        """Frames in all of them."""
        return sum(segment.frames for segment in self.segments)

    @property
    def nbytes(self) -> int:
        """What they take on the disk."""
        return sum(segment.nbytes for segment in self.segments)


def stream_directory(recording: Path, stream: str | int) -> Path:
    """Where a stream of a recording lies; names that no file may have are written with percent signs.

    Example:
        >>> from pathlib import Path
        >>> [stream_directory(Path("out"), stream).as_posix() for stream in ("lab/camera-1", 10000)]
        ['out/lab%2Fcamera-1', 'out/10000']
    """
    name = urllib.parse.quote(str(stream), safe=" !#$&'()+,-;=@[]^_`{}~")
    return recording / (f"%2E{name[1:]}" if name.startswith(".") else name)


def load_catalogue(directory: Path) -> Catalogue | None:
    """The catalogue of a stream; None when there is none yet.

    Raises:
        MalformedMessageError: It can't be understood, or a newer release wrote it.
        OSError: It can't be read.
    """
    path = directory / CATALOGUE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        catalogue = msgspec.json.decode(content, type=Catalogue)
    except msgspec.DecodeError as e:
        raise MalformedMessageError(
            f"{path} can't be understood: {e}", hint="`tpool verify --repair` makes it anew from the segments"
        ) from None
    if catalogue.version > FORMAT_VERSION:
        raise MalformedMessageError(
            f"{path} has format {catalogue.version}; this release reads up to {FORMAT_VERSION}",
            hint="use a newer release",
        )
    return catalogue


def save_catalogue(directory: Path, catalogue: Catalogue) -> None:
    """Replaces the catalogue of a stream; synced on return.

    Raises:
        OSError: It can't be written; the old one is still there.
    """
    path = directory / CATALOGUE
    temporary = path.with_suffix(".new")
    content = msgspec.json.format(msgspec.json.encode(catalogue), indent=1)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    temporary.rename(path)
    sync_directory(directory)

"""What a recording holds, stream by stream: the list of its segments and what is in them.

A recording is a directory with one directory for each stream; in it lie segments and ``catalogue.json``. The
catalogue saves looking into every file. It is replaced as a whole after each segment, and can be made anew
from the segments.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.rows import FORMAT_VERSION
from tensor_pool.pipeline.record.synced import sync_directory, write_synced

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "CATALOGUE",
    "Catalogue",
    "NewerFormatError",
    "SegmentInfo",
    "load_catalogue",
    "number_of",
    "save_catalogue",
    "stream_directory",
]

CATALOGUE: Final = "catalogue.json"
_SEGMENT: Final = re.compile(r"\d{8,}\.arrow")
"""Names of segments: anything else could be a file that is none of the recording's."""


class NewerFormatError(MalformedMessageError):
    """A newer release wrote it; nothing here may be changed."""


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
    min_seq: int
    """Of all of its epochs."""
    max_seq: int
    first_timestamp_ns: int
    last_timestamp_ns: int
    first_recorded_ns: int
    last_recorded_ns: int
    first_event_ns: int | None = None
    """Real time of its first frame; None when no clock says so."""
    last_event_ns: int | None = None
    rows_crc32c: int = 0
    """Of the table of its rows, the file beside it."""
    stream_ids: tuple[int, ...] = ()
    """Numbers that its stream had: a name may get another one. None where an earlier program wrote it."""


def number_of(file: str) -> int:
    """The number of a segment, from its file's name; later ones have larger numbers.

    Example:
        >>> number_of("00000012.arrow")
        12
    """
    return int(file.partition(".")[0])


class Catalogue(msgspec.Struct, kw_only=True):
    """All segments of one stream, oldest first."""

    version: int = FORMAT_VERSION
    stream_name: str = ""
    stream_id: int = 0
    host: str = ""
    boot_id: str = ""
    segments: list[SegmentInfo] = []
    removed_through: int = 0
    """The number of the newest segment that was removed because it need not be kept; 0 when none was."""

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


def load_catalogue(directory: Path | Place) -> Catalogue | None:
    """The catalogue of a stream; None when there is none yet.

    Raises:
        MalformedMessageError: It can't be understood, or a newer release wrote it.
        OSError: It can't be read.
    """
    path = (directory if isinstance(directory, Place) else Place(directory)).child(CATALOGUE)
    try:
        content = path.read()
    except FileNotFoundError:
        return None
    try:
        catalogue = msgspec.json.decode(content, type=Catalogue)
    except msgspec.DecodeError as e:
        raise MalformedMessageError(
            f"{path} can't be understood: {e}", hint="`tpool verify --repair` makes it anew from the segments"
        ) from None
    if catalogue.version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{path} has format {catalogue.version}; this release reads up to {FORMAT_VERSION}",
            hint="use a newer release",
        )
    _check_segments(catalogue, path)
    return catalogue


def _check_segments(catalogue: Catalogue, path: Place) -> None:
    """Each segment once, and nothing but segments: catalogues come from anywhere."""
    names = [segment.file for segment in catalogue.segments]
    wrong = next((name for name in names if not _SEGMENT.fullmatch(name)), None)
    if wrong is not None or len(set(names)) != len(names):
        raise MalformedMessageError(
            f"{path} lists " + ("a segment twice" if wrong is None else f"{wrong!r}, which is no segment"),
            hint="`tpool verify --repair` makes it anew from the segments",
        )
    catalogue.segments.sort(key=lambda segment: number_of(segment.file))


def save_catalogue(directory: Path, catalogue: Catalogue) -> None:
    """Replaces the catalogue of a stream; synced on return.

    Raises:
        OSError: It can't be written; the old one is still there.
    """
    write_synced(directory / CATALOGUE, msgspec.json.format(msgspec.json.encode(catalogue), indent=1))
    sync_directory(directory)

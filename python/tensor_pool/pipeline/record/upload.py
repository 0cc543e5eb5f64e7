"""Brings sealed segments of a recording to another place, in an order that readers there can trust.

A segment goes first, then its table of rows, then a catalogue that names both: whoever reads the catalogue
finds everything it lists. What is there already is not sent again, so that a copy that was interrupted goes
on where it was. The place may hold more than is here: what was removed here stays there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.driver.lock import BaseDirLock, is_held
from tensor_pool.errors import RegionError
from tensor_pool.pipeline.record.catalogue import (
    CATALOGUE,
    Catalogue,
    SegmentInfo,
    load_catalogue,
    number_of,
    save_catalogue,
)
from tensor_pool.pipeline.record.consumers import CONSUMERS
from tensor_pool.pipeline.record.row_table import ROWS
from tensor_pool.pipeline.record.segment import SEALED
from tensor_pool.pipeline.record.sending import is_there, make_directory, send, send_bytes
from tensor_pool.pipeline.record.store import LOCK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensor_pool.pipeline.record.place import Place

__all__ = ["Pushed", "StreamUpload", "push", "streams_of"]

_TELL_S: Final = 5.0
"""The catalogue is written there so often while segments are sent, and at the end."""


class Pushed(msgspec.Struct, kw_only=True):
    """What became of one stream."""

    stream: str
    segments: int = 0
    """That were sent."""
    nbytes: int = 0
    """That were sent."""
    present: int = 0
    """Segments that were there already."""
    missed: int = 0
    """Segments that were removed here before they could be sent."""
    removed: int = 0
    """Segments that were removed here because they are there."""


def streams_of(recording: Path) -> list[Path]:
    """The directories of a recording's streams."""
    return sorted(path.parent for path in recording.glob(f"*/{CATALOGUE}"))


def push(
    recording: Path,
    to: Place,
    *,
    remove: bool = False,
    on_segment: Callable[[str, SegmentInfo], object] = lambda *_: None,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> list[Pushed]:
    """Brings everything that is sealed to another place; what is there already stays as it is.

    Args:
        recording: Its directory here.
        to: The recording there, which may be part of this one already.
        remove: Remove segments here that are there.
        on_segment: Called with the stream and the segment before one is sent.
        on_bytes: Called with the number of bytes after each piece.

    Raises:
        RegionError: There is no recording, it can't be sent, or another one is there. What was sent stays
            there, and another call goes on.

    Example:
        >>> push(Path("recordings"), Place("s3://bucket/recordings"))  # doctest: +SKIP
    """
    directories = streams_of(recording)
    if not directories:
        raise RegionError(
            f"there is no recording in {recording}", hint="`tpool record STREAM --out DIR` makes one"
        )
    if remove and (held := [each.name for each in directories if is_held(each, LOCK)]):
        raise RegionError(
            f"{', '.join(held)} is being recorded",
            hint="`tpool record --upload URI --remove-uploaded` removes while it records",
        )
    done = []
    for directory in directories:
        upload = StreamUpload(directory, to.child(directory.name))
        upload.send(on_segment=on_segment, on_bytes=on_bytes)
        if remove:
            upload.remove_here()
        done.append(upload.done)
    return done


class StreamUpload:
    """Brings one stream to another place, again and again while it grows.

    Args:
        directory: Of the stream here.
        to: Of the stream there.
    """

    def __init__(self, directory: Path, to: Place) -> None:
        self.directory: Final = directory
        self.done: Final = Pushed(stream=directory.name)
        self.safe_through = 0
        """The number of the newest segment that is there, as are all before it that are here."""
        self._to = to
        self._listed: dict[str, SegmentInfo] = {}
        """What the catalogue there names."""
        self._sent: dict[str, SegmentInfo] = {}
        """What is there, and not in that catalogue yet."""
        self._missed_through = 0
        self._settled: set[str] = set()
        """Files that need no more looking after: there and listed, or gone."""
        self._has_looked = False
        self._consumers = b""
        """What was sent of them."""

    def waiting(self) -> list[SegmentInfo]:
        """Segments of the catalogue here that are not known to be there."""
        catalogue = load_catalogue(self.directory)
        return [] if catalogue is None else [s for s in catalogue.segments if s.file not in self._settled]

    def send(
        self,
        *,
        on_segment: Callable[[str, SegmentInfo], object] = lambda *_: None,
        on_bytes: Callable[[int], object] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Sends what is not there yet, oldest first. After an error another call goes on.

        Raises:
            RegionError: Something can't be sent, or another recording is there.
            MalformedMessageError: A catalogue can't be understood.
        """
        here = load_catalogue(self.directory)
        if here is None:
            return
        sizes: dict[str, int] = {}
        if not self._has_looked:
            make_directory(self._to)
            self._listed, sizes = self._catalogue_there(here), self._to.files()
        told = time.monotonic()
        self._has_looked = False  # until all went well
        for segment in here.segments:
            if segment.file in self._settled:
                continue
            if should_stop():
                break
            if self._is_listed(segment, sizes):
                self.done.present += 1
                self._settled.add(segment.file)
            else:
                self._send_segment(segment, sizes, on_segment, on_bytes)
            if self._sent and time.monotonic() - told >= _TELL_S:
                self._write_catalogue(here)
                told = time.monotonic()
        self._send_consumers()
        if self._sent:
            self._write_catalogue(here)
        self._has_looked = True
        for segment in here.segments:
            if segment.file not in self._listed:
                break
            self.safe_through = number_of(segment.file)

    def _send_consumers(self) -> None:
        """A small file that is replaced as a whole, here and there."""
        path = self.directory / CONSUMERS
        content = path.read_bytes() if path.exists() else b""
        if content and content != self._consumers:
            send_bytes(content, self._to.child(CONSUMERS))
            self._consumers = content

    def _catalogue_there(self, here: Catalogue) -> dict[str, SegmentInfo]:
        there = load_catalogue(self._to)
        listed = {} if there is None else {segment.file: segment for segment in there.segments}
        for segment in here.segments:
            other = listed.get(segment.file)
            if other is not None and _fingerprint(other) != _fingerprint(segment):
                raise RegionError(
                    f"{self._to} holds another recording: its {segment.file} is not the one that is here",
                    hint="send this one to another place",
                )
        return listed

    def _is_listed(self, segment: SegmentInfo, sizes: dict[str, int]) -> bool:
        """Whether the catalogue there names it, and both of its files are as long as they should be."""
        rows = self.directory / _rows_of(segment)
        return (
            segment.file in self._listed
            and sizes.get(segment.file) == segment.nbytes
            and (not rows.exists() or sizes.get(rows.name) == rows.stat().st_size)
        )

    def _send_segment(
        self,
        segment: SegmentInfo,
        sizes: dict[str, int],
        on_segment: Callable[[str, SegmentInfo], object],
        on_bytes: Callable[[int], object],
    ) -> None:
        """Sends both files, unless they are no longer here because they need not be kept."""
        path, rows = self.directory / segment.file, self.directory / _rows_of(segment)
        if segment.file in self._sent:
            return
        try:
            # Of an interrupted copy: whole, and not in the catalogue yet.
            if sizes.get(path.name) == segment.nbytes and is_there(path, self._to.child(path.name)):
                self.done.present += 1
            else:
                on_segment(self.directory.name, segment)
                if path.stat().st_size != segment.nbytes:
                    raise RegionError(
                        f"{path} is not as long as its catalogue says",
                        hint="`tpool verify` tells what is wrong",
                    )
                send(path, self._to.child(path.name), on_bytes)
                self.done.segments += 1
                self.done.nbytes += segment.nbytes
            send(rows, self._to.child(rows.name))
        except FileNotFoundError as e:
            now = load_catalogue(self.directory)
            if now is not None and segment.file in {each.file for each in now.segments}:
                raise RegionError(
                    f"{e.filename or path} is missing, the catalogue lists it",
                    hint="`tpool verify --repair` makes tables anew and forgets what is gone",
                ) from None
            self.done.missed += 1
            self._missed_through = number_of(segment.file)
            self._settled.add(segment.file)
        else:
            self._sent[segment.file] = segment

    def _write_catalogue(self, here: Catalogue) -> None:
        """Names what is there: what it named before, and what was sent since."""
        there = load_catalogue(self._to) or Catalogue()
        before = [number_of(segment.file) for segment in there.segments]
        listed = {segment.file: segment for segment in there.segments} | self._listed | self._sent
        segments = sorted(listed.values(), key=lambda segment: number_of(segment.file))
        gone_through = max(there.removed_through, self._missed_through)
        is_gone = here.removed_through not in {number_of(segment.file) for segment in segments}
        if is_gone and here.removed_through > max(before, default=0):
            gone_through = here.removed_through  # here, before it was ever sent
        catalogue = msgspec.structs.replace(here, segments=segments, removed_through=gone_through)
        content = msgspec.json.format(msgspec.json.encode(catalogue), indent=1)
        send_bytes(content, self._to.child(CATALOGUE))
        self._listed = listed
        self._settled |= self._sent.keys()
        self._sent = {}

    def remove_here(self) -> None:
        """Removes segments here that are there, after a look at what is there.

        Raises:
            RegionError: It is being recorded, or the place can't be asked.
        """
        with BaseDirLock(self.directory, what="recorder", file=LOCK, hint="end it first"):
            here = load_catalogue(self.directory)
            if here is None:
                return
            self._listed, sizes = self._catalogue_there(here), self._to.files()
            safe = []
            for segment in here.segments:
                if not self._is_listed(segment, sizes):
                    break  # in their order, so that one number says what is gone
                safe.append(segment)
            if not safe:
                return
            here.segments = here.segments[len(safe) :]
            here.removed_through = number_of(safe[-1].file)
            save_catalogue(self.directory, here)
            for segment in safe:
                (self.directory / segment.file).unlink(missing_ok=True)
                (self.directory / _rows_of(segment)).unlink(missing_ok=True)
            self.done.removed += len(safe)


def _rows_of(segment: SegmentInfo) -> str:
    return segment.file.removesuffix(SEALED) + ROWS


def _fingerprint(segment: SegmentInfo) -> tuple[int, int, int]:
    """What tells two segments apart: the checksum is that of a table with the checksums of all frames."""
    return segment.nbytes, segment.rows, segment.rows_crc32c

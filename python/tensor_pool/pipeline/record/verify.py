"""Finds what a crash, a full disk or a bad one did to a recording; repairs what can be without guessing."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING

import msgspec

from tensor_pool.driver.lock import is_held
from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.record.catalogue import (
    CATALOGUE,
    Catalogue,
    NewerFormatError,
    load_catalogue,
    save_catalogue,
)
from tensor_pool.pipeline.record.consumers import CONSUMERS, load_consumers
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.reading import describe_segment, read_rows
from tensor_pool.pipeline.record.repair import acknowledged_rows, left_open, seal_left_open
from tensor_pool.pipeline.record.row_table import ROWS, read_row_table
from tensor_pool.pipeline.record.segment import OPEN, SEALED
from tensor_pool.pipeline.record.store import LOCK
from tensor_pool.pipeline.record.synced import write_synced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tensor_pool.pipeline.record.catalogue import SegmentInfo

__all__ = ["Checked", "Flaw", "verify"]


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    stream: str
    file: str
    what: str
    repaired: bool = False


class Checked(msgspec.Struct, kw_only=True):
    """What was looked at, and what was found."""

    streams: int = 0
    segments: int = 0
    frames: int = 0
    nbytes: int = 0
    lost: int = 0
    """Frames that the recording itself says are missing; no flaw of it."""
    flaws: list[Flaw] = []


def verify(
    recording: Path, *, repair: bool = False, on_segment: Callable[[Path], object] | None = None
) -> Checked:
    """Reads every byte of a recording and checks it.

    Args:
        recording: Its directory.
        repair: Seal segments that a crash left open, and write catalogues anew. Damaged frames stay.
        on_segment: Called before each segment is read, to show progress.

    Raises:
        RegionError: There is no recording, or it is still being written and `repair` is asked for.
    """
    streams = sorted(
        {
            path.parent
            for kind in (CATALOGUE, f"*{SEALED}", f"*{OPEN}")
            for path in recording.glob(f"*/{kind}")
        }
    )
    if not streams:
        raise RegionError(
            f"there is no recording in {recording}", hint="`tpool record STREAM --out DIR` makes one"
        )
    checked = Checked(streams=len(streams))
    for directory in streams:
        if repair and is_held(directory, LOCK):
            raise RegionError(f"{directory} is being recorded", hint="repair it when the recorder has ended")
        _Stream(directory, checked, repair=repair, on_segment=on_segment or (lambda _: None)).check()
    return checked


class _Stream:
    def __init__(
        self, directory: Path, checked: Checked, *, repair: bool, on_segment: Callable[[Path], object]
    ) -> None:
        self._directory = directory
        self._checked = checked
        self._repair = repair
        self._on_segment = on_segment

    def check(self) -> None:
        try:
            catalogue = self._catalogue()
        except NewerFormatError as e:
            self._flaw(self._directory / CATALOGUE, e.message)  # and nothing of it is touched
            return
        listed = {segment.file: segment for segment in catalogue.segments}
        is_changed = False
        if self._repair:
            is_changed = self._seal_open_ones()
        found = sorted(self._directory.glob(f"*{SEALED}"))
        infos = []
        for path in found:
            info = self._check_sealed(path, listed.get(path.name))
            if info is None:
                infos += [listed[path.name]] if path.name in listed else []
                continue
            infos.append(info)
            if listed.get(path.name) != info:
                is_changed = True
                self._flaw(path, "is not in the catalogue as it is", repaired=self._repair)
        for name in sorted(set(listed) - {path.name for path in found}):
            is_changed = True
            self._flaw(self._directory / name, "is missing", repaired=False)
        for path in left_open(self._directory):
            self._check_open(path)
        self._check_consumers()
        if self._repair and is_changed:
            catalogue.segments = infos
            save_catalogue(self._directory, catalogue)

    def _catalogue(self) -> Catalogue:
        try:
            catalogue = load_catalogue(self._directory)
        except NewerFormatError:
            raise
        except MalformedMessageError as e:
            self._flaw(self._directory / CATALOGUE, e.message, repaired=self._repair)
            return Catalogue(stream_name=urllib.parse.unquote(self._directory.name))
        return catalogue or Catalogue(stream_name=urllib.parse.unquote(self._directory.name))

    def _check_sealed(self, path: Path, listed: SegmentInfo | None) -> SegmentInfo | None:
        self._on_segment(path)
        try:
            damaged = [recorded for recorded in read_rows(path) if not recorded.is_whole]
            info, table = describe_segment(path)
        except (MalformedMessageError, OSError) as e:
            self._flaw(path, getattr(e, "message", str(e)))
            return None
        for recorded in damaged:
            name = f"frame {recorded.row.seq}" if recorded.is_true else "a row"
            self._flaw(path, f"{name} is not what was recorded (wrong checksum)")
        if listed is not None and any(not each.is_true for each in damaged) and self._is_table_of(listed):
            info = listed  # the table still says what the damaged rows did
        else:
            self._check_table(path.with_name(path.name.removesuffix(SEALED) + ROWS), table)
        self._checked.segments += 1
        self._checked.frames += info.frames
        self._checked.nbytes += info.nbytes
        self._checked.lost += info.lost
        return info

    def _check_table(self, path: Path, expected: pa.Buffer) -> None:
        """The table beside a segment says what the segment says."""
        try:
            is_same = path.read_bytes() == expected.to_pybytes()
        except OSError:
            is_same = False
        if not is_same:
            if self._repair:
                write_synced(path, expected)
            self._flaw(path, "is not the table of its segment", repaired=self._repair)

    def _is_table_of(self, listed: SegmentInfo) -> bool:
        try:
            read_row_table(Place(self._directory), listed)
        except (MalformedMessageError, RegionError, OSError):
            return False
        return True

    def _check_open(self, path: Path) -> None:
        """A segment that is being written, or that a crash left."""
        self._on_segment(path)
        try:
            rows = list(read_rows(path))
        except (MalformedMessageError, OSError) as e:
            self._flaw(path, f"{getattr(e, 'message', e)}; --repair sets it aside")
            return
        frames = sum(recorded.row.kind == "frame" for recorded in rows)
        self._checked.segments += 1
        self._checked.frames += frames
        self._checked.nbytes += path.stat().st_size
        if is_held(self._directory, LOCK):
            return
        acknowledged = acknowledged_rows(path)
        if acknowledged > len(rows):
            self._flaw(path, f"{acknowledged} rows were synced, {len(rows)} can be read")
        self._flaw(path, f"was left open with {frames} frames; --repair seals it")

    def _check_consumers(self) -> None:
        """Nobody can read it when it is damaged, and nothing else tells what it told."""
        try:
            load_consumers(self._directory)
        except MalformedMessageError as e:
            self._flaw(self._directory / CONSUMERS, e.message)

    def _seal_open_ones(self) -> bool:
        is_changed = False
        for path in left_open(self._directory):
            is_changed = True
            acknowledged, kept = acknowledged_rows(path), seal_left_open(path)
            lost = f", {acknowledged - kept} rows were lost" if acknowledged > kept else ""
            self._flaw(path, f"was left open; {kept} rows were kept{lost}", repaired=True)
        return is_changed

    def _flaw(self, path: Path, what: str, *, repaired: bool = False) -> None:
        flaw = Flaw(stream=self._directory.name, file=path.name, what=what, repaired=repaired)
        self._checked.flaws.append(flaw)

"""Checks a recording in an object store: one segment at a time comes here, and is checked like any other."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.record.catalogue import CATALOGUE, Catalogue, load_catalogue, save_catalogue
from tensor_pool.pipeline.record.consumers import CONSUMERS, load_consumers
from tensor_pool.pipeline.record.row_table import ROWS
from tensor_pool.pipeline.record.segment import INDEX, OPEN, SEALED
from tensor_pool.pipeline.record.verify import Checked, Flaw, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.pipeline.record.place import Place

__all__ = ["verify_elsewhere"]

_CHUNK: Final = 16 << 20


def verify_elsewhere(recording: Place, *, on_segment: Callable[[Path], object] | None = None) -> Checked:
    """Reads every byte of a recording that is not on this machine; changes nothing.

    Needs room for one segment in the directory of temporary files.

    Args:
        recording: Where it lies.
        on_segment: Called before each segment is checked, to show progress.

    Raises:
        RegionError: There is no recording, or it can't be read.
    """
    checked = Checked()
    for directory in recording.directories():
        files = directory.files()
        if CATALOGUE in files or any(name.endswith((SEALED, OPEN)) for name in files):
            checked.streams += 1
            _check_stream(directory, files, checked, on_segment)
    if not checked.streams:
        raise RegionError(
            f"there is no recording in {recording}", hint="`tpool recordings push DIR URI` brings one there"
        )
    return checked


def _check_stream(
    directory: Place, files: dict[str, int], checked: Checked, on_segment: Callable[[Path], object] | None
) -> None:
    catalogue = Catalogue()
    try:
        catalogue = load_catalogue(directory) or catalogue
    except MalformedMessageError as e:
        checked.flaws.append(Flaw(stream=directory.name, file=CATALOGUE, what=e.message))
    try:
        load_consumers(directory)
    except MalformedMessageError as e:
        checked.flaws.append(Flaw(stream=directory.name, file=CONSUMERS, what=e.message))
    listed = {segment.file: segment for segment in catalogue.segments}
    for name in sorted({*listed, *(name for name in files if name.endswith((SEALED, OPEN)))}):
        one = [listed[name]] if name in listed else []
        with tempfile.TemporaryDirectory(prefix="tensor-pool-") as temporary:
            here = Path(temporary, directory.name)
            here.mkdir()
            save_catalogue(here, msgspec.structs.replace(catalogue, segments=one))
            number = name.partition(".")[0]
            for file in (name, number + ROWS, number + INDEX):
                if file in files:
                    _fetch(directory.child(file), here / file)
            _add(checked, verify(Path(temporary), on_segment=on_segment))


def _fetch(place: Place, path: Path) -> None:
    pieces = place.pieces()
    with path.open("wb") as file:
        while (piece := pieces.read(file.tell(), _CHUNK)).size:
            file.write(piece)


def _add(checked: Checked, more: Checked) -> None:
    checked.segments += more.segments
    checked.frames += more.frames
    checked.nbytes += more.nbytes
    checked.lost += more.lost
    checked.flaws += more.flaws

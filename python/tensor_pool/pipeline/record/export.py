"""Writes a recording as files of other formats: Parquet, Zarr, NumPy, Arrow."""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa

from tensor_pool.errors import ConfigError, MalformedMessageError, RegionError, RegionFullError
from tensor_pool.pipeline.record.catalogue import stream_directory
from tensor_pool.pipeline.record.contents import look_through
from tensor_pool.pipeline.record.formats import open_format
from tensor_pool.pipeline.record.formats.writer import DAMAGED, StreamOutput
from tensor_pool.pipeline.record.selection import Damage, Selection

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from tensor_pool.pipeline.record.formats.writer import StreamFormat, StreamWriter
    from tensor_pool.pipeline.record.place import Place
    from tensor_pool.pipeline.record.recording import RecordedFrame, Recording
    from tensor_pool.pipeline.record.selection import Moment, TimeOf

__all__ = ["ExportedStream", "export"]

_MANIFEST: Final = "export.json"
"""Lies in every export, so that only exports are ever overwritten."""
_ZARR_MANIFEST: Final = "zarr.json"
_MARK: Final = "tensorpool.export"
_REMOVE_S: Final = 2.0
_REMOVE_PAUSE_S: Final = 0.02


class ExportedStream(msgspec.Struct, kw_only=True):
    """What became of one stream so far."""

    stream: str
    file: str = ""
    """The file or directory, in that of the export."""
    frames: int = 0
    nbytes: int = 0
    missing: int = 0
    """Frames that the recording itself says are missing."""
    damaged: int = 0
    """Frames that can't be read, or are not what was recorded; they were left out."""
    expected: int = 0
    """Frames that should be there; for progress."""


def export(
    recording: Recording | str | os.PathLike[str] | Place,
    file_format: str,
    out: str | os.PathLike[str],
    *,
    streams: Sequence[str] = (),
    start: Moment = None,
    end: Moment = None,
    time_of: TimeOf = "event",
    stack: bool = False,
    compression: Literal["none", "zstd"] = "none",
    overwrite: bool = False,
    on_progress: Callable[[list[ExportedStream]], object] | None = None,
    on_damage: Callable[[Damage], object] | None = None,
) -> list[ExportedStream]:
    """Writes streams of a recording into a new directory, which appears when it is whole.

    Args:
        recording: The recording, its directory, or a URI that pyarrow understands.
        file_format: parquet, zarr, npy or arrow.
        out: The directory; must not be there yet.
        streams: Names of streams; none for all.
        start: From when: seconds from the start of the recording, or a time; as text too.
        end: Until when.
        time_of: Which time counts: when frames were taken, or when they were recorded.
        stack: For npy, one array of all frames of one element type and shape.
        compression: ``none`` or ``zstd``.
        overwrite: Replace what an earlier export made.
        on_progress: Called after each frame.
        on_damage: Told of what can't be read.

    Raises:
        ConfigError: The output is there already, or the options make no sense.
        RegionError: There is no recording, no such stream, or the output can't be written.

    Example:
        >>> import numpy as np, tempfile
        >>> from tensor_pool.pipeline.record.options import RecorderOptions
        >>> from tensor_pool.pipeline.record.rows import Row
        >>> from tensor_pool.pipeline.record.store import StreamStore
        >>> with tempfile.TemporaryDirectory() as name:
        ...     with StreamStore(Path(name, "recording", "0"), RecorderOptions()) as store:
        ...         row = Row(kind="frame", stream_id=1, epoch=1, seq=5, dtype="uint8", shape=(2, 2))
        ...         store.append(row, b"abcd", now_ns=0)
        ...     (done,) = export(Path(name, "recording"), "npy", Path(name, "out"))
        ...     done.frames, np.load(Path(name, "out", "0", "00000000.npy")).tolist()
        (1, [[97, 98], [99, 100]])
    """
    make = open_format(file_format)
    if stack and file_format != "npy":
        raise ConfigError(f"frames of {file_format} are in one array anyway", hint="stack is for npy")
    selection = Selection(recording, streams, start=start, end=end, time_of=time_of)
    exporting = _Export(selection, on_progress or (lambda _: None), on_damage or (lambda _: None))
    with _whole_directory(_local(out), overwrite=overwrite) as directory:
        exporting.run(make, directory, stack=stack, compression=compression)
        _write_manifest(directory, file_format, exporting.done)
    return exporting.done


class _Export:
    def __init__(
        self,
        selection: Selection,
        on_progress: Callable[[list[ExportedStream]], object],
        on_damage: Callable[[Damage], object],
    ) -> None:
        self.done: Final[list[ExportedStream]] = []
        self._selection = selection
        self._on_progress = on_progress
        self._on_damage = on_damage

    def run(self, make: StreamFormat, directory: Path, **how: Any) -> None:
        contents = {name: look_through(self._selection, name) for name in self._selection.streams}
        self.done[:] = [
            ExportedStream(stream=name, expected=found.frames) for name, found in contents.items()
        ]
        for name, done in zip(contents, self.done, strict=True):
            file = stream_directory(Path(), name).name
            output = StreamOutput(stream=name, directory=directory, file=file, contents=contents[name], **how)
            with make(output) as writer:
                done.file = writer.name
                self._write(name, done, writer)
                writer.finish()

    def _write(self, name: str, done: ExportedStream, writer: StreamWriter) -> None:
        def note(damage: Damage) -> None:
            done.damaged += damage.frames
            self._on_damage(damage)

        for frame in self._selection.frames(name, note):
            if frame.row.kind != "frame":
                done.missing += frame.row.count
                writer.miss(frame, frame.row.status)
            else:
                self._write_frame(frame, done, writer, note)
            self._on_progress(self.done)

    @staticmethod
    def _write_frame(
        frame: RecordedFrame, done: ExportedStream, writer: StreamWriter, note: Callable[[Damage], None]
    ) -> None:
        try:
            array = frame.array()
        except (MalformedMessageError, OSError) as e:
            note(Damage(done.stream, 1, getattr(e, "message", str(e))))
            writer.miss(frame, DAMAGED)
            return
        writer.write(frame, array)
        done.frames += 1
        done.nbytes += array.nbytes


def _local(out: str | os.PathLike[str]) -> Path:
    if "://" in str(out):
        raise ConfigError(f"can't export to {out}", hint="export to a directory here, then copy it")
    return Path(out).absolute()


@contextlib.contextmanager
def _whole_directory(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A directory that gets its name when it is whole, and is gone when it never is."""
    if out.exists() or out.is_symlink():
        _check_replaceable(out, overwrite=overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        unfinished = out.with_name(f".{out.name}.unfinished-{secrets.token_hex(4)}")
        unfinished.mkdir()
        try:
            yield unfinished
            _put_in_place(unfinished, out, overwrite=overwrite)
        except BaseException:
            _remove(unfinished)
            raise
    except RegionError:
        raise
    except (OSError, pa.ArrowException) as e:
        raise _write_error(out, e) from e


def _check_replaceable(out: Path, *, overwrite: bool) -> None:
    if not overwrite:
        raise ConfigError(
            f"{out} is there already", hint="choose another one, or replace it with --overwrite"
        )
    is_directory = out.is_dir() and not out.is_symlink()
    if is_directory and (not any(out.iterdir()) or (out / _MANIFEST).exists() or _is_marked(out)):
        return
    raise ConfigError(f"{out} is no export, and is left alone", hint="remove it yourself, or choose another")


def _is_marked(out: Path) -> bool:
    try:
        return _MARK in json.loads((out / _ZARR_MANIFEST).read_bytes()).get("attributes", {})
    except (OSError, ValueError, AttributeError):
        return False


def _put_in_place(unfinished: Path, out: Path, *, overwrite: bool) -> None:
    if not overwrite or not out.exists():
        unfinished.rename(out)  # fails if somebody else made one meanwhile
        return
    old = unfinished.with_name(f"{unfinished.name}.old")
    out.rename(old)
    unfinished.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def _remove(directory: Path) -> None:
    """Removes what was begun; a library's own threads may still write to it for a moment."""
    deadline = time.monotonic() + _REMOVE_S
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(_REMOVE_PAUSE_S * directory.exists())


def _write_manifest(directory: Path, file_format: str, done: list[ExportedStream]) -> None:
    about = {"format": file_format, "streams": msgspec.to_builtins(done)}
    if file_format != "zarr":
        (directory / _MANIFEST).write_text(json.dumps(about, indent=1), encoding="utf-8")
        return
    # A file that is no part of it would make Zarr complain.
    path = directory / _ZARR_MANIFEST
    group = json.loads(path.read_bytes())
    group["attributes"] = {_MARK: about}
    path.write_text(json.dumps(group), encoding="utf-8")


def _write_error(out: Path, error: Exception) -> RegionError:
    number = getattr(error, "errno", None)
    what = getattr(error, "strerror", None) or str(error)
    if number in {errno.ENOSPC, errno.EDQUOT}:
        return RegionFullError(
            f"there is no room for {out}: {what}",
            hint="choose another disk, or less with --stream, --from, --to",
        )
    return RegionError(f"can't write {out}: {what}", hint="choose a directory that can be written to")

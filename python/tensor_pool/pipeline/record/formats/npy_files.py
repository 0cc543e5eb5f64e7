"""Frames as NumPy files: one each, or all of one element type and shape in one that is written in place."""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.record.contents import Layout
from tensor_pool.pipeline.record.formats.frame_lines import FrameLines
from tensor_pool.pipeline.record.formats.metadata_lines import MetadataLines
from tensor_pool.pipeline.record.formats.writer import StreamWriter

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.formats.writer import StreamOutput
    from tensor_pool.pipeline.record.recording import RecordedFrame

__all__ = ["NpyFiles", "Stack"]

_HEADER_BYTES: Final = 256
"""More than any shape of nine dimensions needs, and a multiple of 64, which NumPy likes."""


class NpyFiles(StreamWriter):
    """A directory with ``00000000.npy`` and so on, or ``frames.npy``; ``frames.csv`` says what is where.

    Args:
        output: Where to.
    """

    def __init__(self, output: StreamOutput) -> None:
        if output.compression != "none":
            raise ConfigError("npy files have no compression", hint="choose zarr, parquet or arrow")
        self.name = output.file
        self._directory = output.directory / output.file
        self._directory.mkdir()
        self._output = output
        self._count = 0
        self._stacks: dict[Layout, Stack] = {}
        self._resources = contextlib.ExitStack()
        lines = FrameLines(self._directory / "frames.csv", output.stream, ("file", "index"))
        self._lines = self._resources.enter_context(lines)
        metadata = MetadataLines(self._directory / "metadata.jsonl")
        self._metadata = self._resources.enter_context(metadata)

    def write(self, frame: RecordedFrame, array: NDArray[Any]) -> None:
        """See `StreamWriter`."""
        self._metadata.note(frame)
        if self._output.stack:
            stack = self._stack(Layout(frame.row.dtype, frame.row.shape))
            self._lines.add(frame, "ok", stack.path.name, stack.append(array))
            return
        path = self._directory / f"{self._count:08}.npy"
        with path.open("xb") as file:
            np.lib.format.write_array(file, array, allow_pickle=False)
        self._lines.add(frame, "ok", path.name, "")
        self._count += 1

    def miss(self, gap: RecordedFrame, status: str) -> None:
        """See `StreamWriter`."""
        self._lines.add(gap, status, "", "")

    def finish(self) -> None:
        """See `StreamWriter`."""
        for stack in self._stacks.values():
            stack.finish()

    def close(self) -> None:
        """Closes the files. May be called again."""
        self._resources.close()

    def _stack(self, layout: Layout) -> Stack:
        stack = self._stacks.get(layout)
        if stack is None:
            contents = self._output.contents
            name = "frames.npy" if contents.layout is not None else f"frames-{layout.label}.npy"
            stack = Stack(self._directory / name, layout, contents.layouts[layout])
            self._stacks[layout] = stack
        return stack


class Stack:
    """One array of many frames, written through a memory map.

    Room on the disk is taken before: a disk that is full is an error, and not a crash.

    Args:
        path: The file.
        layout: Of the frames.
        count: How many there may be.

    Raises:
        OSError: There is no room.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     stack = Stack(pathlib.Path(name, "a.npy"), Layout("uint8", (2,)), count=3)
        ...     at = stack.append(np.array([1, 2], "uint8"))
        ...     stack.finish()
        ...     at, np.load(stack.path).tolist()
        (0, [[1, 2]])
    """

    def __init__(self, path: Path, layout: Layout, count: int) -> None:
        self.path: Final = path
        self._layout = layout
        self._count = 0
        self._frame_bytes = np.dtype(layout.dtype).itemsize * int(np.prod(layout.shape))
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, _HEADER_BYTES + count * self._frame_bytes)
        self._frames: NDArray[Any] | None = None
        if count * self._frame_bytes:  # an empty array can't be mapped
            shape = (count, *layout.shape)
            self._frames = np.memmap(path, layout.dtype, "r+", offset=_HEADER_BYTES, shape=shape)

    def append(self, array: NDArray[Any]) -> int:
        """Adds a frame; its place in the array."""
        if self._frames is not None:
            self._frames[self._count] = array
        self._count += 1
        return self._count - 1

    def finish(self) -> None:
        """Says how many there are, and lets go of the file."""
        self._frames = None
        with self.path.open("r+b") as file:
            file.write(_header(np.dtype(self._layout.dtype), (self._count, *self._layout.shape)))
            file.truncate(_HEADER_BYTES + self._count * self._frame_bytes)


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """NumPy's own would be as long as it must be: this one is known before the number of frames is."""
    text = str({"descr": dtype.str, "fortran_order": False, "shape": shape})
    length = _HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.ljust(length - 1).encode() + b"\n"

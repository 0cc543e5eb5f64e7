"""Where recordings lie: a directory of this machine, or one in an object store.

Recorders write here; everybody reads wherever pyarrow has a filesystem for: ``s3://``, ``hdfs://``, ``gs://``.
"""

from __future__ import annotations

import urllib.parse
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from tensor_pool.errors import ConfigError, RegionError

if TYPE_CHECKING:
    import os

__all__ = ["Pieces", "Place"]


class Place:
    """A directory or a file, here or elsewhere.

    Args:
        where: A path, or a URI that pyarrow understands; options of the filesystem follow after ``?``.

    Raises:
        ConfigError: No filesystem is known by that URI.

    Example:
        >>> Place("/data/run 7").child("camera-1").uri
        'file:///data/run%207/camera-1'
        >>> Place("s3://bucket/run?region=eu-west-1").child("a.arrow").uri
        's3://bucket/run/a.arrow?region=eu-west-1'
        >>> str(Place("s3://me:secret@bucket/run"))
        's3://bucket/run'
    """

    def __init__(self, where: str | os.PathLike[str]) -> None:
        text = str(where)
        scheme, separator, rest = text.partition("://")
        self.local: Path | None = None
        """The path, if it is on this machine."""
        if not separator:
            self.local = Path(text).absolute()
            self.uri = self.local.as_uri()
        elif scheme == "file":
            self.local = Path(urllib.parse.unquote(urllib.parse.urlsplit(text).path))
            self.uri = self.local.as_uri()
        else:
            base, _, query = rest.partition("?")
            self.uri = f"{scheme}://{base.rstrip('/')}" + (f"?{query}" if query else "")

    def __str__(self) -> str:
        if self.local is not None:
            return str(self.local)
        # Without the secret of a user: this ends up in messages and logs.
        scheme, _, rest = self.uri.partition("?")[0].partition("://")
        bucket, slash, path = rest.partition("/")
        return f"{scheme}://{bucket.rpartition('@')[2]}{slash}{path}"

    def __repr__(self) -> str:
        return f"Place({str(self)!r})"

    @property
    def name(self) -> str:
        """The last part of its path."""
        return urllib.parse.unquote(self.uri.partition("?")[0].rpartition("/")[2])

    def child(self, name: str) -> Place:
        """Something in it."""
        if self.local is not None:
            return Place(self.local / name)
        base, separator, query = self.uri.partition("?")
        return Place(f"{base}/{urllib.parse.quote(name)}{separator}{query}")

    def directories(self) -> list[Place]:
        """The directories in it, by name; none when it is not there.

        Raises:
            RegionError: It can't be read.
        """
        selector = pafs.FileSelector(self.path, allow_not_found=True)
        try:
            found = self.filesystem.get_file_info(selector)
        except OSError as e:
            raise RegionError(f"can't list {self}: {e}") from None
        return [self.child(entry.base_name) for entry in found if entry.type == pafs.FileType.Directory]

    def read(self) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: It is not there.
            OSError: It can't be read.
        """
        if self.local is not None:
            return self.local.read_bytes()
        with self.filesystem.open_input_file(self.path) as file:
            return bytes(file.read())

    def write(self, content: bytes | pa.Buffer) -> None:
        """Makes a file elsewhere; nobody sees half of it. Files here have writers that sync them.

        Raises:
            OSError: It can't be written.
        """
        with self.filesystem.open_output_stream(self.path) as file:
            file.write(content)

    def pieces(self) -> Pieces:
        """A file to read pieces of: mapped if it is here, read by ranges if it is not.

        Raises:
            FileNotFoundError: It is not there.
            OSError: It can't be opened.
        """
        return Pieces(self)

    def size(self) -> int | None:
        """How long a file is; None when it is not there.

        Raises:
            OSError: It can't be asked.
        """
        (info,) = self.filesystem.get_file_info([self.path])
        return info.size if info.type == pafs.FileType.File else None

    @property
    def filesystem(self) -> pafs.FileSystem:
        """What it lies on."""
        return pafs.LocalFileSystem() if self.local is not None else _opened(_without_path(self.uri))

    @property
    def path(self) -> str:
        """What the filesystem calls it."""
        if self.local is not None:
            return str(self.local)
        return _path_of(self.uri)


class Pieces:
    """Pieces of one file; those of a file of this machine are views of it, and outlive this object.

    Args:
        place: The file.

    Raises:
        OSError: It can't be opened.
    """

    def __init__(self, place: Place) -> None:
        self._whole: pa.Buffer | None = None
        if place.local is not None:
            with pa.memory_map(str(place.local), "r") as file:
                self._whole = file.read_buffer()
        else:
            self._file = place.filesystem.open_input_file(place.path)

    def read(self, start: int, nbytes: int) -> pa.Buffer:
        """Some bytes; fewer when the file ends before. For any number of threads.

        Raises:
            OSError: They can't be read.
        """
        if self._whole is None:
            return pa.py_buffer(self._file.read_at(nbytes, start) if nbytes else b"")
        start = min(start, self._whole.size)
        return self._whole.slice(start, min(nbytes, self._whole.size - start))


def _path_of(uri: str) -> str:
    """What a filesystem calls a URI's path: object stores begin with the bucket, others with a slash."""
    parts = urllib.parse.urlsplit(uri)
    path = urllib.parse.unquote(parts.path)
    if parts.scheme in {"hdfs", "viewfs"}:
        return path
    bucket = parts.netloc.rpartition("@")[2]
    return f"{bucket}{path}"


def _without_path(uri: str) -> str:
    """One filesystem serves all paths of a bucket."""
    parts = urllib.parse.urlsplit(uri)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, "/", parts.query, ""))


@cache
def _opened(uri: str) -> pafs.FileSystem:
    try:
        filesystem, _ = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise ConfigError(
            f"no filesystem for {uri.partition('?')[0]}: {e}",
            hint="a path, or a URI that pyarrow knows: s3://bucket/path?region=eu-west-1, hdfs://host:8020/path",
        ) from None
    return filesystem

"""Where recordings lie: a directory of this machine, or one in an object store.

Recorders write here; everybody reads wherever pyarrow has a filesystem for: ``s3://``, ``hdfs://``, ``gs://``.
"""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from tensor_pool.pipeline.record.filesystems import explain, open_filesystem, refuse_credentials

if TYPE_CHECKING:
    import os

__all__ = ["Pieces", "Place"]


class Place:
    """A directory or a file, here or elsewhere.

    Args:
        where: A path, or a URI that pyarrow understands; options of the filesystem follow after ``?``.
            Credentials come from the environment, never from the URI.

    Raises:
        ConfigError: There are credentials in the URI.

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
            refuse_credentials(text)
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
        return [
            self.child(entry.base_name) for entry in self._list() if entry.type == pafs.FileType.Directory
        ]

    def files(self) -> dict[str, int]:
        """The files in it and how long they are; none when it is not there.

        Raises:
            RegionError: It can't be read.
        """
        return {entry.base_name: entry.size for entry in self._list() if entry.type == pafs.FileType.File}

    def _list(self) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self.path, allow_not_found=True)
        try:
            found = self.filesystem.get_file_info(selector)
        except OSError as e:
            raise explain(f"list {self}", e) from None
        return sorted(found, key=lambda entry: str(entry.base_name))

    def read(self) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: It is not there.
            OSError: It can't be read.
        """
        if self.local is not None:
            return self.local.read_bytes()
        try:
            with self.filesystem.open_input_file(self.path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise
        except OSError as e:
            raise explain(f"read {self}", e) from None

    def write(self, content: bytes | pa.Buffer) -> None:
        """Makes a file elsewhere; nobody sees half of it. Files here have writers that sync them.

        Raises:
            OSError: It can't be written.
        """
        try:
            with self.filesystem.open_output_stream(self.path) as file:
                file.write(content)
        except OSError as e:
            raise explain(f"write {self}", e) from None

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
        try:
            (info,) = self.filesystem.get_file_info([self.path])
        except OSError as e:
            raise explain(f"read {self}", e) from None
        return info.size if info.type == pafs.FileType.File else None

    @property
    def filesystem(self) -> pafs.FileSystem:
        """What it lies on.

        Raises:
            ConfigError: No filesystem is known by that URI.
        """
        return (
            pafs.LocalFileSystem() if self.local is not None else open_filesystem(_without_path(self.uri))[0]
        )

    @property
    def path(self) -> str:
        """What the filesystem calls it: object stores begin with the bucket, others with a slash."""
        if self.local is not None:
            return str(self.local)
        base = open_filesystem(_without_path(self.uri))[1]
        return base.rstrip("/") + urllib.parse.unquote(urllib.parse.urlsplit(self.uri).path)


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
            self._place = place
            try:
                self._file = place.filesystem.open_input_file(place.path)
            except FileNotFoundError:
                raise
            except OSError as e:
                raise explain(f"open {place}", e) from None

    @property
    def etag(self) -> str | None:
        """What the store says of its content, where it says something: for S3 mostly a sum of MD5 sums."""
        told = None if self._whole is not None else self._file.metadata().get("ETag")
        return None if told is None else bytes(told).decode().strip('"')

    def read(self, start: int, nbytes: int) -> pa.Buffer:
        """Some bytes; fewer when the file ends before. For any number of threads.

        Raises:
            OSError: They can't be read.
        """
        if self._whole is None:
            try:
                return pa.py_buffer(self._file.read_at(nbytes, start) if nbytes else b"")
            except OSError as e:
                raise explain(f"read {self._place}", e) from None
        start = min(start, self._whole.size)
        return self._whole.slice(start, min(nbytes, self._whole.size - start))


def _without_path(uri: str) -> str:
    """One filesystem serves all paths of a bucket."""
    parts = urllib.parse.urlsplit(uri)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, "/", parts.query, ""))

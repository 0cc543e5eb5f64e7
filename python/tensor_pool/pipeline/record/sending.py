"""Copying one file to another place so that it is there whole, checked, or not at all."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import pyarrow.fs as pafs

from tensor_pool.errors import RegionError
from tensor_pool.pipeline.record.filesystems import explain, is_object_store
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.synced import sync_directory, sync_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["is_there", "make_directory", "send", "send_bytes"]

_CHUNK: Final = 10 << 20
"""Also the size of the parts in which Arrow sends files to S3; what their checksum is made of."""
_UNFINISHED: Final = ".part"


def make_directory(place: Place) -> None:
    """Makes a directory, with those above it, where directories exist.

    Raises:
        RegionError: It can't be made, or the bucket does not exist.
    """
    try:
        if place.local is not None or not is_object_store(place.uri):
            place.filesystem.create_dir(place.path, recursive=True)
            return
        bucket = place.path.partition("/")[0]
        # A store that can't be reached seems to have no bucket either: listing tells the two apart.
        is_missing = (
            not place.files() and place.filesystem.get_file_info([bucket])[0].type == pafs.FileType.NotFound
        )
        if is_missing and "allow_bucket_creation=true" in place.uri:
            place.filesystem.create_dir(bucket)
            is_missing = False
    except OSError as e:
        raise explain(f"write to {place}", e) from None
    if is_missing:
        raise RegionError(f"there is no bucket {bucket}", hint="make the bucket, or correct its name")


def send(source: Path, place: Place, on_bytes: Callable[[int], object] = lambda _: None) -> None:
    """Copies a file; it has its name there when all of it has arrived.

    Args:
        source: The file here.
        place: Where it goes; its directory must exist.
        on_bytes: Called with the number of bytes after each piece, to show progress.

    Raises:
        FileNotFoundError: It is not here.
        RegionError: It could not be sent, or is not there as it was sent.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     _ = pathlib.Path(name, "a").write_bytes(b"12345")
        ...     send(pathlib.Path(name, "a"), Place(name).child("b"))
        ...     Place(name).child("b").read()
        b'12345'
    """
    with source.open("rb") as file:
        _send(_chunks(file), place, on_bytes)


def send_bytes(content: bytes, place: Place) -> None:
    """The same for what is in memory; replaces what is there.

    Raises:
        RegionError: It could not be sent.
    """
    _send(_chunks(io.BytesIO(content)), place, lambda _: None)


def _send(chunks: Iterator[pa.Buffer], place: Place, on_bytes: Callable[[int], object]) -> None:
    is_whole_at_once = place.local is None and is_object_store(place.uri)
    target = place if is_whole_at_once else _beside(place)
    sums, size = [], 0
    filesystem = place.filesystem
    try:
        with filesystem.open_output_stream(target.path) as file:
            for chunk in chunks:
                file.write(chunk)
                sums.append(_md5(chunk))
                size += chunk.size
                on_bytes(chunk.size)
        if target.local is not None:
            sync_file(target.local)
        _check(target, size, sums)
        if not is_whole_at_once:
            _rename(target, place)
    except (RegionError, FileNotFoundError):
        raise
    except OSError as e:
        raise explain(f"write {place}", e) from None


def _beside(place: Place) -> Place:
    if place.local is not None:
        return Place(place.local.with_name(place.name + _UNFINISHED))
    base, separator, query = place.uri.partition("?")
    return Place(f"{base}{_UNFINISHED}{separator}{query}")


def _rename(target: Place, place: Place) -> None:
    if target.local is not None and place.local is not None:
        target.local.rename(place.local)
        sync_directory(place.local.parent)
        return
    if place.size() is not None:
        place.filesystem.delete_file(place.path)  # HDFS does not rename over what is there
    place.filesystem.move(target.path, place.path)


def is_there(source: Path, place: Place) -> bool:
    """Whether the store vouches for a file's being there as it is here; if it can't tell, it is not.

    Raises:
        FileNotFoundError: It is not here.
        RegionError: The store can't be asked.
    """
    if place.size() != source.stat().st_size:
        return False
    told = place.pieces().etag
    if told is None:
        return False
    with source.open("rb") as file:
        return told in _etags([_md5(chunk) for chunk in _chunks(file)])


def _check(place: Place, size: int, sums: list[bytes]) -> None:
    """Compares what the store says with what was sent; where its sum is of another kind, reads it back."""
    found = place.size()
    if found != size:
        raise RegionError(f"{place} has {found} bytes there, and {size} were sent", hint="send it again")
    if place.local is not None or not size:
        return
    pieces = place.pieces()
    told = pieces.etag
    if told is None or told in _etags(sums):
        return
    for number, expected in enumerate(sums):
        chunk = pieces.read(number * _CHUNK, min(_CHUNK, size - number * _CHUNK))
        if _md5(chunk) != expected:
            raise RegionError(f"{place} is not there as it was sent", hint="send it again")


def _etags(sums: list[bytes]) -> set[str]:
    """What S3 says of a file that came in these parts, or at once."""
    combined = hashlib.md5(b"".join(sums), usedforsecurity=False).hexdigest()
    return {f"{combined}-{len(sums)}", *([sums[0].hex()] if len(sums) == 1 else [])}


def _md5(chunk: pa.Buffer) -> bytes:
    return hashlib.md5(chunk, usedforsecurity=False).digest()


def _chunks(file: BinaryIO) -> Iterator[pa.Buffer]:
    while chunk := file.read(_CHUNK):
        yield pa.py_buffer(chunk)

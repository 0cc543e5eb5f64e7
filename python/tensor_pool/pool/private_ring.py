"""A ring that nobody else sees: files are made, mapped and removed again at once."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Final

from tensor_pool import _native
from tensor_pool.errors import RegionError, RegionFullError
from tensor_pool.pool.sizing import Geometry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["PrivateRing", "private_geometry"]

_LOG: Final = logging.getLogger(__name__)

_LEAST_SLOTS: Final = 4
"""One is being read, one is being written, and neither waits for the other."""
_LEAST_STRIDE: Final = 64
_LEAST_BYTES: Final = 64 << 10
"""When there is no room for that much, there is none."""


def private_geometry(strides: Iterable[int], *, nslots: int, most_bytes: int) -> Geometry:
    """Slots like those of another ring, but never more bytes than `most_bytes`.

    Fewer slots come first, down to four; then one pool for all frames; then frames that are too large for it
    are left out.

    Args:
        strides: Slot sizes of the pools there, in bytes.
        nslots: How many slots they have.
        most_bytes: What header ring and pools may take.

    Example:
        >>> private_geometry([4096, 65536], nslots=8, most_bytes=1 << 20)
        Geometry(nslots=8, strides=(4096, 65536))
        >>> private_geometry([4096, 65536], nslots=1024, most_bytes=1 << 20)
        Geometry(nslots=8, strides=(4096, 65536))
        >>> private_geometry([1 << 30], nslots=8, most_bytes=1 << 20)
        Geometry(nslots=4, strides=(131072,))
    """
    wanted = tuple(sorted({_power_of_two(max(stride, _LEAST_STRIDE)) for stride in strides}))
    slots = max(_power_of_two(nslots), _LEAST_SLOTS)
    while slots > _LEAST_SLOTS and Geometry(slots, wanted).region_bytes > most_bytes:
        slots //= 2
    if Geometry(slots, wanted).region_bytes <= most_bytes:
        return Geometry(slots, wanted)
    stride = wanted[-1]
    while stride > _LEAST_STRIDE and Geometry(slots, (stride,)).region_bytes > most_bytes:
        stride //= 2
    return Geometry(slots, (stride,))


def _power_of_two(number: int) -> int:
    """The next one upwards."""
    return 1 << (max(number, 1) - 1).bit_length()


class PrivateRing:
    """The only writer and the only reader of a ring, whose memory ends with them.

    Its memory is taken at once: writing to it later can't fail.

    Args:
        stream_id: The stream.
        epoch: Its epoch.
        strides: Slot sizes of the pools whose frames it takes.
        nslots: How many slots it should have.
        most_bytes: What it may take.
        directory: A directory in memory; where it has no room, that of temporary files is taken.
        descriptors: Where the writer tells of frames.
        open_reader: Maps the ring for reading.

    Raises:
        RegionError: There is no room, or it can't be made for another reason.
    """

    def __init__(
        self,
        stream_id: int,
        epoch: int,
        *,
        strides: Sequence[int],
        nslots: int,
        most_bytes: int,
        directory: str,
        descriptors: _native.AeronPublication | None,
        open_reader: Callable[[_native.RingAddress, Sequence[str]], _native.RingReader],
    ) -> None:
        largest = max(strides)
        for base, geometry in _choices(directory, strides, nslots, most_bytes):
            try:
                with _directory(base) as path:
                    address = _native.create_ring(
                        path, stream_id=stream_id, epoch=epoch, nslots=geometry.nslots, pools=geometry.pools
                    )
                    self.writer = _native.RingWriter(address, base_dirs=[path], descriptors=descriptors)
                    self.reader = open_reader(address, [path])
            except RegionFullError:
                continue
            if geometry.max_frame_bytes < largest:
                _LOG.warning(
                    "frames of stream %d above %d bytes are left out: there is no room for more",
                    stream_id,
                    geometry.max_frame_bytes,
                )
            return
        raise RegionFullError(
            f"no room for a ring of {_LEAST_BYTES} bytes",
            where=directory,
            hint="`tpool doctor` shows how much memory is free; frames without shared memory need some too",
        )


def _choices(
    directory: str, strides: Sequence[int], nslots: int, most_bytes: int
) -> list[tuple[str, Geometry]]:
    """Where to make the ring and how large, the best first: a slower place before frames that don't fit."""
    bases = [base for base in dict.fromkeys((directory, tempfile.gettempdir())) if os.access(base, os.W_OK)]
    sizes = []
    while most_bytes >= _LEAST_BYTES:
        sizes.append(private_geometry(strides, nslots=nslots, most_bytes=most_bytes))
        most_bytes //= 2
    largest = max(strides)
    choices = [(base, geometry) for base in bases for geometry in dict.fromkeys(sizes)]
    return sorted(choices, key=lambda choice: choice[1].max_frame_bytes < largest)


@contextlib.contextmanager
def _directory(base: str) -> Iterator[str]:
    """One for a moment: what is mapped stays without it, also when this process is killed."""
    try:
        path = os.path.realpath(tempfile.mkdtemp(prefix="tensorpool-private-", dir=base))
    except OSError as e:
        raise RegionError(f"can't make a directory: {e.strerror}", where=base) from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)

"""From rows to tensors: finds what a reference names, checks it, and says clearly when it can't."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from tensor_pool import _native
from tensor_pool.errors import (
    FrameOverwrittenError,
    MalformedMessageError,
    NoDriverError,
    NoMediaDriverError,
    TensorPoolError,
)
from tensor_pool.pipeline.machine import boot_id, host_name
from tensor_pool.pipeline.record.place import Pieces, Place
from tensor_pool.pipeline.record.recording import as_array
from tensor_pool.pipeline.spark.live_pool import RingUri, live_ring
from tensor_pool.pipeline.spark.rows import DAMAGED
from tensor_pool.pipeline.spark.tensor_rows import (
    Content,
    Segment,
    Slot,
    TensorRow,
    TensorUnavailableError,
    tensor_row,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["TensorUnavailableError", "load_tensor", "open_tensor"]

_MOST_OPEN: Final = 32
_MAPPED_S: Final = 3.0
"""How long a worker waits until it has heard of a stream."""


class _OpenSegments:
    """Mapped segments of this process, the last used ones; workers of Spark serve many tasks."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _OpenSegment] = OrderedDict()

    def get(self, uri: str) -> Pieces:
        segment = self._open.get(uri)
        try:
            if segment is None or not segment.is_current():
                segment = self._open[uri] = _OpenSegment(Place(uri))
        except FileNotFoundError:
            self._open.pop(uri, None)
            raise TensorUnavailableError(
                f"{Place(uri)} is not there on this machine",
                status="segment_missing",
                hint="recordings belong where all workers find them: a shared disk or an object store",
            ) from None
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        self._open.move_to_end(uri)
        return segment.pieces


class _OpenSegment:
    """A segment, and which file of this machine it was: another recording may take its place."""

    def __init__(self, place: Place) -> None:
        self._path = place.local
        self._identity = self._look()
        self.pieces: Final = place.pieces()

    def _look(self) -> tuple[int, ...]:
        if self._path is None:
            return ()
        found = self._path.stat()
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def is_current(self) -> bool:
        """Whether it is still that file, as it was."""
        return self._look() == self._identity


_SEGMENTS: Final = _OpenSegments()


def load_tensor(row: Mapping[str, Any], *, check: bool = True) -> NDArray[Any]:
    """The tensor of a row of the format ``tensorpool``: a read-only view of a recording, a copy of a ring.

    Args:
        row: With ``status``, ``dtype``, ``shape``, ``order``, and ``ref`` or ``values``: a `Row` of Spark.
        check: Compare the bytes with their checksum.

    Raises:
        TensorUnavailableError: The row is a gap or makes no sense, its tensor is damaged, overwritten or not
            here; says what to do.
        ConfigError: The row lacks a column.

    Example:
        >>> row = {"status": "ok", "dtype": "uint8", "shape": [2], "order": "C", "values": b"ab"}
        >>> load_tensor(row).tolist()
        [97, 98]
    """
    known = tensor_row(row)
    with _opened(known, check=check) as array:
        return array.copy(order="A") if isinstance(known, Slot) else array


@contextlib.contextmanager
def open_tensor(row: Mapping[str, Any], *, check: bool | None = None) -> Iterator[NDArray[Any]]:
    """The tensor of a row, where it lies, for the time of a ``with`` block; read-only.

    Args:
        row: As for `load_tensor`.
        check: Compare the bytes with their checksum. Unless told otherwise, those that are fetched from
            elsewhere are compared, and those of this machine's disks are not: it takes as long as computing
            with them, and `tpool verify` does it for a whole recording. Live ones have no checksum; they are
            looked at again at the end.

    Raises:
        TensorUnavailableError: As for `load_tensor`; also at the end of the block, if a live tensor was
            overwritten in it.
    """
    with _opened(tensor_row(row), check=check) as array:
        yield array


@contextlib.contextmanager
def _opened(row: TensorRow | Slot, *, check: bool | None) -> Iterator[NDArray[Any]]:
    if isinstance(row, Slot):
        with _live(row) as array:
            yield array
        return
    try:
        content = row.place.values if isinstance(row.place, Content) else _recorded(row.place, check=check)
        array = as_array(content, row.dtype, row.shape, row.order)
    except MalformedMessageError as e:
        raise TensorUnavailableError(
            e.message, status=DAMAGED, hint="`tpool verify` lists what is damaged"
        ) from None
    yield array


@contextlib.contextmanager
def _live(slot: Slot) -> Iterator[NDArray[Any]]:
    if (slot.host, slot.boot) != (host_name(), boot_id()):
        other = "of another start of this machine" if slot.host == host_name() else f"of host {slot.host}"
        raise TensorUnavailableError(
            f"frame {slot.seq} lies in the memory {other}",
            status="other_host",
            hint="live tensors are read on their producer's host; a recording is read anywhere",
        )
    try:
        ring = live_ring(RingUri.parse(slot.uri))
        is_there = ring.await_epoch(slot.epoch, _MAPPED_S)
    except (NoDriverError, NoMediaDriverError) as e:
        raise TensorUnavailableError(e.message, status="no_driver", hint=e.hint) from None
    except ValueError as e:  # also a stream's number or a setting that makes no sense
        raise _unknown(e) from None
    if not is_there:
        raise TensorUnavailableError(
            f"epoch {slot.epoch} of frame {slot.seq} is over, its producer was restarted or ended",
            status="epoch_ended",
            hint="read live tensors in the query that told of them, or record them",
        )
    frame = ring.read(slot.epoch, slot.seq)
    if frame is None:
        raise _overwritten(slot.seq)
    try:
        with frame as array:
            yield array
    except FrameOverwrittenError:
        raise _overwritten(slot.seq) from None


def _overwritten(seq: int) -> TensorUnavailableError:
    return TensorUnavailableError(
        f"frame {seq} was overwritten before it was read",
        status="overwritten",
        hint="give the producer a longer ring (slots=...), or record the stream",
    )


def _unknown(why: ValueError) -> TensorUnavailableError:
    """Without the URI: there may be a password in it."""
    message, hint = (why.message, why.hint) if isinstance(why, TensorPoolError) else (str(why), None)
    return TensorUnavailableError(
        f"the reference leads nowhere: {message}", status="unknown_reference", hint=hint
    )


def _recorded(segment: Segment, *, check: bool | None) -> Any:
    uri, offset, length, crc32c = segment
    check = not uri.startswith("file:") if check is None else check
    try:
        values = _SEGMENTS.get(uri).read(offset, length)
    except ValueError as e:  # no URI, or none of a filesystem that is known
        raise _unknown(e) from None
    except (OSError, MemoryError) as e:
        raise TensorUnavailableError(f"can't read {uri}: {e}", status="unreadable") from None
    if values.size != length or (check and _native.crc32c(values) != crc32c):
        raise MalformedMessageError(f"{length} bytes at {offset} of {uri} are damaged")
    return values

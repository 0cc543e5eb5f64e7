"""From rows to tensors: finds what a reference names, checks it, and says clearly when it can't."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from tensor_pool import _native
from tensor_pool.errors import (
    FrameError,
    FrameOverwrittenError,
    MalformedMessageError,
    NoDriverError,
    NoMediaDriverError,
)
from tensor_pool.pipeline.machine import boot_id, host_name
from tensor_pool.pipeline.record.place import Pieces, Place
from tensor_pool.pipeline.record.recording import as_array
from tensor_pool.pipeline.spark.live_pool import RingUri, live_ring
from tensor_pool.pipeline.spark.rows import DAMAGED
from tensor_pool.pipeline.spark.schema import OK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["TensorUnavailableError", "load_tensor", "open_tensor"]

_MOST_OPEN: Final = 32
_MAPPED_S: Final = 3.0
"""How long a worker waits until it has heard of a stream."""


class TensorUnavailableError(FrameError):
    """A row has no tensor, or no longer has it.

    Args:
        message: What is wrong.
        status: The same as one word, for the column ``status``.
        hint: What to do.
    """

    def __init__(self, message: str, *, status: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status: Final = status


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
        TensorUnavailableError: The row is a gap, its tensor is damaged, overwritten or not here; says what
            to do.

    Example:
        >>> row = {"status": "ok", "dtype": "uint8", "shape": [2], "order": "C", "values": b"ab"}
        >>> load_tensor(row).tolist()
        [97, 98]
    """
    with open_tensor(row, check=check) as array:
        return array.copy(order="A") if _is_live(row) else array


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
    if row["status"] != OK:
        raise TensorUnavailableError(
            f"frame {row['seq']} has no values: {row['status']}", status=row["status"]
        )
    if _is_live(row):
        with _live(row) as array:
            yield array
        return
    try:
        content = _recorded(row["ref"], check=check) if "ref" in row else row["values"]
        array = as_array(content, row["dtype"], tuple(row["shape"]), row["order"])
    except MalformedMessageError as e:
        raise TensorUnavailableError(
            e.message, status=DAMAGED, hint="`tpool verify` lists what is damaged"
        ) from None
    yield array


def _is_live(row: Mapping[str, Any]) -> bool:
    return "ref" in row and row["ref"] is not None and row["ref"]["kind"] == "ring"


@contextlib.contextmanager
def _live(row: Mapping[str, Any]) -> Iterator[NDArray[Any]]:
    ref = row["ref"]
    seq = row["seq"]
    if (ref["host"], ref["boot"]) != (host_name(), boot_id()):
        other = "of another start of this machine" if ref["host"] == host_name() else f"of host {ref['host']}"
        raise TensorUnavailableError(
            f"frame {seq} lies in the memory {other}",
            status="other_host",
            hint="live tensors are read on their producer's host; a recording is read anywhere",
        )
    try:
        ring = live_ring(RingUri.parse(ref["uri"]))
        is_there = ring.await_epoch(row["epoch"], _MAPPED_S)
    except (NoDriverError, NoMediaDriverError) as e:
        raise TensorUnavailableError(e.message, status="no_driver", hint=e.hint) from None
    if not is_there:
        raise TensorUnavailableError(
            f"epoch {row['epoch']} of frame {seq} is over, its producer was restarted or ended",
            status="epoch_ended",
            hint="read live tensors in the query that told of them, or record them",
        )
    frame = ring.read(row["epoch"], seq)
    if frame is None:
        raise _overwritten(seq)
    try:
        with frame as array:
            yield array
    except FrameOverwrittenError:
        raise _overwritten(seq) from None


def _overwritten(seq: int) -> TensorUnavailableError:
    return TensorUnavailableError(
        f"frame {seq} was overwritten before it was read",
        status="overwritten",
        hint="give the producer a longer ring (slots=...), or record the stream",
    )


def _recorded(ref: Mapping[str, Any], *, check: bool | None) -> Any:
    check = not ref["uri"].startswith("file:") if check is None else check
    if ref["kind"] != "segment":
        raise TensorUnavailableError(
            f"references of kind {ref['kind']!r} are not known", status="unknown_reference"
        )
    try:
        values = _SEGMENTS.get(ref["uri"]).read(ref["offset"], ref["length"])
    except OSError as e:
        raise TensorUnavailableError(f"can't read {ref['uri']}: {e}", status="unreadable") from None
    if values.size != ref["length"] or (check and _native.crc32c(values) != ref["crc32c"]):
        raise MalformedMessageError(f"{ref['length']} bytes at {ref['offset']} of {ref['uri']} are damaged")
    return values

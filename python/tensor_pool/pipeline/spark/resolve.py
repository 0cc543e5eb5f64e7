"""From rows to tensors: finds what a reference names, checks it, and says clearly when it can't."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from tensor_pool import _native
from tensor_pool.errors import FrameError, MalformedMessageError, RegionError
from tensor_pool.pipeline.record.place import Pieces, Place
from tensor_pool.pipeline.record.recording import as_array
from tensor_pool.pipeline.spark.rows import DAMAGED
from tensor_pool.pipeline.spark.schema import OK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["TensorUnavailableError", "load_tensor"]

_MOST_OPEN: Final = 32


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
        self._open: OrderedDict[str, Pieces] = OrderedDict()

    def get(self, uri: str) -> Pieces:
        pieces = self._open.get(uri)
        if pieces is None:
            try:
                pieces = Place(uri).pieces()
            except FileNotFoundError:
                raise TensorUnavailableError(
                    f"{Place(uri)} is not there on this machine",
                    status="segment_missing",
                    hint="recordings belong where all workers find them: a shared disk or an object store",
                ) from None
            self._open[uri] = pieces
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(uri)
        return pieces


_SEGMENTS: Final = _OpenSegments()


def load_tensor(row: Mapping[str, Any], *, check: bool = True) -> NDArray[Any]:
    """The tensor of a row of the format ``tensorpool``, as a read-only array.

    Args:
        row: With ``status``, ``dtype``, ``shape``, ``order``, and ``ref`` or ``values``: a `Row` of Spark.
        check: Compare the bytes with their checksum.

    Raises:
        TensorUnavailableError: The row is a gap, its tensor is damaged, or not here; says what to do.

    Example:
        >>> row = {"status": "ok", "dtype": "uint8", "shape": [2], "order": "C", "values": b"ab"}
        >>> load_tensor(row).tolist()
        [97, 98]
    """
    if row["status"] != OK:
        raise TensorUnavailableError(
            f"frame {row['seq']} has no values: {row['status']}", status=row["status"]
        )
    try:
        values = row["values"] if "values" in row else _referred(row["ref"], check=check)
        return as_array(values, row["dtype"], tuple(row["shape"]), row["order"])
    except MalformedMessageError as e:
        raise TensorUnavailableError(
            e.message, status=DAMAGED, hint="`tpool verify` lists what is damaged"
        ) from None


def _referred(ref: Mapping[str, Any], *, check: bool) -> Any:
    if ref["kind"] != "segment":
        raise TensorUnavailableError(
            f"references of kind {ref['kind']!r} are not known", status="unknown_reference"
        )
    try:
        values = _SEGMENTS.get(ref["uri"]).read(ref["offset"], ref["length"])
    except (RegionError, OSError) as e:
        raise TensorUnavailableError(f"can't read {ref['uri']}: {e}", status="unreadable") from None
    if values.size != ref["length"] or (check and _native.crc32c(values) != ref["crc32c"]):
        raise MalformedMessageError(f"{ref['length']} bytes at {ref['offset']} of {ref['uri']} are damaged")
    return values

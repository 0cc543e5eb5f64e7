"""What a row says of its tensor, checked before anything is read: tables are made by anybody."""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tensor_pool.errors import ConfigError, FrameError
from tensor_pool.pipeline.spark.schema import OK

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MALFORMED", "Content", "Segment", "Slot", "TensorRow", "TensorUnavailableError", "tensor_row"]

MALFORMED: Final = "malformed"
"""The status of a row that contradicts itself, or lacks what it needs."""
_LARGEST: Final = 2**63 - 1
_HINT: Final = 'rows as spark.read.format("tensorpool") makes them; see the table of columns'


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


class Segment(NamedTuple):
    """Bytes of a recording."""

    uri: str
    offset: int
    length: int
    crc32c: int | None


class Slot(NamedTuple):
    """A frame of a ring, which says itself what it is."""

    uri: str
    host: str
    boot: str
    epoch: int
    seq: int


class Content(NamedTuple):
    """The bytes themselves."""

    values: Any


class TensorRow(NamedTuple):
    """A tensor that is not in a ring: what it is, and where."""

    dtype: str
    shape: tuple[int, ...]
    order: str
    place: Segment | Content


def tensor_row(row: Mapping[str, Any]) -> TensorRow | Slot:
    """What a row says of its tensor.

    Args:
        row: With ``status``, ``dtype``, ``shape``, ``order``, and ``ref`` or ``values``; with ``status``,
            ``epoch``, ``seq`` and ``ref`` if its tensor is in a ring.

    Raises:
        TensorUnavailableError: It has none, or what it says makes no sense.
        ConfigError: It lacks a column.

    Example:
        >>> row = {"status": "ok", "dtype": "uint8", "shape": [2], "order": "C", "values": b"ab"}
        >>> tensor_row(row).shape
        (2,)
        >>> tensor_row(row | {"shape": [-1]})
        Traceback (most recent call last):
        tensor_pool.pipeline.spark.tensor_rows.TensorUnavailableError: shape [-1] ...
    """
    status = _of(row, "status")
    if status != OK:
        frame = f"frame {row['seq']}" if "seq" in row else "the row"
        raise TensorUnavailableError(f"{frame} has no values: {status}", status=status or MALFORMED)
    if "ref" not in row:
        values = _of(row, "values")
        if values is None:
            raise _malformed("the row has no values, though its status is ok")
        return _fitting(row, Content(values), len(values))
    ref = row["ref"]
    if ref is None:
        raise _malformed("the row has no ref, though its status is ok")
    kind, uri = _of(ref, "kind"), _of(ref, "uri")
    if not isinstance(uri, str):
        raise _malformed(f"uri {uri!r} of a reference")
    if kind == "ring":
        return _slot(row, ref, uri)
    if kind != "segment":
        raise TensorUnavailableError(f"references of kind {kind!r} are not known", status="unknown_reference")
    offset, length = (_number(ref, name) for name in ("offset", "length"))
    return _fitting(row, Segment(uri, offset, length, _of(ref, "crc32c")), length)


def _fitting(row: Mapping[str, Any], place: Segment | Content, length: int) -> TensorRow:
    """The tensor of so many bytes, if that is what its type and shape make."""
    dtype, order = _of(row, "dtype"), _of(row, "order")
    if order not in ("C", "F"):
        raise _malformed(f"order {order!r} is neither C nor F")
    shape = _shape(_of(row, "shape"))
    nbytes = _itemsize(dtype) * math.prod(shape)
    if length != nbytes:
        raise _malformed(f"{length} bytes are no {dtype} of shape {list(shape)}, which has {nbytes}")
    return TensorRow(dtype, shape, order, place)


def _slot(row: Mapping[str, Any], ref: Mapping[str, Any], uri: str) -> Slot:
    epoch, seq = (_number(row, name) for name in ("epoch", "seq"))
    if "offset" in ref and ref["offset"] != seq:
        raise _malformed(f"frame {seq} refers to frame {ref['offset']}")
    return Slot(uri, _of(ref, "host"), _of(ref, "boot"), epoch, seq)


def _of(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise ConfigError(f"the row lacks {name}", hint=_HINT)
    return row[name]


def _number(row: Mapping[str, Any], name: str) -> int:
    """One that is not negative and that 64 bits hold."""
    try:
        number = operator.index(_of(row, name))
    except TypeError:
        number = -1
    if not 0 <= number <= _LARGEST:
        raise _malformed(f"{name} {row[name]!r} of a reference")
    return number


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        found = tuple(map(operator.index, shape))
    except TypeError:
        found = (-1,)
    if any(not 0 <= length <= _LARGEST for length in found):
        raise _malformed(f"shape {shape!r} has something else than lengths")
    return found


def _itemsize(dtype: Any) -> int:
    found = _known_itemsize(dtype) if isinstance(dtype, str) else None  # NumPy takes None for a double
    if not found:
        raise _malformed(f"dtype {dtype!r} is none of NumPy's that bytes can have")
    return found


@lru_cache(maxsize=256)
def _known_itemsize(dtype: str) -> int | None:
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        return None
    return None if found.hasobject else found.itemsize


def _malformed(message: str) -> TensorUnavailableError:
    return TensorUnavailableError(message, status=MALFORMED, hint=_HINT)

"""What a stream carries, in one line: ``uint16 480x640 row``.

`DataSourceAnnounce.summary` is free text to the specification. Ours has a fixed grammar, so that a list of
streams can show what each one carries without mapping it::

    summary = dtype " " shape " " order
    dtype   = "uint8" / "int8" / ... / "float64" / "boolean" / "bytes" / "bit"    ; names of `Dtype`
    shape   = length *7("x" length)        ; decimal, without leading zeros
    order   = "row" / "column"

A stream whose frames differ has no summary: the text is empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool.datatypes import MAX_DIMS, Dtype, MajorOrder, from_numpy
from tensor_pool.errors import TensorLayoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

__all__ = ["Summary", "format_summary", "parse_summary"]

_MAX_LENGTH: Final = 2**31 - 1
"""Tensor headers carry lengths as signed integers of 32 bits."""
_DTYPES: Final = {dtype.name.lower(): dtype for dtype in Dtype if dtype is not Dtype.UNKNOWN}
_ORDERS: Final = {order.name.lower(): order for order in MajorOrder if order is not MajorOrder.UNKNOWN}
_LENGTH: Final = "(?:0|[1-9][0-9]{0,9})"
_GRAMMAR: Final = re.compile(
    rf"({'|'.join(_DTYPES)}) ({_LENGTH}(?:x{_LENGTH}){{0,{MAX_DIMS - 1}}}) ({'|'.join(_ORDERS)})"
)


class Summary(NamedTuple):
    """Element type, shape and memory order of a stream's frames.

    Example:
        >>> str(Summary(Dtype.FLOAT32, (3, 4), MajorOrder.COLUMN))
        'float32 3x4 column'
    """

    dtype: Dtype
    shape: tuple[int, ...]
    order: MajorOrder = MajorOrder.ROW

    def __str__(self) -> str:
        return format_summary(self.dtype, self.shape, self.order)


def format_summary(dtype: Dtype | DTypeLike, shape: Sequence[int], order: MajorOrder = MajorOrder.ROW) -> str:
    """The summary of frames that all look like this.

    Raises:
        TensorLayoutError: No tensor header can carry it.

    Example:
        >>> format_summary("uint16", (480, 640))
        'uint16 480x640 row'
    """
    wire_dtype = dtype if isinstance(dtype, Dtype) else from_numpy(dtype)
    if wire_dtype is Dtype.UNKNOWN or order is MajorOrder.UNKNOWN:
        raise TensorLayoutError("a summary names an element type and an order", hint="send none instead")
    if not 1 <= len(shape) <= MAX_DIMS or any(not 0 <= length <= _MAX_LENGTH for length in shape):
        raise TensorLayoutError(
            f"no tensor header carries the shape {tuple(shape)}",
            hint=f"1 to {MAX_DIMS} dimensions of 0 to {_MAX_LENGTH} elements",
        )
    lengths = "x".join(str(int(length)) for length in shape)
    return f"{wire_dtype.name.lower()} {lengths} {order.name.lower()}"


def parse_summary(text: str) -> Summary | None:
    """What a summary says, or None for any other text: peers may write there what they like.

    Example:
        >>> parse_summary("uint16 480x640 row").shape
        (480, 640)
        >>> parse_summary("the camera on the left") is None
        True
    """
    found = _GRAMMAR.fullmatch(text)
    if found is None:
        return None
    shape = tuple(int(length) for length in found[2].split("x"))
    if max(shape) > _MAX_LENGTH:
        return None
    return Summary(_DTYPES[found[1]], shape, _ORDERS[found[3]])

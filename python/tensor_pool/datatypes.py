"""Element types and memory orders of tensors, as the wire numbers them, and their NumPy counterparts.

The numbers are fixed for all of version 1 [WIRE-15.8-2]; 12 is not used. Three types have no exact NumPy
counterpart: `BYTES` and `BIT` travel as one byte per element and appear as ``uint8`` (decision B15).
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.errors import TensorLayoutError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

__all__ = ["MAX_DIMS", "Dtype", "MajorOrder", "from_numpy", "to_numpy", "wire_dtype"]

MAX_DIMS: Final = 8
"""The largest number of dimensions a tensor header can carry."""


class Dtype(enum.IntEnum):
    """The scalar type of a tensor's elements."""

    UNKNOWN = 0
    UINT8 = 1
    INT8 = 2
    UINT16 = 3
    INT16 = 4
    UINT32 = 5
    INT32 = 6
    UINT64 = 7
    INT64 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    BOOLEAN = 11
    BYTES = 13
    BIT = 14


class MajorOrder(enum.IntEnum):
    """Which end of the shape varies slowest in memory."""

    UNKNOWN = 0
    ROW = 1
    COLUMN = 2


_NUMPY_NAMES: Final = {
    Dtype.UINT8: "u1",
    Dtype.INT8: "i1",
    Dtype.UINT16: "<u2",
    Dtype.INT16: "<i2",
    Dtype.UINT32: "<u4",
    Dtype.INT32: "<i4",
    Dtype.UINT64: "<u8",
    Dtype.INT64: "<i8",
    Dtype.FLOAT32: "<f4",
    Dtype.FLOAT64: "<f8",
    Dtype.BOOLEAN: "?",
    Dtype.BYTES: "u1",
    Dtype.BIT: "u1",
}

# What a NumPy array becomes: one entry per kind and size, the plain numeric reading.
_DTYPES_BY_KIND: Final = {
    ("u", 1): Dtype.UINT8,
    ("i", 1): Dtype.INT8,
    ("u", 2): Dtype.UINT16,
    ("i", 2): Dtype.INT16,
    ("u", 4): Dtype.UINT32,
    ("i", 4): Dtype.INT32,
    ("u", 8): Dtype.UINT64,
    ("i", 8): Dtype.INT64,
    ("f", 4): Dtype.FLOAT32,
    ("f", 8): Dtype.FLOAT64,
    ("b", 1): Dtype.BOOLEAN,
}


_known: Final[dict[Any, Dtype]] = {}
_MOST_KNOWN: Final = 64


def to_numpy(dtype: Dtype) -> np.dtype[Any]:
    """The NumPy type that elements of `dtype` appear as.

    Example:
        >>> to_numpy(Dtype.FLOAT32)
        dtype('float32')
    """
    import numpy as np  # noqa: PLC0415 - importing the package must not wait for NumPy

    try:
        return np.dtype(_NUMPY_NAMES[dtype])
    except KeyError:
        raise TensorLayoutError(f"dtype {dtype!r} has no element type") from None


def wire_dtype(dtype: DTypeLike | Dtype) -> Dtype:
    """The wire type of whatever names an element type, one of ours included.

    Raises:
        TensorLayoutError: The wire has no such type.

    Example:
        >>> wire_dtype("uint16").name, wire_dtype(Dtype.BYTES).name
        ('UINT16', 'BYTES')
    """
    if dtype is None:  # which NumPy takes for float64
        raise TensorLayoutError("dtype=None", hint="say what the elements are, such as 'uint16'")
    return dtype if isinstance(dtype, Dtype) else from_numpy(dtype)


def from_numpy(dtype: DTypeLike) -> Dtype:
    """The wire type of a NumPy type.

    Raises:
        TensorLayoutError: The wire has no such type (complex, float16, strings, big-endian, ...).

    Example:
        >>> from_numpy("uint16").name
        'UINT16'
    """
    # Producers ask once a frame, always for the same few.
    try:
        return _known[dtype]
    except (KeyError, TypeError):  # not asked before, or nothing that can be remembered
        found = _from_numpy(dtype)
    if isinstance(dtype, Hashable) and len(_known) < _MOST_KNOWN:
        _known[dtype] = found
    return found


def _from_numpy(dtype: DTypeLike) -> Dtype:
    import numpy as np  # noqa: PLC0415 - see to_numpy

    try:
        resolved = np.dtype(dtype)
    except TypeError as e:
        raise TensorLayoutError(f"{dtype!r} is not a dtype: {e}") from None
    found = _DTYPES_BY_KIND.get((resolved.kind, resolved.itemsize))
    if found is None or not resolved.isnative:
        names = ", ".join(sorted({to_numpy(d).name for d in _DTYPES_BY_KIND.values()}))
        raise TensorLayoutError(
            f"dtype {resolved.str!r} can't travel in a tensor header",
            hint=f"use one of {names} in native byte order, or view the bytes as uint8",
        )
    return found

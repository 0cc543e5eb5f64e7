"""Python values as attributes of metadata, and back.

=====================================  ============================  =========================================
value                                  format                        bytes
=====================================  ============================  =========================================
``str``                                ``text/plain``                UTF-8
``bool int float None list dict``      ``application/json``          JSON
``bytes``                              ``application/octet-stream``  as they are
NumPy scalar                           as the Python scalar
NumPy array, NaN, infinity             ``application/x-npy``         NumPy's file format, version 1.0
``int`` as ``data_source_id``          ``text/plain``                decimal digits (decision K1)
=====================================  ============================  =========================================

Reading never raises: whatever is not what its format says stays bytes.
"""

from __future__ import annotations

import io
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensor_pool.errors import MetadataError
from tensor_pool.wire.messages import MetaAttribute

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MetadataValue", "read_attribute", "to_attribute"]

MetadataValue: TypeAlias = Any
"""What the table above lists; checked when it is set, since types can't say it."""

_TEXT: Final = "text/plain"
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_NPY: Final = "application/x-npy"
_MAX_DEPTH: Final = 32
_NUMERIC_KINDS: Final = "biufc"
"""Kinds of NumPy types that mean the same everywhere; the expression below knows them too."""
_NPY_MAGIC: Final = b"\x93NUMPY\x01\x00"
_NPY_HEADER: Final = re.compile(
    r"\{'descr': '([<>|][biufc][0-9]{1,2})', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \} *\n"
)


def to_attribute(key: str, value: MetadataValue) -> MetaAttribute:
    """The attribute that carries a value.

    Raises:
        MetadataError: No format here carries such a value.

    Example:
        >>> to_attribute("exposure_ms", 12.5)
        MetaAttribute(key='exposure_ms', format='application/json', value=b'12.5')
    """
    value = _plain(value)
    if isinstance(value, str):
        return MetaAttribute(key, _TEXT, _utf8(key, value))
    if isinstance(value, bytes | bytearray | memoryview):
        return MetaAttribute(key, _BYTES, bytes(value))
    if key == "data_source_id" and isinstance(value, int):
        return MetaAttribute(key, _TEXT, str(value).encode())
    if _is_array(value) or (isinstance(value, float) and not math.isfinite(value)):
        return MetaAttribute(key, _NPY, _to_npy(key, value))
    _check_json(key, value, _MAX_DEPTH)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return MetaAttribute(key, _JSON, _utf8(key, text))


def read_attribute(attribute: MetaAttribute) -> MetadataValue:
    """The value of an attribute; its bytes when they are not what the format says, or it is not known.

    Example:
        >>> read_attribute(MetaAttribute("exposure_ms", "application/json", b"12.5"))
        12.5
        >>> read_attribute(MetaAttribute("exposure_ms", "application/json", b"12."))
        b'12.'
    """
    # Parameters such as "; charset=utf-8" don't change how any of these is read.
    media_type = attribute.format.partition(";")[0].strip().lower()
    try:
        if media_type == _TEXT:
            return attribute.value.decode()
        if media_type == _JSON:
            return json.loads(attribute.value)
        if media_type == _NPY:
            return _from_npy(attribute.value)
    except (ValueError, TypeError, RecursionError, OverflowError, MemoryError):
        pass
    return attribute.value


def _utf8(key: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MetadataError(f"metadata {key!r} holds text that is not Unicode: {error}") from None


def _plain(value: MetadataValue) -> MetadataValue:
    """NumPy scalars as Python's, tuples as lists."""
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "dtype") and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def _is_array(value: MetadataValue) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _check_json(key: str, value: MetadataValue, depth: int) -> None:
    """Refuses what JSON would lose or change, such as keys that are not text."""
    if depth == 0:
        raise MetadataError(f"metadata {key!r} is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        for item in value.values():
            _check_json(key, item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_json(key, item, depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise MetadataError(f"metadata {key!r} holds {value} in a list or dict", hint="use an array")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise MetadataError(
            f"metadata {key!r} can't hold values of type {type(value).__name__}",
            hint="str, int, float, bool, None, bytes, arrays, and lists and dicts (keys: str) of plain ones",
        )


def _to_npy(key: str, value: MetadataValue) -> bytes:
    import numpy as np  # noqa: PLC0415 - importing the package must not wait for NumPy

    array = np.asarray(value)
    if array.dtype.kind not in _NUMERIC_KINDS:
        raise MetadataError(
            f"metadata {key!r} can't hold an array of {array.dtype}", hint="numbers and booleans travel"
        )
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _from_npy(data: bytes) -> NDArray[Any] | np.generic | float:
    """Reads what NumPy itself writes, and nothing else.

    NumPy's own reader evaluates the header as Python, and allocates what it claims before it looks how many
    bytes there are.
    """
    import numpy as np  # noqa: PLC0415 - see _to_npy

    start = len(_NPY_MAGIC) + 2
    end = start + int.from_bytes(data[start - 2 : start], "little")
    header = _NPY_HEADER.fullmatch(data[start:end].decode("latin-1"))
    if not data.startswith(_NPY_MAGIC) or header is None:
        raise ValueError("not an array")
    dtype = np.dtype(header[1])
    shape = [int(length) for length in header[3].replace(" ", "").split(",") if length]
    if math.prod(shape) * dtype.itemsize != len(data) - end:
        raise ValueError("not as many bytes as the shape says")
    array = np.frombuffer(data, dtype, offset=end).reshape(shape, order="F" if header[2] == "True" else "C")
    return array if shape else array.item()

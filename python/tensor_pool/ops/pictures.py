"""Frames as files: PNG and PGM for looking at, npy for working with.

Written with the standard library and NumPy alone. Values that a picture can hold as they are (grey of 8 or 16
bits, RGB and RGBA of 8) stay as they are; everything else is scaled, and so is everything when a range is
given.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from tensor_pool.errors import TensorLayoutError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FORMATS", "Scale", "encode", "npy", "pgm", "png", "to_pixels"]

FORMATS: Final = ("png", "npy", "pgm")
_PNG_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_PNG_COLOURS: Final = {1: 0, 3: 2, 4: 6}
"""PNG's colour type for so many channels: grey, RGB, RGBA."""
_MAX_SIDE: Final = 2**31 - 1
_COMPRESSION: Final = 3
"""zlib's level: pictures of cameras are mostly noise, which higher ones don't make smaller."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Which values become black and white.

    Example:
        >>> Scale(percentile=1.0).limits(np.arange(101.0))
        (1.0, 99.0)
    """

    low: float | None = None
    high: float | None = None
    percentile: float | None = None
    """So many percent of the values may be darker than black, and so many brighter than white."""

    @property
    def is_given(self) -> bool:
        """Whether anybody asked for scaling."""
        return any(value is not None for value in (self.low, self.high, self.percentile))

    def limits(self, values: NDArray[Any]) -> tuple[float, float]:
        """The values of black and white; those that are not finite don't count."""
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        if finite.size == 0:
            return self.low or 0.0, self.high or 1.0
        if self.percentile is None:
            low, high = float(finite.min()), float(finite.max())
        else:
            low, high = (float(v) for v in np.percentile(finite, [self.percentile, 100 - self.percentile]))
        return low if self.low is None else self.low, high if self.high is None else self.high


def to_pixels(array: NDArray[Any], scale: Scale | None = None) -> NDArray[Any]:
    """The pixels of a frame: height x width, or height x width x channels; uint8 or uint16.

    Args:
        array: A frame; one dimension makes a picture of one row.
        scale: Which values become black and white; the smallest and the largest when left out.

    Raises:
        TensorLayoutError: It is no picture.

    Example:
        >>> to_pixels(np.array([[0.0, 0.5, 1.0]])).tolist()
        [[0, 32768, 65535]]
        >>> to_pixels(np.array([[3, 7]], "uint8")).tolist()
        [[3, 7]]
    """
    scale = scale if scale is not None else Scale()
    pixels = _as_picture(array)
    if pixels.dtype == np.bool_:
        return np.where(pixels, np.uint8(255), np.uint8(0))
    is_exact = pixels.dtype == np.uint8 or (pixels.dtype == np.uint16 and pixels.ndim == 2)
    if is_exact and not scale.is_given:
        return pixels
    if pixels.ndim == 3:
        raise TensorLayoutError(
            f"colour pictures are made of uint8 as they are, not of {pixels.dtype}",
            hint="save it as .npy and convert it with your own tools",
        )
    low, high = scale.limits(pixels)
    kind: type[np.uint8 | np.uint16] = np.uint8 if pixels.dtype.itemsize == 1 else np.uint16
    white = np.iinfo(kind).max
    with np.errstate(all="ignore"):  # frames hold whatever their producer likes, such as infinities
        scaled = (pixels.astype(np.float64) - low) / (high - low if high > low else 1.0) * white
    # Not a number is black; infinities are what they would be if they were only large.
    return np.rint(np.clip(np.nan_to_num(scaled, nan=0.0, posinf=white, neginf=0.0), 0, white)).astype(kind)


def _as_picture(array: NDArray[Any]) -> NDArray[Any]:
    shape = array.shape
    if array.ndim == 1:
        array = array[np.newaxis, :]
    elif array.ndim == 3 and shape[2] == 1:
        array = array[:, :, 0]
    has_channels = array.ndim == 3 and array.shape[2] in _PNG_COLOURS
    fits = array.size > 0 and max(array.shape, default=0) <= _MAX_SIDE and array.dtype.kind in "buif"
    if not fits or not (array.ndim == 2 or has_channels):
        raise TensorLayoutError(
            f"{array.dtype} {'x'.join(map(str, shape)) or 'of no dimension'} is no picture",
            hint="height x width, or height x width x 3 or 4 of uint8; save other frames as .npy",
        )
    return array


def encode(array: NDArray[Any], file_format: str, scale: Scale | None = None) -> bytes:
    """The file of a frame.

    Args:
        array: The frame.
        file_format: One of `FORMATS`.
        scale: For pictures: which values become black and white.

    Raises:
        TensorLayoutError: The format can't hold it.

    Example:
        >>> encode(np.full((1, 2), 33, "uint8"), "pgm").splitlines()
        [b'P5', b'2 1', b'255', b'!!']
    """
    if file_format == "npy":
        return npy(array)
    pixels = to_pixels(array, scale)
    return png(pixels) if file_format == "png" else pgm(pixels)


def png(pixels: NDArray[Any]) -> bytes:
    """A PNG file of what `to_pixels` gives.

    Example:
        >>> png(np.zeros((2, 2), "uint8"))[1:4]
        b'PNG'
    """
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    # Samples of two bytes are big-endian, and each row begins with its filter: none.
    rows = np.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder(">"), copy=False))
    rows = rows.view(np.uint8).reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    header = struct.pack(
        ">IIBBBBB", width, height, pixels.dtype.itemsize * 8, _PNG_COLOURS[channels], 0, 0, 0
    )
    body = zlib.compress(raw.tobytes(), _COMPRESSION)
    return b"".join(
        [_PNG_MAGIC, _png_chunk(b"IHDR", header), _png_chunk(b"IDAT", body), _png_chunk(b"IEND", b"")]
    )


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pgm(pixels: NDArray[Any]) -> bytes:
    """A PGM file of grey pixels.

    Raises:
        TensorLayoutError: They have colours.

    Example:
        >>> pgm(np.array([[0x4142, 0x4344]], "uint16")).splitlines()
        [b'P5', b'2 1', b'65535', b'ABCD']
    """
    if pixels.ndim != 2:
        raise TensorLayoutError("a PGM file is grey", hint="save colours as .png")
    height, width = pixels.shape
    head = f"P5\n{width} {height}\n{np.iinfo(pixels.dtype).max}\n".encode()
    return head + pixels.astype(pixels.dtype.newbyteorder(">"), copy=False).tobytes()


def npy(array: NDArray[Any]) -> bytes:
    """NumPy's own file, exact: type, shape and memory order.

    Example:
        >>> npy(np.zeros(3))[1:6]
        b'NUMPY'
    """
    import io  # noqa: PLC0415 - only here

    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()

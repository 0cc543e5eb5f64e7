"""Numbers of one tensor, right for every element type and without a second tensor's worth of memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FrameStatistics", "as_numbers", "dead_lines", "frame_statistics", "sample"]

_BLOCK: Final = 1 << 16
"""Values that are looked at together: they fit into a core's cache as float64."""
_CHANNELS: Final = (1, 3, 4)


class FrameStatistics(NamedTuple):
    """Numbers of one tensor; those of values are None where there is no finite value.

    Complex values count by their magnitude, booleans as 0 and 1.
    """

    size: int
    finite: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    nan_share: float | None
    inf_share: float | None


def frame_statistics(array: NDArray[Any]) -> FrameStatistics:
    """Looks at every value once, added up as float64, block by block.

    Example:
        >>> frame_statistics(np.array([200, 100, 255, 1], "uint8"))[:6]
        (4, 4, 1.0, 255.0, 139.0, 97.13650...)
    """
    flat = array.ravel(order="K")
    count, nans, infs = 0, 0, 0
    mean, squares = 0.0, 0.0
    low, high = math.inf, -math.inf
    with np.errstate(all="ignore"):
        for first in range(0, flat.size, _BLOCK):
            block = as_numbers(flat[first : first + _BLOCK])
            if flat.dtype.kind in "fc":
                is_finite = np.isfinite(block)
                if not is_finite.all():
                    missing = int(np.isnan(block).sum())
                    nans += missing
                    infs += block.size - int(is_finite.sum()) - missing
                    block = block[is_finite]
            if not block.size:
                continue
            # Means and squares of two parts as those of both: exact to rounding, however long the tensor is.
            block_mean = float(block.mean())
            difference, total = block_mean - mean, count + block.size
            squares += float(np.square(block - block_mean).sum())
            squares += difference * difference * count * block.size / total
            mean += difference * block.size / total
            count = total
            low, high = min(low, float(block.min())), max(high, float(block.max()))
    if not flat.size:
        return FrameStatistics(0, 0, None, None, None, None, None, None)
    shares = nans / flat.size, infs / flat.size
    if not count:
        return FrameStatistics(flat.size, 0, None, None, None, None, *shares)
    return FrameStatistics(flat.size, count, low, high, mean, math.sqrt(squares / count), *shares)


def as_numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Any values as float64; magnitudes of complex ones.

    Example:
        >>> as_numbers(np.array([3 + 4j])).tolist(), as_numbers(np.array([True])).tolist()
        ([5.0], [1.0])
    """
    if values.dtype.kind == "c":
        return np.abs(values.astype(np.complex128))
    return values.astype(np.float64)


def sample(array: NDArray[Any], most: int) -> NDArray[np.float64]:
    """At most so many finite values from all over a tensor; the same ones each time.

    Example:
        >>> sample(np.arange(10, dtype="uint8"), 4).tolist()
        [0.0, 3.0, 6.0, 9.0]
    """
    flat = array.ravel(order="K")
    step = max(1, math.ceil(flat.size / most))
    # A step that divides the width would see one column of a picture only.
    while step > 1 and any(math.gcd(step, side) > 1 for side in array.shape if side > 1):
        step += 1
    values = as_numbers(flat[::step])
    return values[np.isfinite(values)]


def dead_lines(array: NDArray[Any]) -> tuple[list[int], list[int]]:
    """Rows and columns of a picture in which all values are the same; none when most of them are.

    A picture is a tensor of two dimensions, or of three with 1, 3 or 4 channels in the last one.

    Example:
        >>> picture = np.arange(40).reshape(8, 5)
        >>> picture[2:4] = 7
        >>> dead_lines(picture)
        ([2, 3], [])
    """
    is_picture = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _CHANNELS)
    if not is_picture or min(array.shape[:2]) < 3:
        return [], []
    return _constant_lines(array), _constant_lines(array.swapaxes(0, 1))


def _constant_lines(array: NDArray[Any]) -> list[int]:
    first, middle, last = (array[:, at] for at in (0, array.shape[1] // 2, -1))
    same = (first == middle) & (first == last)
    # Few lines have three equal values: only those are looked at as a whole.
    maybe = np.flatnonzero(same.reshape(len(array), -1).all(axis=1))
    found = [int(at) for at in maybe if bool((array[at] == array[at, :1]).all())]
    # A picture that is empty for the most part has no lines that are dead; it is dark.
    return found if len(found) <= len(array) // 2 else []

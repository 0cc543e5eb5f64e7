"""The picture that the demo's camera takes: every pixel follows from the frame's number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DEAD_ROWS", "HEIGHT", "WIDTH", "draw", "is_right", "sketch"]

HEIGHT: Final = 1080
WIDTH: Final = 1920

# Rings around the centre. Bytes wrap round, so shifting their phase is one addition.
_ROWS, _COLUMNS = np.ogrid[:HEIGHT, :WIDTH]
_RINGS: Final = np.hypot(_ROWS - HEIGHT / 2, _COLUMNS - WIDTH / 2).astype(np.uint8)

DEAD_ROWS: Final = slice(600, 800)
"""The band that dies."""

_SHADES: Final = " .:-=+*#%@"


def _phase(seq: int) -> np.uint8:
    return np.uint8(seq * 5 % 256)


def draw(seq: int, out: NDArray[np.uint8], *, dead_from: int | None = None) -> None:
    """Draws picture `seq` into `out`.

    Args:
        seq: The frame's number.
        out: Where.
        dead_from: From this number on a band of the sensor is dead, and black.

    Example:
        >>> image = np.empty((HEIGHT, WIDTH), np.uint8)
        >>> draw(7, image)
        >>> is_right(7, image), is_right(8, image)
        (True, False)
    """
    np.add(_RINGS, _phase(seq), out=out)
    if dead_from is not None and seq >= dead_from:
        out[DEAD_ROWS] = 0


def is_right(seq: int, image: NDArray[np.uint8], *, dead_from: int | None = None) -> bool:
    """Is every single pixel that of picture `seq`?"""
    is_same = image - _phase(seq) == _RINGS
    if dead_from is not None and seq >= dead_from:
        is_same[DEAD_ROWS] = image[DEAD_ROWS] == 0
    return bool(is_same.all())


def sketch(image: NDArray[np.uint8], *, columns: int = 64, rows: int = 16) -> str:
    """The picture in letters, for terminals."""
    small = image[:: HEIGHT // rows, :: WIDTH // columns][:rows, :columns]
    shades = small.astype(int) * len(_SHADES) // 256
    return "\n".join("".join(_SHADES[shade] for shade in row) for row in shades)

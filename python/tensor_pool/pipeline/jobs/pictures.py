"""Tensors as small pictures, and many of them on one sheet.

Pillow draws, not matplotlib: workers import it in a tenth of the time, a picture's pixels stay what they are,
and sheets need nothing but tiles and lines of text. Plots of reports are SVG.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tensor_pool.pipeline.jobs.frame_statistics import as_numbers, sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Tile", "contact_sheet", "contrast_of", "refusal", "thumbnail"]

_CHANNELS: Final = (1, 3, 4)
_FINER: Final = 4
"""Pictures are thinned to so many times their size as thumbnails, then averaged."""
_BACK, _CARD, _INK, _SOFT, _BAD = "#14171a", "#1f2429", "#e8eaed", "#a2abb5", "#ff6b70"
_LINE: Final = (110, 168, 254)
_HOLE: Final = (198, 42, 47)
"""What is no number is drawn in this colour."""
_PAD: Final = 10


def refusal(shape: Sequence[int]) -> str | None:
    """Why a tensor of this shape can't be drawn; None when it can.

    Example:
        >>> refusal((480, 640, 3)) is None, refusal((5,)) is None
        (True, True)
        >>> refusal((2, 3, 4, 5))
        '4 dimensions can not be drawn'
    """
    if not len(shape):
        return "one value is no picture"
    if not math.prod(shape):
        return "it has no values"
    if len(shape) == 3 and shape[2] not in _CHANNELS and shape[0] not in _CHANNELS:
        return f"{shape[2]} channels can not be drawn"
    return f"{len(shape)} dimensions can not be drawn" if len(shape) > 3 else None


def contrast_of(array: NDArray[Any], low: float = 1.0, high: float = 99.0) -> tuple[float, float] | None:
    """The values that become black and white: percentiles of the finite ones; None when there are none.

    Example:
        >>> contrast_of(np.arange(101.0))
        (1.0, 99.0)
    """
    values = sample(array, 1 << 16)
    if not values.size:
        return None
    dark, bright = np.percentile(values, [low, high])
    return float(dark), float(bright)


def thumbnail(array: NDArray[Any], size: int, contrast: tuple[float, float]) -> bytes:
    """A tensor that can be drawn as PNG: a picture, or a line for one dimension.

    Args:
        array: The tensor; see `refusal`.
        size: The longer side, in pixels; smaller pictures stay as they are.
        contrast: What becomes black and white.

    Example:
        >>> thumbnail(np.eye(8), 64, (0.0, 1.0))[1:4]
        b'PNG'
    """
    image = _line(array, size, contrast) if array.ndim == 1 else _picture(array, size, contrast)
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def _picture(array: NDArray[Any], size: int, contrast: tuple[float, float]) -> Image.Image:
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        array = np.moveaxis(array, 0, 2)
    step = max(1, max(array.shape[:2]) // (size * _FINER))
    values = as_numbers(array[::step, ::step])
    low, high = contrast
    is_hole: Any = np.isnan(values)
    with np.errstate(all="ignore"):
        scaled = (values - low) / (high - low) if high > low else np.where(values > high, 1.0, 0.5)
        pixels = np.clip(np.nan_to_num(scaled, nan=0.0, posinf=1.0, neginf=0.0) * 255, 0, 255).astype(
            np.uint8
        )
    if pixels.ndim == 3:
        # The fourth channel is mostly opacity, and a picture that can't be seen tells nothing.
        pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3]
        is_hole = is_hole.any(axis=2)
    if is_hole.any():
        pixels = np.repeat(pixels[..., None], 3, axis=2) if pixels.ndim == 2 else pixels.copy()
        pixels[is_hole] = _HOLE
    image = Image.fromarray(np.ascontiguousarray(pixels))
    scale = size / max(image.size)
    if scale < 1:
        wide, high_ = (max(1, round(side * scale)) for side in image.size)
        image = image.resize((wide, high_), Image.Resampling.BOX)
    return image


def _line(array: NDArray[Any], size: int, contrast: tuple[float, float]) -> Image.Image:
    """One dimension: for each column of pixels a line from the smallest to the largest value."""
    low, high = contrast
    room = (high - low) * 0.1 or 1.0
    low, high = low - room, high + room
    tall = size * 3 // 4
    image = Image.new("RGB", (size, tall), _CARD)
    draw = ImageDraw.Draw(image)
    for across, part in enumerate(np.array_split(as_numbers(array), min(size, array.size))):
        finite = part[np.isfinite(part)]
        left = across * size // min(size, array.size)
        width = max(1, size // min(size, array.size))
        if not finite.size:
            draw.rectangle((left, 0, left + width - 1, tall), fill=_HOLE)
            continue
        top, bottom = (
            min(max((high - float(value)) / (high - low), 0.0), 1.0) * (tall - 2)
            for value in (finite.max(), finite.min())
        )
        draw.rectangle((left, top, left + width - 1, max(bottom, top + 1)), fill=_LINE)
    return image


class Tile(NamedTuple):
    """One place of a sheet."""

    png: bytes | None
    """None when there is no picture; `reason` says why."""
    labels: tuple[str, ...]
    reason: str = ""


def contact_sheet(title: str, subtitle: str, tiles: Sequence[Tile], *, size: int, columns: int = 6) -> bytes:
    """All tiles on one sheet, as PNG.

    Args:
        title: What it shows.
        subtitle: More of that, in smaller letters.
        tiles: In their order.
        size: The longer side of thumbnails.
        columns: How many are side by side.

    Example:
        >>> contact_sheet("camera", "", [Tile(None, ("#1",), "damaged")], size=80)[1:4]
        b'PNG'
    """
    pictures = [None if tile.png is None else Image.open(io.BytesIO(tile.png)) for tile in tiles]
    columns = max(1, min(columns, len(tiles)))
    tall = max((picture.height for picture in pictures if picture is not None), default=size // 2)
    lines = max((len(tile.labels) for tile in tiles), default=0)
    large, normal, small = (ImageFont.load_default(points) for points in (20, 14, 12))
    head, cell = 62, (size + _PAD, tall + 6 + lines * 16 + _PAD)
    rows = math.ceil(len(tiles) / columns)
    width = max(columns * cell[0] + _PAD, 360)
    sheet = Image.new("RGB", (width, head + max(rows, 1) * cell[1]), _BACK)
    draw = ImageDraw.Draw(sheet)
    draw.text((_PAD, 10), _fitting(draw, title, large, width - 2 * _PAD), _INK, large)
    draw.text((_PAD, 36), _fitting(draw, subtitle, normal, width - 2 * _PAD), _SOFT, normal)
    for number, (tile, picture) in enumerate(zip(tiles, pictures, strict=True)):
        left, top = _PAD + number % columns * cell[0], head + number // columns * cell[1]
        draw.rectangle((left, top, left + size - 1, top + tall - 1), fill=_CARD)
        if picture is None:
            for line, text in enumerate(_wrapped(draw, tile.reason, small, size - 12)):
                draw.text((left + 6, top + 6 + 15 * line), text, _BAD, small)
        else:
            sheet.paste(picture, (left + (size - picture.width) // 2, top + (tall - picture.height) // 2))
        for line, text in enumerate(tile.labels):
            draw.text(
                (left, top + tall + 4 + 16 * line),
                _fitting(draw, text, small, size),
                _SOFT if line else _INK,
                small,
            )
    content = io.BytesIO()
    sheet.save(content, "PNG")
    return content.getvalue()


def _fitting(draw: ImageDraw.ImageDraw, text: str, font: Any, width: int) -> str:
    """A text on one line that is not wider than this."""
    text = " ".join(text.split())
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(f"{text}…", font) > width:
        text = text[:-1]
    return f"{text}…"


def _wrapped(draw: ImageDraw.ImageDraw, text: str, font: Any, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and draw.textlength(longer, font) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines[:4]

"""The job *thumbnails*: some frames of each stream as small pictures, and all of them on one sheet.

Workers draw, so only small pictures travel; the sheet is put together where the job was started.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from pyspark.sql import functions as f

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.jobs.columns import in_order, is_frame, iso, kept, require, stream_name
from tensor_pool.pipeline.jobs.pictures import Tile, contact_sheet, contrast_of, refusal, thumbnail
from tensor_pool.pipeline.jobs.report.files import output_directory
from tensor_pool.pipeline.record.catalogue import stream_directory
from tensor_pool.pipeline.spark.functions import map_tensors

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from tensor_pool.pipeline.jobs.report.model import Report

__all__ = [
    "PICTURE_COLUMNS",
    "StreamThumbnails",
    "Thumbnail",
    "ThumbnailsResult",
    "draw",
    "picture_path",
    "thumbnails",
    "write_picture",
]

_NEEDED: Final = ("stream_id", "stream_name", "epoch", "seq", "event_time", "status", "dtype", "shape")
PICTURE_COLUMNS: Final = "png binary, reason string"
"""What `draw` returns."""
_LARGEST: Final = 1_024
_MOST: Final = 1_000


class Thumbnail(msgspec.Struct, frozen=True, kw_only=True):
    """One frame."""

    epoch: int
    seq: int
    time: str | None
    file: str | None
    """Its picture; None when there is none."""
    reason: str = ""
    """Why there is none."""


class StreamThumbnails(msgspec.Struct, kw_only=True):
    """Some frames of one stream."""

    stream: str
    frames: int = 0
    """Of the whole stream."""
    sheet: str | None = None
    """The contact sheet; None when there is no frame."""
    drawn: int = 0
    refused: int = 0
    thumbnails: list[Thumbnail] = []


class ThumbnailsResult(msgspec.Struct, kw_only=True):
    """Pictures of all streams."""

    streams: list[StreamThumbnails]

    @property
    def has_problems(self) -> bool:
        """A frame that can't be drawn is no problem; what is damaged, the job *quality* tells."""
        return False

    def report(self) -> Report:
        """What to show of it."""
        from tensor_pool.pipeline.jobs.thumbnails_report import thumbnails_report  # noqa: PLC0415 - needs this file

        return thumbnails_report(self)


def thumbnails(
    df: DataFrame,
    out: str | os.PathLike[str],
    *,
    count: int = 24,
    size: int = 160,
    contrast: Literal["stream", "frame"] = "stream",
    streams: Sequence[str] = (),
) -> ThumbnailsResult:
    """Draws evenly spaced frames of each stream, and a contact sheet.

    Pictures are tensors with two dimensions, or three with 1, 3 or 4 channels; one dimension becomes a line.
    Others are named on the sheet, with the reason.

    Args:
        df: Rows of the format ``tensorpool``.
        out: A directory for ``contact-STREAM.png`` and ``thumbnails/STREAM/EPOCH-SEQ.png``.
        count: How many frames of each stream.
        size: The longer side, in pixels.
        contrast: Black and white are the 1st and the 99th percentile of values: of all chosen frames of the
            ``stream``, so that a change of brightness can be seen, or of each ``frame``.
        streams: Streams that ought to be there.

    Raises:
        ConfigError: A number makes no sense, or the directory can't be written to.

    Example:
        >>> thumbnails(df, "report").streams[0].sheet  # doctest: +SKIP
        'report/contact-camera-1.png'
    """
    require(df, *_NEEDED)
    if not 1 <= count <= _MOST or not 16 <= size <= _LARGEST:
        raise ConfigError(
            f"count={count}, size={size}", hint=f"1 to {_MOST} pictures of 16 to {_LARGEST} pixels"
        )
    directory = output_directory(out)
    found = {name: StreamThumbnails(stream=name) for name in streams}
    tiles: dict[str, list[Tile]] = {}
    with kept(_chosen(df, count)) as rows:
        ranges = _contrasts(rows) if contrast == "stream" else {}
        drawn = map_tensors(
            rows,
            partial(draw, size, ranges),
            PICTURE_COLUMNS,
            keep=("stream", "epoch", "seq", "event_time", "status", "dtype", "shape", "place", "total"),
            check=True,
        )
        for row in drawn.orderBy("stream", "place").collect():
            stream = found.setdefault(row["stream"], StreamThumbnails(stream=row["stream"]))
            stream.frames = row["total"]
            tiles.setdefault(row["stream"], []).append(_save(directory, stream, row))
    for name, of_stream in tiles.items():
        stream = found[name]
        sheet = stream_directory(directory, f"contact-{name}.png")
        subtitle = f"{len(of_stream)} of {stream.frames:,} frames, contrast by {contrast}"
        write_picture(sheet, contact_sheet(name, subtitle, of_stream, size=size))
        stream.sheet = str(sheet)
    return ThumbnailsResult(streams=[found[name] for name in sorted(found)])


def _chosen(df: DataFrame, count: int) -> DataFrame:
    """Evenly spaced frames of each stream, the first and the last one among them."""
    frames = in_order(df.filter(is_frame()).withColumn("stream", stream_name()))
    place, total = f.col("place"), f.col("total")
    if count == 1:
        return frames.filter(place == 0)
    # Frame p is chosen when it is the k-th of `count` evenly spaced ones for some k.
    last = f.greatest(f.lit(1), total - 1)
    nearest = f.round(place * (count - 1) / last)
    return frames.filter((total <= count) | (f.round(nearest * last / (count - 1)) == place))


def _contrasts(rows: DataFrame) -> dict[str, tuple[float, float]]:
    """What is black and white in a stream."""
    table = map_tensors(rows, _bounds, "low double, high double", keep=("stream",))
    found = table.groupBy("stream").agg(f.min("low").alias("low"), f.max("high").alias("high")).collect()
    return {row["stream"]: (row["low"], row["high"]) for row in found if row["low"] is not None}


def _bounds(array: NDArray[Any]) -> tuple[float | None, float | None]:
    return contrast_of(array) or (None, None)


def draw(
    size: int, ranges: Mapping[str, tuple[float, float]], array: NDArray[Any], row: Mapping[str, Any]
) -> tuple[bytes | None, str]:
    """What workers do with a frame: its picture, or why there is none.

    Args:
        size: The longer side, in pixels.
        ranges: What is black and white, by stream; by the frame itself where a stream is not in it.
        array: The tensor.
        row: Its row, with ``stream``.
    """
    reason = refusal(array.shape)
    if reason is not None:
        return None, reason
    contrast = ranges.get(row["stream"]) or contrast_of(array)
    return (None, "no value is finite") if contrast is None else (thumbnail(array, size, contrast), "")


def _save(directory: Path, stream: StreamThumbnails, row: Any) -> Tile:
    """Writes a picture; what the sheet shows of it."""
    time = iso(row["event_time"])
    reason = row["reason"] if row["png"] is not None or row["reason"] else row["status"]
    path = None
    if row["png"] is None:
        stream.refused += 1
    else:
        stream.drawn += 1
        path = picture_path(directory, stream.stream, row["epoch"], row["seq"])
        write_picture(path, bytes(row["png"]))
    stream.thumbnails.append(
        Thumbnail(
            epoch=row["epoch"],
            seq=row["seq"],
            time=time,
            file=None if path is None else str(path),
            reason=reason,
        )
    )
    kind = f"{row['dtype']} {'x'.join(map(str, row['shape'])) or 'one value'}"
    clock = "time not known" if time is None else time.replace("T", " ").rstrip("Z")[:23]
    return Tile(None if path is None else bytes(row["png"]), (f"#{row['seq']}", clock, kind), reason)


def picture_path(directory: Path, stream: str, epoch: int, seq: int) -> Path:
    """Where the picture of a frame is written."""
    return stream_directory(directory / "thumbnails", stream) / f"{epoch}-{seq:08d}.png"


def write_picture(path: Path, content: bytes) -> None:
    """Writes a picture, and makes the directory that it is in.

    Raises:
        ConfigError: It can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as e:
        raise ConfigError(f"can't write {path}: {e.strerror}", hint="choose another directory") from None

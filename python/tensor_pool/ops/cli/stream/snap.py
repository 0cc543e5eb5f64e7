"""``tpool snap``."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.errors import FrameOverwrittenError, TensorPoolError
from tensor_pool.ops import pictures
from tensor_pool.ops.cli.asking import timeout_option
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_json, print_record, print_rows
from tensor_pool.ops.cli.stream.live import nobody_produces, observer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.ops.cli.stream.live import Observed
    from tensor_pool.pool.frame import FrameInfo

__all__ = ["numbered", "snap"]

_MODE: Final = 0o666
_COLUMNS: Final = ("file", "seq", "dtype", "shape", "bytes")


@click.command()
@click.argument("stream")
@click.argument("out", type=click.Path(dir_okay=False, writable=True))
@click.option(
    "--wait",
    "wait_s",
    type=FiniteFloat(0, 1e9),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each frame.",
)
@click.option(
    "--count",
    type=WholeNumber(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Save so many frames, the next one each time, as OUT with numbers: out-0001.png.",
)
@click.option("--min", "low", type=FiniteFloat(), metavar="VALUE", help="The value that becomes black.")
@click.option("--max", "high", type=FiniteFloat(), metavar="VALUE", help="The value that becomes white.")
@click.option(
    "--percentile",
    type=FiniteFloat(0, 50, max_open=True),
    metavar="P",
    help="Let P percent of the values be darker than black, and P percent brighter than white.",
)
@timeout_option
@format_option()
@config_options
def snap(
    config: Config,
    output_format: OutputFormat,
    *,
    stream: str,
    out: str,
    wait_s: float,
    count: int,
    low: float | None,
    high: float | None,
    percentile: float | None,
    timeout_s: float,
) -> None:
    """Save the newest frame of STREAM (a name or an id) to OUT, as the file's ending says.

    .npy holds a frame exactly. .png and .pgm hold uint8 and uint16 exactly (.png also height x width x 3 or 4
    of uint8) and other values scaled from the smallest to the largest, or as --min, --max and --percentile
    say. The file appears as a whole or not at all.

    \b
    Examples:
      tpool snap camera-1 now.png
      tpool snap camera-1 dark.npy --count 10
      tpool snap depth depth.png --percentile 1
    """  # noqa: D301 - click's mark for text that stays as it is
    path = Path(out)
    file_format = _file_format(path)
    if low is not None and high is not None and low >= high:
        raise click.UsageError(f"--min {low:g} is not below --max {high:g}")
    scale = pictures.Scale(low=low, high=high, percentile=percentile)
    saved: list[dict[str, Any]] = []
    with observer(config, stream, timeout_s=timeout_s) as observed:
        for number in range(1, count + 1):
            info, values = _next_frame(observed, wait_s)
            place = path if count == 1 else numbered(path, number, count)
            data = pictures.encode(values, file_format, scale)
            _write_whole(place, data)
            row = {
                "file": str(place),
                "stream_id": info.stream_id,
                "seq": info.seq,
                "epoch": info.epoch,
                "timestamp_ns": info.timestamp_ns,
                "dtype": info.dtype,
                "shape": info.shape,
                "bytes": len(data),
            }
            if output_format == "jsonl":
                print_record(row, "jsonl")
            else:
                saved.append(row)
    if output_format == "json":
        print_json(saved)
    elif output_format == "table":
        print_rows(({**row, "shape": "x".join(map(str, row["shape"]))} for row in saved), _COLUMNS, "table")


def numbered(path: Path, number: int, count: int) -> Path:
    """The name of one of several files, with enough digits that they sort.

    Example:
        >>> numbered(Path("out.png"), 7, 10).name
        'out-0007.png'
    """
    return path.with_name(f"{path.stem}-{number:0{max(4, len(str(count)))}}{path.suffix}")


def _file_format(path: Path) -> str:
    file_format = path.suffix.lower().removeprefix(".")
    if file_format not in pictures.FORMATS:
        endings = ", ".join(f".{name}" for name in pictures.FORMATS)
        raise click.UsageError(f"{path.name} does not end with one of {endings}")
    return file_format


def _next_frame(observed: Observed, wait_s: float) -> tuple[FrameInfo, NDArray[Any]]:
    """A whole copy of the next frame; one that is overwritten meanwhile makes room for the newest."""
    consumer = observed.consumer
    deadline = time.monotonic() + wait_s
    frame = consumer.poll(timeout=wait_s)
    while frame is not None:
        try:
            return frame.info, frame.copy()
        except FrameOverwrittenError:
            frame = consumer.latest() or consumer.poll(timeout=max(0.0, deadline - time.monotonic()))
    if not observed.is_produced():
        raise nobody_produces(observed, hint="start its producer, or wait longer with --wait")
    raise TensorPoolError(
        f"no frame of {observed.label} came within {wait_s:g} s",
        where=observed.where,
        hint="wait longer with --wait",
    )


def _write_whole(path: Path, data: bytes) -> None:
    """Writes a file beside its place and moves it there, so that nobody ever sees half of it."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), _MODE & ~_umask())
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as e:
        raise TensorPoolError(f"can't write {path}: {e.strerror}") from e


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

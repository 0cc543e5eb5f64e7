"""``tpool export``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.ops.cli.recording.selecting import selection_options, tell_damage

if TYPE_CHECKING:
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.pipeline.record.export import ExportedStream

__all__ = ["export"]

_COLUMNS: Final = ("stream", "file", "frames", "nbytes", "missing", "damaged")
_TELL_S: Final = 1.0
_MIB: Final = 1 << 20


@click.command()
@click.argument("file_format", metavar="FORMAT", type=click.Choice(["parquet", "zarr", "npy", "arrow"]))
@click.argument("recording", metavar="DIR")
@click.argument("out", type=click.Path())
@selection_options
@click.option("--stack", is_flag=True, help="For npy: one array of all frames, and not one file a frame.")
@click.option(
    "--compression",
    type=click.Choice(["none", "zstd"]),
    default="none",
    show_default=True,
    help="Of parquet, zarr and arrow.",
)
@click.option("--overwrite", is_flag=True, help="Replace what an earlier export made.")
@format_option()
@click.pass_context
def export(
    ctx: click.Context,
    /,
    *,
    output_format: OutputFormat,
    file_format: str,
    recording: str,
    out: str,
    **options: Any,
) -> None:
    """Write a recording (a directory, or a URI such as s3://bucket/run) into the new directory OUT.

    FORMAT is parquet (a file a stream, a row a frame), arrow (a file a stream, frames as tensors), zarr (a
    group a stream, a chunk a frame) or npy (a directory a stream, a file a frame). OUT appears when it is
    whole. Missing frames are told in it; damaged ones are named and left out. Exit codes: 0 when every frame
    was written, 1 when some were damaged.

    \b
    Examples:
      tpool export parquet recordings tables
      tpool export npy recordings arrays --stream camera-1 --stack
      tpool export zarr s3://bucket/run local.zarr --from 10 --to 20
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.pipeline.record.export import export as write  # noqa: PLC0415 - help needs none of it

    done = write(recording, file_format, out, on_progress=_Progress(), on_damage=tell_damage, **options)
    print_rows((_row(stream) for stream in done), _COLUMNS, output_format)
    is_whole = not any(stream.damaged for stream in done)
    ctx.exit(exit_codes.OK if is_whole else exit_codes.PROBLEMS)


class _Progress:
    """Tells once a second how far it is."""

    def __init__(self) -> None:
        self._told = time.monotonic()
        self._before = 0

    def __call__(self, done: list[ExportedStream]) -> None:
        now = time.monotonic()
        if now - self._told < _TELL_S:
            return
        frames, nbytes = sum(stream.frames for stream in done), sum(stream.nbytes for stream in done)
        click.echo(
            f"{frames:,} of {sum(stream.expected for stream in done):,} frames, {nbytes / _MIB:,.0f} MiB, "
            f"{(nbytes - self._before) / _MIB / (now - self._told):,.1f} MiB/s",
            err=True,
        )
        self._told, self._before = now, nbytes


def _row(done: ExportedStream) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(done).items() if name in _COLUMNS}

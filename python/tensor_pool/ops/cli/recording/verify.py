"""``tpool verify`` and ``tpool recordings``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.errors import ConfigError, RegionError
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import format_option
from tensor_pool.ops.cli.output import print_json, print_record, print_rows
from tensor_pool.ops.cli.recording.places import RECORDING
from tensor_pool.ops.cli.recording.push import push
from tensor_pool.ops.doctor.finding import counted

if TYPE_CHECKING:
    from pathlib import Path

    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.pipeline.record.catalogue import Catalogue, SegmentInfo
    from tensor_pool.pipeline.record.place import Place

__all__ = ["recordings", "verify"]

_FLAWS: Final = ("stream", "file", "what", "repaired")
_STREAMS: Final = ("stream", "frames", "lost", "nbytes", "segments", "seconds", "host")
_SEGMENTS: Final = ("file", "frames", "lost", "nbytes", "first_epoch", "first_seq", "last_seq", "seconds")


@click.command()
@click.argument("recording", type=RECORDING)
@click.option("--repair", is_flag=True, help="Seal what a crash left open, and write catalogues anew.")
@format_option()
@click.pass_context
def verify(ctx: click.Context, /, *, recording: Place, repair: bool, output_format: OutputFormat) -> None:
    """Read every byte of a RECORDING (a directory or a URI) and check it.

    Exit codes: 0 when all is well, or was repaired; 1 when there are flaws. Frames that the recording itself
    says are missing are no flaws. One that is elsewhere is read segment by segment, and never changed.

    \b
    Examples:
      tpool verify recordings
      tpool verify recordings --repair
      tpool verify s3://bucket/run-7?region=eu-west-1
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.pipeline.record.verify import verify as check  # noqa: PLC0415 - help needs none of it
    from tensor_pool.pipeline.record.verify_elsewhere import verify_elsewhere  # noqa: PLC0415

    def tell(segment: Path) -> None:
        click.echo(f"reading {segment.parent.name}/{segment.name}", err=True)

    if recording.local is not None:
        checked = check(recording.local, repair=repair, on_segment=tell)
    elif repair:
        raise ConfigError(
            f"{recording} can't be repaired where it is",
            hint="repair the recording that it was made from, and `tpool recordings push` it again",
        )
    else:
        checked = verify_elsewhere(recording, on_segment=tell)
    if output_format == "table":
        print_rows((msgspec.structs.asdict(flaw) for flaw in checked.flaws), _FLAWS, "table")
        click.echo(
            f"{counted(checked.streams, 'stream')}, {counted(checked.segments, 'segment')}, "
            f"{checked.frames:,} frames, "
            f"{checked.lost:,} told to be missing, {counted(len(checked.flaws), 'flaw')}"
        )
    else:
        print_record(msgspec.to_builtins(checked), output_format)
    is_well = all(flaw.repaired for flaw in checked.flaws)
    ctx.exit(exit_codes.OK if is_well else exit_codes.PROBLEMS)


@click.group()
def recordings() -> None:
    """List what recordings hold, and copy them."""


recordings.add_command(push)


@recordings.command()
@click.argument("recording", type=RECORDING)
@format_option()
def ls(recording: Place, output_format: OutputFormat) -> None:
    """List the streams of a RECORDING (a directory or a URI)."""
    print_rows((_stream(name, found) for name, found in _catalogues(recording)), _STREAMS, output_format)


@recordings.command()
@click.argument("recording", type=RECORDING)
@click.argument("stream", required=False)
@format_option()
def info(recording: Place, stream: str | None, output_format: OutputFormat) -> None:
    """Tell what is in each segment of a RECORDING, or of one STREAM of it."""
    found = [(name, catalogue) for name, catalogue in _catalogues(recording) if stream in (None, name)]
    if not found:
        raise RegionError(
            f"there is no stream {stream} in {recording}", hint="`tpool recordings ls` lists them"
        )
    rows = [
        {"stream": name, **msgspec.structs.asdict(segment), "seconds": _seconds(segment, segment)}
        for name, catalogue in found
        for segment in catalogue.segments
    ]
    if output_format == "json":
        print_json(rows)
    else:
        print_rows(rows, ("stream", *_SEGMENTS), output_format)


def _catalogues(recording: Place) -> list[tuple[str, Catalogue]]:
    from tensor_pool.pipeline.record.recording import Recording  # noqa: PLC0415

    return [(name, stream.catalogue) for name, stream in Recording(recording).items()]


def _stream(name: str, catalogue: Catalogue) -> dict[str, Any]:
    segments = catalogue.segments
    return {
        "stream": name,
        "frames": catalogue.frames,
        "lost": sum(segment.lost for segment in segments),
        "nbytes": catalogue.nbytes,
        "segments": len(segments),
        "seconds": _seconds(segments[0], segments[-1]) if segments else None,
        "host": catalogue.host,
    }


def _seconds(first: SegmentInfo, last: SegmentInfo) -> float:
    return round((last.last_recorded_ns - first.first_recorded_ns) / 1e9, 3)

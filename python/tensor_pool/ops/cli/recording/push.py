"""``tpool recordings push``, and what ``tpool record --upload`` says."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.ops.cli.recording.places import STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.pipeline.record.catalogue import SegmentInfo
    from tensor_pool.pipeline.record.commanded import CommandedRecorder
    from tensor_pool.pipeline.record.place import Place
    from tensor_pool.pipeline.record.uploader import Uploader
    from tensor_pool.stop_signals import StopSignals

__all__ = ["finish_upload", "push", "tell_upload", "upload_options", "uploading"]

_COLUMNS: Final = ("stream", "segments", "nbytes", "present", "missed", "removed")
_MIB: Final = 1 << 20
_TELL_S: Final = 1.0


@click.command()
@click.argument("recording", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("to", type=STORE, metavar="URI")
@click.option("--remove-uploaded", is_flag=True, help="Remove segments here that are there.")
@format_option()
@click.pass_context
def push(
    ctx: click.Context, /, *, recording: Path, to: Place, remove_uploaded: bool, output_format: OutputFormat
) -> None:
    """Copy what is sealed of a RECORDING (a directory) to a URI, or to another directory.

    What is there already is not sent again, so an interrupted copy goes on where it was. The place may hold
    more than is here. Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), never
    from the URI. Exit codes: 0 when everything is there, 1 when it is not.

    \b
    Examples:
      tpool recordings push recordings s3://bucket/run-7?region=eu-west-1
      tpool recordings push recordings s3://bucket/run-7?endpoint_override=store:9000&scheme=http
      tpool recordings push recordings /mnt/archive/run-7 --remove-uploaded
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.pipeline.record import upload  # noqa: PLC0415 - help needs none of it

    sent, told = 0, time.monotonic()

    def on_segment(stream: str, segment: SegmentInfo) -> None:
        click.echo(f"sending {stream}/{segment.file}, {segment.nbytes / _MIB:,.1f} MiB", err=True)

    def on_bytes(nbytes: int) -> None:
        nonlocal sent, told
        sent += nbytes
        if time.monotonic() - told >= _TELL_S:
            told = time.monotonic()
            click.echo(f"{sent / _MIB:,.0f} MiB sent", err=True)

    done = upload.push(recording, to, remove=remove_uploaded, on_segment=on_segment, on_bytes=on_bytes)
    for directory in upload.streams_of(recording):
        for path in sorted(directory.glob("*.arrow.open")):
            click.echo(f"{directory.name}/{path.name} is not sealed, and stays here", err=True)
    print_rows((msgspec.structs.asdict(stream) for stream in done), _COLUMNS, output_format)
    ctx.exit(exit_codes.PROBLEMS if any(stream.missed for stream in done) else exit_codes.OK)


def upload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What ``tpool record`` takes to bring segments elsewhere while it records."""
    for option in (
        click.option(
            "--upload-wait",
            type=FiniteFloat(0, 1e6),
            default=60.0,
            show_default=True,
            metavar="S",
            help="At the end, wait so long until everything is there.",
        ),
        click.option("--remove-uploaded", is_flag=True, help="Remove segments here that are there."),
        click.option(
            "--upload", type=STORE, metavar="URI", help="Copy sealed segments there in the background."
        ),
    ):
        command = option(command)
    return command


@contextlib.contextmanager
def uploading(
    out: str, options: dict[str, Any], recorders: list[CommandedRecorder]
) -> Iterator[Uploader | None]:
    """Follows a recording while it is made, if that is asked for.

    Args:
        out: Its directory.
        options: Of the command.
        recorders: Those that are told what is safe elsewhere; may be filled later.
    """
    to, remove = options["upload"], options["remove_uploaded"]
    if to is None:
        if remove:
            raise click.UsageError("--remove-uploaded needs --upload URI.")
        yield None
        return
    from tensor_pool.pipeline.record.uploader import Uploader  # noqa: PLC0415

    def on_safe(directory: Path, number: int) -> None:
        for recorder in recorders:
            recorder.let_go_through(directory, number)

    with Uploader(Path(out), to, on_safe=on_safe if remove else lambda *_: None) as uploader:
        yield uploader


def tell_upload(uploader: Uploader | None) -> str:
    """The upload's part of a line of progress."""
    if uploader is None:
        return ""
    done = uploader.progress
    return (
        f"; {done.segments:,} segments uploaded, {done.waiting:,} waiting"
        + (f", {done.missed:,} missed" if done.missed else "")
        + (f" ({done.retries:,} retries: {done.error})" if done.error else "")
    )


def finish_upload(uploader: Uploader, out: str, *, wait_s: float, remove: bool, stop: StopSignals) -> bool:
    """Waits for the rest, and says what is not there; whether everything is."""
    stop.received()  # the signal that ended the recording; another one ends the waiting
    deadline = time.monotonic() + wait_s
    told = 0.0
    while not uploader.finish(timeout_s=0.1):
        now = time.monotonic()
        if now >= deadline or stop.wait(timeout_s=0):
            break
        if now - told >= _TELL_S:
            told = now
            click.echo(f"waiting for the upload{tell_upload(uploader)}", err=True)
    else:
        done = uploader.progress
        if done.missed:
            click.echo(f"{done.missed} segments were removed here before they could be uploaded", err=True)
        if remove:
            uploader.remove_here()
        return not done.missed
    done = uploader.progress
    click.echo(
        f"{done.waiting} segments ({done.waiting_bytes / _MIB:,.0f} MiB) are not uploaded: "
        f"{done.error or 'it takes longer than --upload-wait'}",
        err=True,
    )
    if done.hint:
        click.echo(f"  try: {done.hint}", err=True)
    click.echo(f"  they are in {out}; `tpool recordings push {out} URI` sends them", err=True)
    return False

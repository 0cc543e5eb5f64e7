"""``tpool record``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.ops.cli.recording.push import finish_upload, tell_upload, upload_options, uploading
from tensor_pool.stop_signals import StopSignals

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.pipeline.record.commanded import CommandedRecorder
    from tensor_pool.pipeline.record.options import StreamProgress
    from tensor_pool.pipeline.record.uploader import Uploader

__all__ = ["record"]

_COLUMNS: Final = ("stream", "frames", "nbytes", "lost", "dropped", "segments", "durable_seq", "error")
_LOOK_S: Final = 0.1
_TELL_S: Final = 1.0
_MIB: Final = 1 << 20


@click.command()
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False), help="The directory of the recording."
)
@click.option("--frames", type=WholeNumber(min=1), metavar="N", help="End when each stream has so many.")
@click.option("--seconds", type=FiniteFloat(0.1, 1e9), metavar="S", help="End after so long.")
@click.option(
    "--sync",
    type=click.Choice(["frame", "interval", "seal"]),
    default="interval",
    show_default=True,
    help="When frames survive a crash of the machine: at once, after a second or 64 MiB, or when sealed.",
)
@click.option(
    "--segment-mib",
    type=WholeNumber(1, 2047),
    default=128,
    show_default=True,
    metavar="MIB",
    help="Seal a segment that is so long.",
)
@click.option("--keep-mib", type=WholeNumber(min=1), metavar="MIB", help="Remove the oldest segments beyond.")
@click.option(
    "--backlog-mib",
    type=WholeNumber(min=1),
    metavar="MIB",
    help="What of a stream may wait for the disk; by default an eighth of the free memory, for all together.",
)
@click.option("--keep-hours", type=FiniteFloat(1e-3, 1e6), metavar="H", help="Remove older segments.")
@click.option(
    "--oldest", is_flag=True, help="Begin with the oldest frame that is still there, not the newest."
)
@click.option(
    "--standby", is_flag=True, help="Wait until `tpool send recorder record.enable=true` begins it."
)
@click.option("--instance", default="", metavar="NAME", help="The service is recorder:NAME then.")
@upload_options
@format_option()
@config_options
@click.pass_context
def record(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    streams: tuple[str, ...],
    out: str,
    frames: int | None,
    seconds: float | None,
    standby: bool,
    instance: str,
    **options: Any,
) -> None:
    """Record STREAMs (names or ids) into a directory until Ctrl-C, --frames or --seconds.

    Streams that are not there yet are waited for. A directory that has a recording is continued. Exit codes:
    0 when every frame was written, 1 when some were lost or dropped or none came of a stream; `tpool verify`
    says more. With --upload, sealed segments are copied in the background: a store that is slow or gone never
    holds the recording up, and exit code 1 also tells that not everything is there at the end.

    It is the service recorder: `tpool send recorder record.enable=false` ends the recording for now, and
    true goes on with it. `tpool services recorder` says how far it is.

    \b
    Examples:
      tpool record camera-1 --out recordings
      tpool record camera-1 camera-2 --out recordings --seconds 60 --sync frame
      tpool record 10000 --out ring --keep-mib 10240
      tpool record camera-1 --out recordings --upload s3://bucket/run-7 --remove-uploaded
      tpool record camera-1 --out recordings --standby --instance lab
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.control.config import ControlSection  # noqa: PLC0415 - help needs none of it
    from tensor_pool.host.connection import connect  # noqa: PLC0415
    from tensor_pool.pipeline.record.commanded import CommandedRecorder  # noqa: PLC0415
    from tensor_pool.pipeline.record.options import RecorderOptions  # noqa: PLC0415

    if standby and not config[ControlSection].enabled:
        raise click.UsageError("--standby waits for a command, and control.enabled = false lets none in.")
    keep_mib, keep_hours, backlog_mib = (options[name] for name in ("keep_mib", "keep_hours", "backlog_mib"))
    how = RecorderOptions(
        sync=options["sync"],
        segment_bytes=options["segment_mib"] * _MIB,
        keep_bytes=None if keep_mib is None else keep_mib * _MIB,
        keep_s=None if keep_hours is None else keep_hours * 3600,
        max_backlog_bytes=None if backlog_mib is None else backlog_mib * _MIB,
        start="oldest" if options["oldest"] else "latest",
    )
    chosen = [int(stream) if stream.isdecimal() else stream for stream in streams]
    recorders: list[CommandedRecorder] = []
    is_uploaded = True
    with StopSignals() as stop, uploading(out, options, recorders) as uploader:
        with connect(config=config) as pool:
            with CommandedRecorder(
                pool, chosen, out, how, config=config, instance=instance, enabled=not standby
            ) as recorder:
                recorders.append(recorder)
                _wait(recorder, stop, uploader, frames=frames, seconds=seconds)
            found = recorder.progress
        if uploader is not None:
            wait_s, remove = options["upload_wait"], options["remove_uploaded"]
            is_uploaded = finish_upload(uploader, out, wait_s=wait_s, remove=remove, stop=stop)
    print_rows(({"stream": stream, **_row(done)} for stream, done in found.items()), _COLUMNS, output_format)
    silent = [stream for stream, done in found.items() if not done.frames]
    if silent:
        click.echo(
            f"no frame came of {', '.join(map(str, silent))}; `tpool streams` lists what is there", err=True
        )
    is_whole = not silent and not any(done.lost or done.dropped or done.error for done in found.values())
    ctx.exit(exit_codes.OK if is_whole and is_uploaded else exit_codes.PROBLEMS)


def _wait(
    recorder: CommandedRecorder,
    stop: StopSignals,
    uploader: Uploader | None,
    *,
    frames: int | None,
    seconds: float | None,
) -> None:
    """Tells once a second how far it is, until it has enough or is told to stop."""
    started = told = time.monotonic()
    before = 0
    while recorder.is_running and not stop.wait(timeout_s=_LOOK_S):
        now, progress = time.monotonic(), recorder.progress.values()
        if seconds is not None and now - started >= seconds:
            return
        if frames is not None and all(done.frames >= frames for done in progress):
            return
        if now - told >= _TELL_S:
            total = sum(done.nbytes for done in progress)
            _tell(list(progress), (total - before) / (now - told), tell_upload(uploader))
            told, before = now, total


def _tell(progress: list[StreamProgress], bytes_per_s: float, upload: str) -> None:
    errors = {done.error for done in progress if done.error}
    click.echo(
        f"{sum(done.frames for done in progress):,} frames, "
        f"{sum(done.nbytes for done in progress) / _MIB:,.0f} MiB, {bytes_per_s / _MIB:,.1f} MiB/s, "
        f"{sum(done.lost for done in progress):,} lost, {sum(done.dropped for done in progress):,} dropped, "
        f"{sum(done.backlog_bytes for done in progress) / _MIB:,.0f} MiB waiting"
        + "".join(f"; {error}" for error in sorted(errors))
        + upload,
        err=True,
    )


def _row(done: StreamProgress) -> dict[str, Any]:
    return {name: getattr(done, name) for name in _COLUMNS[1:]}

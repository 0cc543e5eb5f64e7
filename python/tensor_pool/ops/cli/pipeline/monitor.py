"""``tpool pipeline monitor``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.errors import ConfigError
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.stop_signals import StopSignals

if TYPE_CHECKING:
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.pipeline.jobs.monitor_job import Monitor
    from tensor_pool.pipeline.jobs.monitor_windows import MonitorWindow

__all__ = ["monitor"]

_COLUMNS: Final = ("stream", "start", "frames", "missing", "rate_hz", "age_mean_s", "age_max_s", "epoch")
_LOOK_S: Final = 0.2


@click.command()
@click.argument("recording", required=False)
@click.option("--live", is_flag=True, help="Watch streams of a pool on this host, not a recording.")
@click.option("--stream", "streams", multiple=True, metavar="NAME", help="Only this stream; repeatable.")
@click.option("--follow", is_flag=True, help="Go on when all of a recording is read; live streams always do.")
@click.option("--seconds", type=FiniteFloat(0.1, 1e9), metavar="S", help="End after so long.")
@click.option(
    "--window",
    type=FiniteFloat(0.001, 86_400),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Its length.",
)
@click.option("--min-rate", type=FiniteFloat(0), metavar="HZ", help="Alarm when frames come slower.")
@click.option("--max-age", type=FiniteFloat(0), metavar="S", help="Alarm when a frame is older.")
@click.option("--max-missing", type=WholeNumber(min=0), default=0, show_default=True, help="In a window.")
@click.option(
    "--max-silence", type=FiniteFloat(0.001), metavar="S", help="Alarm when nothing comes for longer."
)
@click.option("--out", type=click.Path(file_okay=False), help="Add to windows.jsonl and alarms.jsonl there.")
@click.option("--option", "more", multiple=True, metavar="KEY=VALUE", help="Of the format tensorpool.")
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@format_option()
@click.pass_context
def monitor(
    ctx: click.Context,
    /,
    *,
    recording: str | None,
    live: bool,
    streams: tuple[str, ...],
    follow: bool,
    seconds: float | None,
    output_format: OutputFormat,
    master: str,
    more: tuple[str, ...],
    **given: Any,
) -> None:
    """Watch a RECORDING (also while it is written) or live streams: rate, gaps and age, with alarms.

    Alarms are told on standard error as they are raised, and windows when they are over; with jsonl those are
    the output, otherwise all of them are printed at the end. Exit codes: 0 without an alarm, 1 with one.

    \b
    Examples:
      tpool pipeline monitor recordings --min-rate 25
      tpool pipeline monitor recordings --follow --max-silence 5 --out watched
      tpool pipeline monitor --live --stream camera-1 --max-age 0.5 --format jsonl
    """  # noqa: D301 - click's mark for text that stays as it is
    if live == (recording is not None) or (live and not streams):
        raise click.UsageError("name a RECORDING, or --live and a --stream of it.")
    from tensor_pool.ops.cli.pipeline.progress import spark_session  # noqa: PLC0415 - help needs none of it
    from tensor_pool.pipeline.jobs.monitor_job import monitor as watch  # noqa: PLC0415
    from tensor_pool.pipeline.jobs.monitor_windows import MonitorLimits  # noqa: PLC0415
    from tensor_pool.pipeline.jobs.report.page import cell_text  # noqa: PLC0415
    from tensor_pool.pipeline.jobs.running import plain_errors  # noqa: PLC0415
    from tensor_pool.pipeline.record.recording import Recording  # noqa: PLC0415

    options: dict[str, Any] = dict(map(_pair, more))
    if recording is not None and not follow:
        known = Recording(recording)  # nothing to wait for
        for stream in streams:
            known[stream]
    options |= {"mode": "live"} if live else {}
    options |= {"stream": ",".join(streams)} if streams else {}
    limits = MonitorLimits(
        max_missing=given["max_missing"],
        min_rate_hz=given["min_rate"],
        max_age_s=given["max_age"],
        max_silence_s=given["max_silence"],
    )

    def tell(window: MonitorWindow) -> None:
        if output_format == "jsonl" and window.is_over:
            print_rows([msgspec.to_builtins(window)], _COLUMNS, "jsonl")
        elif window.is_over and (follow or live):
            rate = "no" if window.rate_hz is None else f"{window.rate_hz:.1f}"
            counts = f"{window.frames} frames, {rate} Hz, {window.missing} missing"
            click.echo(f"{window.stream} at {window.start}: {counts}", err=True)

    with StopSignals() as stop, spark_session(master) as spark, plain_errors():
        watching = watch(
            spark,
            recording,
            window_s=given["window"],
            limits=limits,
            out=given["out"],
            on_window=tell,
            on_alarm=lambda alarm: click.echo(f"alarm {alarm}", err=True),
            follow=follow or live,
            **options,
        )
        click.echo("watching; Ctrl-C ends it", err=True)
        with watching:
            _wait(watching, stop, seconds)
    rows = [msgspec.to_builtins(window) for window in watching.windows]
    if output_format == "json":
        print_rows(rows, _COLUMNS, "json")
    elif output_format == "table":
        short = [{name: cell_text(row[name]) for name in _COLUMNS} for row in rows]
        print_rows(short, _COLUMNS, "table")
    ctx.exit(exit_codes.PROBLEMS if watching.alarms else exit_codes.OK)


def _wait(watching: Monitor, stop: StopSignals, seconds: float | None) -> None:
    ends = None if seconds is None else time.monotonic() + seconds
    while not watching.wait(_LOOK_S) and not stop.wait(timeout_s=0):
        if ends is not None and time.monotonic() >= ends:
            return


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ConfigError(f"--option {text}", hint="such as --option maxFramesPerTrigger=1000")
    return key, value

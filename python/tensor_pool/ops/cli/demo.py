"""``tpool demo``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tensor_pool.errors import TensorPoolError
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, config_options
from tensor_pool.ops.doctor.finding import counted
from tensor_pool.runtime import logs

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.demo.camera import CameraFailure
    from tensor_pool.ops.demo.viewer import Viewer

__all__ = ["demo", "print_summary"]

_NS_PER_US: Final = 1_000


@click.command()
@click.option("--seconds", default=5.0, show_default=True, type=FiniteFloat(0.1, 3600), help="How long.")
@click.option("--rate", default=60.0, show_default=True, type=FiniteFloat(1, 1000), help="Frames a second.")
@click.option(
    "--pipeline",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also record, and have Spark look at the recording; results go into this directory.",
)
@config_options
@click.pass_context
def demo(ctx: click.Context, config: Config, seconds: float, rate: float, pipeline: Path | None) -> None:
    """Pass tensors between two processes, now.

    A synthetic camera runs in a process of its own. It draws 1920 x 1080 pictures straight into shared
    memory; this process looks at each where it lies and checks every pixel. Kill the camera (its process id
    is printed) to see what the viewer makes of it. The media driver and the SHM driver run in this process
    too, in a temporary directory unless --aeron-dir names one.

    With --pipeline a band of the camera's sensor dies on the way. Everything is recorded; then Spark judges
    the recording, finds the band, draws a contact sheet and writes a training set. Takes a minute and Java.
    """
    from tensor_pool.ops.cli.pipeline.progress import spark_session, told  # noqa: PLC0415 - help needs none
    from tensor_pool.ops.demo import viewer  # noqa: PLC0415
    from tensor_pool.ops.demo.pipeline import DEAD_AFTER, Places, analyse  # noqa: PLC0415

    if not config.is_set("log.level"):
        logs.configure("warning", config.log.format)  # the demo tells by itself what goes on

    def on_start(pid: int, base_dir: str) -> None:
        click.echo(
            f"camera: process {pid}, {rate:g} pictures a second of 1920 x 1080 uint8, ring below {base_dir}"
        )
        click.echo("viewer: this process, looks at each picture in shared memory and checks every pixel")
        click.echo("        gaps: pictures that it never saw; late: overwritten while it looked at them")

    places = None if pipeline is None else Places(pipeline)
    seen = viewer.run(
        config,
        seconds=seconds,
        rate_hz=rate,
        on_start=on_start,
        on_second=_print_progress,
        record_to=None if places is None else places.recording,
        dead_from=None if places is None else round(seconds * rate * DEAD_AFTER),
    )
    if seen.outcome.frames == 0 and seen.outcome.camera_failure is not None:
        raise _no_camera(seen.outcome.camera_failure, config)
    print_summary(seen)
    if places is not None and seen.outcome.good:
        with spark_session("local[*]") as spark:
            analyse(spark, places, step=functools.partial(told, spark), tell=click.echo)
    ctx.exit(exit_codes.OK if seen.outcome.good else exit_codes.PROBLEMS)


def _no_camera(failure: CameraFailure, config: Config) -> TensorPoolError:
    """What the camera told, with what the doctor would say where memory is the reason."""
    from tensor_pool.ops.doctor.look import read_shared_memory  # noqa: PLC0415 - see above
    from tensor_pool.ops.doctor.machine import Machine  # noqa: PLC0415
    from tensor_pool.ops.doctor.system_checks import check_size  # noqa: PLC0415

    base = config.shm.shm_base_dir
    size = check_size(Machine(shared_memory=read_shared_memory(base)))
    hint = size.advice if size is not None and size.status == "problem" else failure.hint
    return TensorPoolError(f"the camera can't start: {failure.message}", where=base, hint=hint)


def _print_progress(seen: Viewer) -> None:
    outcome, latency = seen.outcome, seen.latency
    if outcome.frames == 0:
        click.echo("  waiting for the first picture ...")
        return
    p50, p99 = (latency.percentile(p) / _NS_PER_US for p in (50, 99))
    click.echo(
        f"  frame {outcome.last_seq:>5}   drawn and seen within {p50:.0f} us (p50) {p99:.0f} us (p99)   "
        f"gaps {outcome.gaps}   late {outcome.late}   wrong {outcome.wrong}"
    )


def print_summary(seen: Viewer) -> None:
    """What the viewer saw, and how the camera ended."""
    from tensor_pool.ops.demo import picture  # noqa: PLC0415 - see above
    from tensor_pool.ops.demo.viewer import PATIENCE_S  # noqa: PLC0415

    outcome = seen.outcome
    if seen.last_picture is not None:
        click.echo(picture.sketch(seen.last_picture))
    if outcome.killed_by is not None:
        click.echo(
            f"the camera (process {outcome.camera_pid}) was killed by {outcome.killed_by}; "
            f"the last frame it had committed was {outcome.last_seq}"
        )
        click.echo(
            "a frame it was drawing at that moment stays marked as unfinished, and no reader accepts it"
        )
    elif outcome.silent:
        click.echo(
            f"the camera (process {outcome.camera_pid}) took no picture for {PATIENCE_S:g} s and was ended; "
            "stopped, perhaps (Ctrl-Z, kill -STOP)?"
        )
    elif outcome.camera_exit != 0:
        why = "" if outcome.camera_failure is None else f": {outcome.camera_failure.message}"
        click.echo(
            f"the camera (process {outcome.camera_pid}) ended with exit code {outcome.camera_exit}{why}"
        )
    rate = (outcome.frames - 1) / outcome.seconds if outcome.seconds else 0.0
    megabytes = rate * picture.HEIGHT * picture.WIDTH / 1e6
    click.echo(
        f"{counted(outcome.frames, 'frame')}, {rate:.0f} a second, {megabytes:.0f} MB/s without a copy; "
        f"{counted(outcome.descriptors, 'descriptor')} over Aeron"
    )
    click.echo(
        f"{outcome.frames - outcome.wrong} right in every pixel, {outcome.wrong} wrong, "
        f"{outcome.gaps} missed, {outcome.late} overwritten while looked at"
    )

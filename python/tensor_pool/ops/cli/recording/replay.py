"""``tpool replay``."""

from __future__ import annotations

import concurrent.futures
import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.ops.cli.recording.selecting import selection_options, tell_damage
from tensor_pool.stop_signals import StopSignals

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.pipeline.record.replay import Replay
    from tensor_pool.pipeline.record.replay_options import ReplayStats

__all__ = ["replay"]

_COLUMNS: Final = (
    *("stream", "published_as", "frames", "nbytes", "seconds"),
    *("late", "damaged", "skipped", "missing"),
)
_LOOK_S: Final = 0.1
_TELL_S: Final = 1.0
_MIB: Final = 1 << 20


@click.command()
@click.argument("recording", metavar="DIR")
@selection_options
@click.option(
    "--speed",
    type=FiniteFloat(0, 1e6),
    default=1.0,
    show_default=True,
    metavar="X",
    help="2 for twice as fast, 0 for as fast as possible.",
)
@click.option("--loop", is_flag=True, help="Begin again at the end, until Ctrl-C.")
@click.option(
    "--rename", "renames", multiple=True, metavar="OLD=NEW", help="Publish a stream as NEW; repeatable."
)
@click.option("--prefix", default="", metavar="TEXT", help="What the names of all others begin with.")
@click.option("--keep-timestamps", is_flag=True, help="Publish recorded time stamps, and not new ones.")
@click.option(
    "--wait-consumers",
    type=WholeNumber(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Begin when each stream has so many consumers.",
)
@click.option(
    "--slots", type=WholeNumber(1, 1 << 20), metavar="N", help="Frames that the ring of a stream holds."
)
@click.option("--instance", default="", metavar="NAME", help="The service is replay:NAME then.")
@format_option()
@config_options
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    recording: str,
    renames: tuple[str, ...],
    instance: str,
    **options: Any,
) -> None:
    """Publish a recording (a directory, or a URI such as s3://bucket/run) as its streams came.

    All streams of it, in the order of time. Time stamps are new unless --keep-timestamps is given. Damaged
    frames are named and left out. Exit codes: 0 when every frame was published, 1 when some were damaged or
    left out; frames that came late are only counted. It is the service replay: `tpool send replay
    replay.pause=true` holds it, replay.speed=4 hurries it, replay.stop ends it.

    \b
    Examples:
      tpool replay recordings
      tpool replay recordings --stream camera-1 --rename camera-1=test-camera --speed 2
      tpool replay recordings --prefix again/ --from 10 --to 20 --loop --wait-consumers 1
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.host.connection import connect  # noqa: PLC0415 - help needs none of it
    from tensor_pool.pipeline.record.commanded_replay import replay_service  # noqa: PLC0415
    from tensor_pool.pipeline.record.replay import Replay  # noqa: PLC0415
    from tensor_pool.pipeline.record.replay_options import ReplayOptions  # noqa: PLC0415

    how = ReplayOptions(rename=_renamed(renames), **options)
    with (
        connect(config=config) as pool,
        Replay(pool, recording, how, on_damage=tell_damage) as player,
        replay_service(player, config, instance=instance),
        StopSignals() as stop,  # last: Ctrl-C ends at once what comes before
    ):
        done = _play(player, stop)
    rows = [
        {"stream": name, **msgspec.structs.asdict(stream), "seconds": round(done.seconds, 3)}
        for name, stream in done.streams.items()
    ]
    print_rows(rows, _COLUMNS, output_format)
    is_whole = not done.damaged and not done.skipped
    ctx.exit(exit_codes.OK if is_whole else exit_codes.PROBLEMS)


def _renamed(renames: tuple[str, ...]) -> dict[str, str | int]:
    named: dict[str, str | int] = {}
    for text in renames:
        old, separator, new = text.rpartition("=")
        if not separator or not old or not new:
            raise click.UsageError(f"--rename {text}: OLD=NEW is expected")
        named[old] = int(new) if new.isdecimal() else new
    return named


def _play(player: Replay, stop: StopSignals) -> ReplayStats:
    """Plays in a thread, and tells once a second how far it is, until the end or a signal."""
    with concurrent.futures.ThreadPoolExecutor(1, "replay") as executor:
        playing = executor.submit(player.run)
        told, before = time.monotonic(), 0
        try:
            while not playing.done() and not stop.wait(timeout_s=_LOOK_S):
                now = time.monotonic()
                if now - told >= _TELL_S:
                    stats = player.stats
                    _tell(stats, (stats.nbytes - before) / (now - told))
                    told, before = now, stats.nbytes
        finally:
            player.stop()
        return playing.result()


def _tell(stats: ReplayStats, bytes_per_s: float) -> None:
    if stats.is_waiting:
        click.echo("waiting for consumers", err=True)
        return
    click.echo(
        f"{stats.position_s:,.1f} of {stats.length_s:,.1f} s"
        + (f" in round {stats.rounds + 1}" if stats.rounds else "")
        + f", {stats.frames:,} frames, {stats.nbytes / _MIB:,.0f} MiB, {bytes_per_s / _MIB:,.1f} MiB/s, "
        f"{stats.late:,} late, {stats.damaged:,} damaged, {stats.skipped:,} skipped",
        err=True,
    )

"""``tpool bridge``: streams between hosts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, config_options, format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.ops.cli.serving import say_where, serve_until_stopped

if TYPE_CHECKING:
    from tensor_pool.bridging.counting import MappingReading
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["bridge"]

_COLUMNS: Final = (
    "bridge",
    "source",
    "dest",
    "side",
    "frames",
    "frames_per_s",
    "chunks_per_s",
    "bytes_per_s",
    "nbytes",
    "in_flight",
    "assembly_ms",
    "thinned",
    "lost",
    "unused_chunks",
    "error",
)

_LOOK_S: Final = 0.02
_LONGEST_WAIT_S: Final = 2.0
"""A bridge that counts nothing for so long hangs: what it counted before is shown, without rates."""


@click.group()
def bridge() -> None:
    """The bridge: carries whole frames between hosts over Aeron UDP."""


@bridge.command()
@format_option()
@config_options
@click.pass_context
def run(ctx: click.Context, /, *, config: Config, output_format: OutputFormat) -> None:
    """Send and receive the mappings of [bridge] until Ctrl-C or SIGTERM.

    Needs this host's media driver and SHM driver (`tpool up`). It survives restarts of both, and of the other
    host. `tpool config explain bridge` lists what can be set.

    \b
    Examples:
      tpool bridge run --config tensor-pool.toml
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.bridging.config import BridgeSection  # noqa: PLC0415 - help needs none of it
    from tensor_pool.host.aeron import aeron_dir  # noqa: PLC0415
    from tensor_pool.host.bridge import BridgeService  # noqa: PLC0415

    with BridgeService(config) as running:
        section = config[BridgeSection]
        where = {
            "aeron_dir": aeron_dir(config.aeron),
            "instance": section.instance_id,
            "mappings": len(section.mappings),
        }
        ctx.exit(serve_until_stopped(running, lambda: say_where(where, output_format), what="bridge"))


@bridge.command()
@click.option(
    "--interval",
    "interval_s",
    type=FiniteFloat(0.1, 60.0),
    default=1.0,
    show_default=True,
    metavar="S",
    help="How long to count for the rates; bridges count twice a second, so it takes that long at least.",
)
@format_option()
@config_options
@click.pass_context
def status(ctx: click.Context, /, *, config: Config, output_format: OutputFormat, interval_s: float) -> None:
    """Show what this host's bridges do: frames, rates, losses by reason, and what keeps them from it.

    Reads counters, and disturbs nobody. Exit codes: 0, 1 when no bridge runs here or one has an error, 3
    without a media driver.

    \b
    Examples:
      tpool bridge status
      tpool bridge status --interval 5 --format jsonl
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.bridging.counting import read_bridges  # noqa: PLC0415 - help needs none of it
    from tensor_pool.host.aeron import aeron_dir  # noqa: PLC0415
    from tensor_pool.ops.cli.asking import check_media_driver  # noqa: PLC0415

    directory = aeron_dir(config.aeron)
    check_media_driver(config)  # what the counters of a dead one say may be hours old
    before = {reading.key: reading for reading in read_bridges(directory)}
    time.sleep(interval_s if before else 0)
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while not _is_newer(found := read_bridges(directory), before) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    now = [reading for reading in found if reading.is_alive]
    print_rows((_row(reading, before.get(reading.key)) for reading in now), _COLUMNS, output_format)
    for name in sorted({reading.instance_id for reading in found if not reading.is_alive}):
        click.echo(f"bridge {name} shows no life any more: it was killed, or hangs", err=True)
    if not now:
        click.echo("no bridge runs here; `tpool bridge run` starts one", err=True)
    is_well = bool(now) and not any(reading.error for reading in now)
    ctx.exit(exit_codes.OK if is_well else exit_codes.PROBLEMS)


def _is_newer(found: list[MappingReading], before: dict[tuple[int, int], MappingReading]) -> bool:
    """Whether everything was counted again: bridges do that twice a second, at moments of their own."""
    known = [(each, before[each.key]) for each in found if each.is_alive and each.key in before]
    return all(now.counted_ns > then.counted_ns or not now.counted_ns for now, then in known)


def _row(now: MappingReading, before: MappingReading | None) -> dict[str, Any]:
    taken_s = 0.0 if before is None else (now.counted_ns - before.counted_ns) / 1e9

    def rate(field: str) -> float | None:
        if before is None or not before.counted_ns or taken_s <= 0:
            return None
        return round(float(getattr(now, field) - getattr(before, field)) / taken_s, 1)

    return {
        "bridge": now.instance_id,
        "source": now.source_stream_id,
        "dest": now.dest_stream_id,
        "side": now.side,
        "frames": now.frames,
        "frames_per_s": rate("frames"),
        "chunks_per_s": rate("chunks"),
        "bytes_per_s": rate("nbytes"),
        "nbytes": now.nbytes,
        "in_flight": now.in_flight,
        "assembly_ms": round(now.assembly_ns / 1e6, 3),
        "thinned": now.thinned,
        "lost": now.lost,
        "unused_chunks": now.unused,
        "error": now.error or None,
    }

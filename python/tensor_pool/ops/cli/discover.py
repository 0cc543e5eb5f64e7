"""``tpool discover``: streams on this host and on others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.asking import timeout_option
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.watching import print_listing, watch_options

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["discover"]

_COLUMNS: Final = ("host", "driver_instance_id", "stream_id", "name", "tags", "data_source_id", "epoch")


@click.command()
@click.option("--name", default="", metavar="NAME", help="Only the stream of this name.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Only streams with this tag; give several for all of them.",
)
@click.option("--stream-id", type=click.IntRange(min=1), metavar="ID", help="Only streams with this id.")
@click.option(
    "--data-source-id", type=click.IntRange(min=0), metavar="ID", help="Only streams of this data source."
)
@timeout_option
@watch_options
@format_option()
@config_options
@click.pass_context
def discover(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    timeout_s: float,
    watch: bool,
    interval: float,
    count: int | None,
    **filters: Any,
) -> None:
    """Find streams by name or tag, here and wherever the configured registries hear of them.

    Asks this host's driver and all of [[discovery.providers]]. A HOST other than this one means that a bridge
    must carry the stream. Providers that fail or are silent are named on stderr. Exit codes: 0, 1 when
    nothing matches or a provider says that it can't answer, 3 when nobody answers.

    \b
    Examples:
      tpool discover --tag camera
      tpool discover --name camera-1 --format json
      tpool discover --tag host:lab-3 --watch
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.host.discovery import Searching  # noqa: PLC0415 - help needs none of it

    is_whole = False
    warned: tuple[str, ...] = ()
    with Searching(config) as searching:

        def rows() -> list[dict[str, Any]]:
            nonlocal is_whole, warned
            found = searching.search(timeout_s=timeout_s, **filters)
            is_whole = bool(found.streams) and not found.errors
            if found.complaints != warned:  # once, however long it is watched
                warned = found.complaints
                for complaint in warned:
                    click.echo(f"warning: there may be more streams: {complaint}", err=True)
            return [msgspec.structs.asdict(stream) | {"host": stream.host} for stream in found.streams]

        print_listing(rows, _COLUMNS, output_format, watch=watch, interval=interval, count=count)
    ctx.exit(exit_codes.OK if is_whole else exit_codes.PROBLEMS)

"""``tpool discover``: streams on this host and on others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.asking import timeout_option
from tensor_pool.ops.cli.options import WholeNumber, config_options, format_option
from tensor_pool.ops.cli.watching import print_listing, watch_options

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["discover"]

_COLUMNS: Final = ("host", "driver_instance_id", "stream_id", "name", "tags", "data_source_id", "epoch")
_MAX_BYTES: Final = 256
"""Of names and of tags."""


class _Asked(click.ParamType[str]):
    """A name or a tag that a stream can have; an empty one would mean all streams, which nobody types."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See `click.ParamType.convert`."""
        text = str(value)
        if not (text.isascii() and 0 < len(text) <= _MAX_BYTES):
            self.fail(f"{text!r} is no {self.name}: it has 1 to {_MAX_BYTES} ASCII characters.", param, ctx)
        return text


@click.command()
@click.option("--name", type=_Asked("name"), metavar="NAME", help="Only the stream of this name.")
@click.option(
    "--tag",
    "tags",
    type=_Asked("tag"),
    multiple=True,
    metavar="TAG",
    help="Only streams with this tag; repeat it for streams that have several.",
)
@click.option("--stream-id", type=WholeNumber(min=1), metavar="ID", help="Only streams with this id.")
@click.option(
    "--data-source-id", type=WholeNumber(min=0), metavar="ID", help="Only streams of this data source."
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
    name: str | None,
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

    is_whole, is_empty = False, True
    warned: tuple[str, ...] = ()
    with Searching(config) as searching:

        def rows() -> list[dict[str, Any]]:
            nonlocal is_whole, is_empty, warned
            found = searching.search(timeout_s=timeout_s, name=name or "", **filters)
            is_empty = not found.streams
            is_whole = not is_empty and not found.errors
            if found.complaints != warned:  # once, however long it is watched
                warned = found.complaints
                for complaint in warned:
                    click.echo(f"warning: there may be more streams: {complaint}", err=True)
            return [msgspec.structs.asdict(stream) | {"host": stream.host} for stream in found.streams]

        print_listing(rows, _COLUMNS, output_format, watch=watch, interval=interval, count=count)
    is_filtered = name is not None or any(value not in (None, ()) for value in filters.values())
    if is_empty and is_filtered and not watch:
        click.echo(
            "no stream matches all of this; `tpool discover` alone lists what is there. Case counts, and "
            "several tags are given as --tag ONE --tag OTHER",
            err=True,
        )
    ctx.exit(exit_codes.OK if is_whole else exit_codes.PROBLEMS)

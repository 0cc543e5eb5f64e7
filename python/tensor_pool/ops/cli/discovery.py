"""``tpool discovery``: a registry of the streams of many drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.serving import say_where, serve_until_stopped

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["discovery"]


@click.group()
def discovery() -> None:
    """The registry: knows the streams of many drivers on many hosts."""


@discovery.command()
@format_option()
@config_options
@click.pass_context
def run(ctx: click.Context, /, *, config: Config, output_format: OutputFormat) -> None:
    """Answer queries about the streams of all [[discovery.sources]] until Ctrl-C or SIGTERM.

    Needs this host's media driver, but no SHM driver. Every SHM driver answers for its own streams already;
    a registry is for many of them. Drivers tell it of their streams with [[discovery.registries]].

    \b
    Examples:
      tpool discovery run --config registry.toml
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.host.aeron import aeron_dir  # noqa: PLC0415 - help needs none of it
    from tensor_pool.host.discovery import Registry  # noqa: PLC0415

    with Registry(config) as running:
        where = {
            "aeron_dir": aeron_dir(config.aeron),
            "channel": running.requests.channel,
            "stream_id": running.requests.stream_id,
        }
        ctx.exit(serve_until_stopped(running, lambda: say_where(where, output_format), what="registry"))

"""``tpool driver``: the SHM driver of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensor_pool.host.driver import open_driver
from tensor_pool.ops.cli.asking import admin_client, timeout_option
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.output import print_record
from tensor_pool.ops.cli.serving import say_where, serve_until_stopped
from tensor_pool.ops.model import as_row, read_driver

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["driver"]


@click.group()
def driver() -> None:
    """The SHM driver: the part that owns regions, epochs and leases."""


@driver.command()
@format_option()
@config_options
@click.pass_context
def run(ctx: click.Context, /, *, config: Config, output_format: OutputFormat) -> None:
    """Run an SHM driver in the foreground until Ctrl-C or SIGTERM.

    Needs a media driver (`tpool media run`); `tpool up` starts both. Prints one line once clients can attach.
    """
    with open_driver(config) as running:
        where = {"aeron_dir": running.aeron_dir, "directory": str(running.directory)}
        ctx.exit(serve_until_stopped(running, lambda: say_where(where, output_format)))


@driver.command()
@timeout_option
@format_option()
@config_options
def status(config: Config, output_format: OutputFormat, *, timeout_s: float) -> None:
    """Ask the SHM driver how it is. Exit codes: 0 when it answers, 3 when not.

    \b
    Examples:
      tpool driver status
      tpool driver status --format json | jq .state
    """  # noqa: D301 - click's mark for text that stays as it is
    with admin_client(config, timeout_s=timeout_s) as admin:
        print_record(as_row(read_driver(admin)), output_format)

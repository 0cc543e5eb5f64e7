"""``tpool errors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tensor_pool.host.aeron import aeron_dir
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.output import print_rows

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["errors"]


@click.command()
@format_option()
@config_options
@click.pass_context
def errors(ctx: click.Context, config: Config, output_format: OutputFormat) -> None:
    """List errors: the media driver's distinct ones, and agents whose duty cycles failed.

    Each error is listed once, with how often and when it occurred. Exit codes: 0 when there is none, 1 when
    there is any, 3 without a media driver.

    \b
    Examples:
      tpool errors
      tpool errors --aeron-dir /dev/shm/lab --format json
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.ops.error_listing import read_error_rows  # noqa: PLC0415 - help needs none of it

    found = read_error_rows(aeron_dir(config.aeron))
    if found or output_format != "table":
        rows = (msgspec.structs.asdict(row) for row in found)
        print_rows(rows, ["source", "count", "first", "last", "text"], output_format)
    else:
        click.echo("no errors")
    ctx.exit(exit_codes.PROBLEMS if found else exit_codes.OK)

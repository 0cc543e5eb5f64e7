"""``tpool up``: everything that a host needs, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.serving import say_where, serve_until_stopped

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["up"]


@click.command()
@format_option()
@config_options
@click.pass_context
def up(ctx: click.Context, /, *, config: Config, output_format: OutputFormat) -> None:
    """Start a media driver and an SHM driver in the foreground, until Ctrl-C or SIGTERM.

    A media driver that serves the directory already is used as it is. Programs then find everything with
    tensor_pool.connect(). A bridge runs along where the configuration has mappings for one.
    """
    import contextlib  # noqa: PLC0415 - `tpool up --help` needs none of it

    from tensor_pool.bridging.config import BridgeSection  # noqa: PLC0415
    from tensor_pool.host.aeron import aeron_dir, open_media_driver  # noqa: PLC0415
    from tensor_pool.host.bridge import BridgeService  # noqa: PLC0415
    from tensor_pool.host.driver import open_driver  # noqa: PLC0415
    from tensor_pool.transport import is_alive  # noqa: PLC0415

    directory = aeron_dir(config.aeron)
    with contextlib.ExitStack() as resources:
        started = not is_alive(directory)
        if started:
            config = config.replace({"aeron.media_driver": "embedded", "aeron.dir": directory})
            resources.enter_context(open_media_driver(config.aeron))
        running = resources.enter_context(open_driver(config))
        where = {"aeron_dir": directory, "directory": str(running.directory)}
        if config[BridgeSection].mappings:
            resources.enter_context(BridgeService(config))
            where["bridge"] = config[BridgeSection].instance_id
        ctx.exit(serve_until_stopped(running, lambda: _say(where, started, output_format)))


def _say(where: dict[str, Any], started: bool, output_format: OutputFormat) -> None:
    if output_format != "table":
        say_where({**where, "media_driver_started": started}, output_format)
        return
    say_where(where, output_format)
    click.echo(f"media driver: {'started here' if started else 'was running'}; stop with Ctrl-C")
    join = f'tensor_pool.connect("{where["aeron_dir"]}")'
    click.echo(f"programs join with {join}, or connect() if it is the default one")

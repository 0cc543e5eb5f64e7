"""``tpool driver``: the SHM driver of this host, in the foreground, and what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.serving import serve_until_stopped

if TYPE_CHECKING:
    from tensor_pool.config import Config

__all__ = ["driver"]


@click.group()
def driver() -> None:
    """The SHM driver: owner of shared-memory files, epochs and leases."""


@driver.command()
@config_options
@click.pass_context
def run(ctx: click.Context, /, *, config: Config) -> None:
    """Run an SHM driver in the foreground until Ctrl-C or SIGTERM.

    Needs a media driver (`tpool media run`); `tpool up` starts both. Prints one line once clients can attach.
    """
    from tensor_pool.driver import Driver  # noqa: PLC0415 - `tpool driver --help` needs none of it

    with Driver(config) as running:
        click.echo(f"aeron-dir={running.aeron_dir} directory={running.directory}")
        ctx.exit(serve_until_stopped(running))


@driver.command()
@config_options
@format_option("table", "json")
def status(*, config: Config, output_format: Literal["table", "json"]) -> None:
    """Say what the driver is, does and allows. Exit codes: 0 when it answers, 3 when not."""
    import msgspec  # noqa: PLC0415 - see run

    from tensor_pool.host.connection import connect  # noqa: PLC0415
    from tensor_pool.ops.cli.output import print_record  # noqa: PLC0415

    with connect(config=config) as pool:
        facts = msgspec.to_builtins(msgspec.structs.asdict(pool.driver_status()))
    print_record({key: value for key, value in facts.items() if key not in _PLUMBING}, output_format)


_PLUMBING = ("correlation_id", "client_id", "code", "error_message")

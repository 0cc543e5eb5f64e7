"""``tpool media``: Aeron's media driver of this host, in the foreground, and whether it is alive."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tensor_pool.host.aeron import aeron_dir, media_driver_options
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, config_options, format_option
from tensor_pool.ops.cli.output import print_record
from tensor_pool.ops.cli.serving import say_where
from tensor_pool.transport.aeron_dir import SHARE_HINT, is_somebody_elses, start_hint
from tensor_pool.transport.media import DEFAULT_OPTIONS, MediaDriverStatus, media_driver_status
from tensor_pool.transport.media_main import serve

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.transport.media import EmbeddedMediaDriver

__all__ = ["media"]


@click.group()
def media() -> None:
    """Aeron's media driver: the part that owns its shared memory and sockets."""


@media.command()
@config_options
@click.option(
    "--threading",
    type=click.Choice(["shared", "shared_network", "dedicated"]),
    default=DEFAULT_OPTIONS.threading,
    show_default=True,
    help="One thread for everything, or two or three for low latency between hosts.",
)
@click.option(
    "--idle",
    type=click.Choice(["backoff", "yield", "spin"]),
    default=DEFAULT_OPTIONS.idle,
    show_default=True,
    help="What its threads do while there is nothing to do; yield and spin take a core each.",
)
@click.option(
    "--idle-max-sleep-ms",
    type=FiniteFloat(min=0, min_open=True),
    default=DEFAULT_OPTIONS.idle_max_sleep_ms,
    show_default=True,
    help="The longest sleep of backoff: shorter answers faster, longer costs less.",
)
@click.option(
    "--client-liveness-ms",
    type=FiniteFloat(min=0, min_open=True),
    default=DEFAULT_OPTIONS.client_liveness_ms,
    show_default=True,
    help="A client that shows no life for this long is dropped.",
)
@click.option(
    "--sparse-terms/--dense-terms",
    default=DEFAULT_OPTIONS.sparse_terms,
    show_default=True,
    help="Take memory for terms when they are written, or at once so that a full /dev/shm shows early.",
)
@format_option()
@click.pass_context
def run(ctx: click.Context, /, *, config: Config, output_format: OutputFormat, **options: Any) -> None:
    """Run a media driver in the foreground until Ctrl-C or SIGTERM.

    Time-outs and buffer lengths come from the section `aeron` of the configuration. Prints one line with its
    directory and process id once clients can connect.
    """

    def announce(driver: EmbeddedMediaDriver) -> None:
        say_where({"aeron_dir": driver.aeron_dir, "pid": driver.pid}, output_format)

    # Only what was asked for: the defaults of the others may depend on the configuration.
    given = {n: v for n, v in options.items() if ctx.get_parameter_source(n) is not ParameterSource.DEFAULT}
    serve(aeron_dir(config.aeron), media_driver_options(config.aeron, **given), announce)


@media.command()
@config_options
@format_option()
@click.pass_context
def status(ctx: click.Context, *, config: Config, output_format: OutputFormat) -> None:
    """Say whether a media driver is alive. Exit codes: 0 when it is, 3 when not."""
    directory = aeron_dir(config.aeron)
    facts = _facts(directory, media_driver_status(directory))
    print_record(facts, output_format)
    if not facts["alive"]:
        hint = SHARE_HINT if is_somebody_elses(directory) else start_hint(directory)
        click.echo(f"  try: {hint}", err=True)
    ctx.exit(exit_codes.OK if facts["alive"] else exit_codes.NO_DRIVER)


def _facts(directory: str, found: MediaDriverStatus | None) -> dict[str, Any]:
    """The same keys whatever was found, so that scripts can rely on them."""
    if found is None:
        return {"aeron_dir": directory, "alive": False, "pid": None, "started": None, "heartbeat_age_s": None}
    age_s = found.heartbeat_age_s
    return {
        "aeron_dir": directory,
        "alive": found.alive,
        "pid": found.pid,
        "started": datetime.fromtimestamp(found.start_ms / 1e3).astimezone().isoformat(timespec="seconds"),
        "heartbeat_age_s": None if age_s is None else round(age_s, 3),
    }

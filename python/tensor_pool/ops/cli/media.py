"""``tpool media``: Aeron's media driver of this host, in the foreground, and whether it is alive."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from tensor_pool.errors import TensorPoolError
from tensor_pool.transport.media import (
    DEFAULT_OPTIONS,
    MediaDriverOptions,
    MediaDriverStatus,
    default_aeron_dir,
    media_driver_status,
)
from tensor_pool.transport.media_main import EXIT_FAILED, EXIT_OK, serve

if TYPE_CHECKING:
    from tensor_pool.transport.media import EmbeddedMediaDriver

__all__ = ["media"]

EXIT_NO_DRIVER: Final = 3

_aeron_dir_option = click.option(
    "--aeron-dir",
    metavar="DIR",
    help="Where the media driver and its clients meet. "
    "Default: TENSOR_POOL__AERON_DIR, AERON_DIR, or /dev/shm/aeron-USER.",
)


@click.group()
def media() -> None:
    """Aeron's media driver: the part that owns its shared memory and sockets."""


@media.command()
@_aeron_dir_option
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
    type=float,
    default=DEFAULT_OPTIONS.idle_max_sleep_ms,
    show_default=True,
    help="The longest sleep of backoff: shorter answers faster, longer costs less.",
)
@click.option(
    "--timer-interval-ms",
    type=float,
    default=DEFAULT_OPTIONS.timer_interval_ms,
    show_default=True,
    help="How often time-outs are looked at.",
)
@click.option(
    "--client-liveness-ms",
    type=float,
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
def run(
    *,
    aeron_dir: str | None,
    threading: Literal["shared", "shared_network", "dedicated"],
    idle: Literal["backoff", "yield", "spin"],
    idle_max_sleep_ms: float,
    timer_interval_ms: float,
    client_liveness_ms: float,
    sparse_terms: bool,
) -> None:
    """Run a media driver in the foreground until Ctrl-C or SIGTERM.

    Prints one line with its directory and process id once clients can connect. Exit codes: 0 after a clean
    end, 1 when it could not start, 2 for wrong arguments.
    """
    try:
        options = MediaDriverOptions(
            threading=threading,
            idle=idle,
            idle_max_sleep_ms=idle_max_sleep_ms,
            timer_interval_ms=timer_interval_ms,
            client_liveness_ms=client_liveness_ms,
            sparse_terms=sparse_terms,
        )
        serve(aeron_dir or default_aeron_dir(), options, _announce)
    except TensorPoolError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_FAILED)


def _announce(driver: EmbeddedMediaDriver) -> None:
    click.echo(f"aeron-dir={driver.aeron_dir} pid={driver.pid}")


@media.command()
@_aeron_dir_option
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(aeron_dir: str | None, output: str) -> None:
    """Say whether a media driver is alive. Exit codes: 0 when it is, 3 when not."""
    directory = aeron_dir or default_aeron_dir()
    found = media_driver_status(directory)
    facts = _facts(directory, found)
    if output == "json":
        click.echo(json.dumps(facts))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            click.echo(f"{name:<{width}}  {'-' if value is None else value}")
        if not facts["alive"]:
            click.echo(f"  try: tpool media run --aeron-dir {directory}", err=True)
    sys.exit(EXIT_OK if facts["alive"] else EXIT_NO_DRIVER)


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

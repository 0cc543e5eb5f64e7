"""``tpool limit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.serving import say_where, serve_until_stopped

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["limit"]


@click.command()
@click.argument("source")
@click.argument("dest")
@click.option(
    "--max-rate-hz",
    type=FiniteFloat(0, 1e9),
    required=True,
    metavar="N",
    help="Frames a second that pass at most; 0 for all.",
)
@click.option(
    "--slots",
    type=WholeNumber(1, 1 << 20),
    metavar="N",
    help="Frames that the ring of DEST holds; by default as many as that of SOURCE.",
)
@click.option(
    "--instance", default="", metavar="NAME", help="Command it as limiter:NAME, where several limiters run."
)
@format_option()
@config_options
@click.pass_context
def limit(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    source: str,
    dest: str,
    max_rate_hz: float,
    slots: int | None,
    instance: str,
) -> None:
    """Publish the stream SOURCE again as DEST, with at most N frames a second, until Ctrl-C or SIGTERM.

    The newest frame passes whenever one may; numbers, time stamps and metadata stay those of SOURCE. Both are
    names or ids. SOURCE may appear later, end and return; restarts of the drivers are survived. Exit codes: 0
    when it was stopped, 2 for a wrong rate or stream, 3 without drivers.

    \b
    Examples:
      tpool limit camera preview --max-rate-hz 10
      tpool limit camera preview --max-rate-hz 10 --instance camera --slots 8
      tpool send limiter:camera max_rate_hz=5
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.host.aeron import aeron_dir  # noqa: PLC0415 - help needs none of it
    from tensor_pool.host.limiter import RateLimiter  # noqa: PLC0415

    running = RateLimiter(
        config, _stream(source), _stream(dest), max_rate_hz=max_rate_hz, slots=slots, instance=instance
    )
    with running:
        where = {
            "aeron_dir": aeron_dir(config.aeron),
            "source": source,
            "dest": dest,
            "max_rate_hz": max_rate_hz,
            "service": running.tag,
        }
        ctx.exit(serve_until_stopped(running, lambda: say_where(where, output_format), what="rate limiter"))


def _stream(text: str) -> str | int:
    return int(text) if text.isdecimal() else text

"""``tpool supervisor``: watches consumers and moves those that can't keep up; shows what it knows and did."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli.asking import check_media_driver
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.ops.cli.serving import say_where, serve_until_stopped
from tensor_pool.ops.cli.watching import print_listing, watch_options
from tensor_pool.stop_signals import until_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tensor_pool.config import Config
    from tensor_pool.control.supervisor.journal import Entry
    from tensor_pool.control.supervisor.view import SupervisorView
    from tensor_pool.host.supervisor import SupervisorClient
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["supervisor"]

_TIMEOUT_S: Final = 2.0
_CONSUMERS: Final = (
    "stream_id", "name", "consumer_id", "condition", "remedy", "mode", "lag", "drops_per_s", "rate_hz",
    "condition_s", "silent_s",
)  # fmt: skip
_STREAMS: Final = (
    "stream_id", "name", "state", "rate_hz", "current_seq", "slots", "consumers", "producer_id", "epoch",
    "silent_s", "why",
)  # fmt: skip
_LOG: Final = ("at", "kind", "stream_id", "consumer_id", "before", "after", "outcome", "seen")


@click.group()
def supervisor() -> None:
    """The supervisor: watches consumers, and moves those that can't keep up."""


@supervisor.command()
@click.option("--dry-run", is_flag=True, help="Only log decisions; same as --set supervisor.dry_run=true.")
@format_option()
@config_options
@click.pass_context
def run(ctx: click.Context, /, *, config: Config, output_format: OutputFormat, dry_run: bool) -> None:
    """Watch the streams of this host until Ctrl-C or SIGTERM.

    It tells consumers what to do where driver.hello_authority is "supervisor", in the configuration of the
    driver and of all programs; elsewhere it watches and logs. Every decision is logged, see
    `tpool supervisor log`. `tpool send supervisor dry_run=true` undoes them all, and only logs from then on.

    \b
    Examples:
      tpool supervisor run --dry-run
      tpool supervisor run --set driver.hello_authority=supervisor
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.host.aeron import aeron_dir  # noqa: PLC0415 - help needs none of it
    from tensor_pool.host.supervisor import Supervisor  # noqa: PLC0415

    if dry_run:
        config = config.replace({"supervisor.dry_run": True})
    with Supervisor(config) as running:
        where = {
            "aeron_dir": aeron_dir(config.aeron),
            "authority": config_authority(config),
            "dry_run": running.dry_run,
        }
        ctx.exit(serve_until_stopped(running, lambda: say_where(where, output_format), what="supervisor"))


def config_authority(config: Config) -> str:
    """Who answers the hellos of consumers."""
    from tensor_pool.driver import DriverSection  # noqa: PLC0415 - help needs none of it

    return config[DriverSection].hello_authority


def _timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--timeout",
        "timeout_s",
        type=FiniteFloat(0.01, 3600),
        default=_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the supervisor.",
    )(command)


def _asking(config: Config) -> SupervisorClient:
    from tensor_pool.host.supervisor import SupervisorClient  # noqa: PLC0415 - help needs none of it

    check_media_driver(config)
    return SupervisorClient(config)


@supervisor.command()
@click.option("--streams", is_flag=True, help="List streams and their producers, and not consumers.")
@_timeout_option
@watch_options
@format_option()
@config_options
def status(
    config: Config, output_format: OutputFormat, *, streams: bool, timeout_s: float, **watching: Any
) -> None:
    """List the consumers that the supervisor watches, the worst first: how they are, what was done.

    A CONDITION is healthy, fair, slow, stuck (takes no frames), stale (says nothing) or unknown. A REMEDY is
    none, rate_limited, own_stream or fallback; in a dry run, what would have been done. LAG is in frames.

    \b
    Examples:
      tpool supervisor status --watch
      tpool supervisor status --format json | jq '.[] | select(.condition == "slow").consumer_id'
      tpool supervisor status --streams
    """  # noqa: D301 - click's mark for text that stays as it is
    with _asking(config) as asking:

        def rows() -> list[dict[str, Any]]:
            view = asking.view(timeout_s=timeout_s)
            return _stream_rows(view) if streams else _consumer_rows(view)

        print_listing(rows, _STREAMS if streams else _CONSUMERS, output_format, **watching)


def _stream_rows(view: SupervisorView) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(stream) for stream in view.streams]


def _consumer_rows(view: SupervisorView) -> list[dict[str, Any]]:
    names = {stream.stream_id: stream.name for stream in view.streams}
    return [
        {"name": names.get(consumer.stream_id, ""), **msgspec.structs.asdict(consumer)}
        for consumer in view.consumers
    ]


@supervisor.command()
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--count", type=WholeNumber(min=1), metavar="N", help="End after so many entries.")
@click.option("--decisions", is_flag=True, help="Only decisions: not who fell silent or came back.")
@_timeout_option
@format_option()
@config_options
def log(
    config: Config,
    output_format: OutputFormat,
    *,
    follow: bool,
    count: int | None,
    decisions: bool,
    timeout_s: float,
) -> None:
    """Show what the supervisor decided and noticed, and why; oldest first.

    The OUTCOME of a decision is told, dry_run or not_authority; what was only noticed is noted.

    \b
    Examples:
      tpool supervisor log --decisions
      tpool supervisor log --follow --format jsonl
    """  # noqa: D301 - click's mark for text that stays as it is
    if follow and count is None and output_format == "json":
        raise click.UsageError(
            "--follow has no end, and a JSON document must have one; add --count, or take --format jsonl"
        )
    with _asking(config) as asking:
        entries: Iterable[Entry] = asking.log(timeout_s=timeout_s)
        if follow:
            entries = _followed(list(entries), asking)
        wanted = (entry for entry in entries if entry.is_decision or not decisions)
        rows = (_log_row(entry) for entry in itertools.islice(wanted, count))
        if not follow:
            print_rows(list(rows), _LOG, output_format)
            return
        with until_stopped():  # it was followed for long enough
            if output_format == "table":
                for row in rows:  # one by one: a table would wait for its last row
                    click.echo("  ".join(str(row[column] or "-") for column in _LOG))
            else:
                print_rows(rows, _LOG, output_format)


def _followed(known: list[Entry], asking: SupervisorClient) -> Iterator[Entry]:
    yield from known
    last = known[-1].number if known else 0
    # What was made while the question was on its way comes once.
    yield from (entry for entry in asking.decisions() if entry.number > last)


def _log_row(entry: Entry) -> dict[str, Any]:
    at = datetime.fromtimestamp(entry.at_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    return {"number": entry.number, "at": at, **msgspec.structs.asdict(entry)}

"""``tpool send``, ``tpool services`` and ``tpool events``."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.control.values import FrameRef
from tensor_pool.errors import ConfigError
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.event_values import FORMATS, parse_assignment, shown
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_rows
from tensor_pool.stop_signals import until_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.config import Config
    from tensor_pool.control.client import KnownService
    from tensor_pool.control.events import Event
    from tensor_pool.control.values import Value
    from tensor_pool.host.control import ControlClient
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.wire.messages import Format

__all__ = ["events", "send", "services"]

_TIMEOUT_S: Final = 2.0


_SECONDS: Final = FiniteFloat(min=0, max=1e9, min_open=True)


@click.command()
@click.argument("service")
@click.argument("orders", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option(
    "--as",
    "format_name",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help="How the values travel: string, int32, float32, ref, ...; by their look when not given.",
)
@click.option(
    "--correlation-id", type=WholeNumber(1, 2**63 - 1), default=None, help="What the echo carries too."
)
@click.option(
    "--timeout",
    type=_SECONDS,
    metavar="SECONDS",
    default=_TIMEOUT_S,
    show_default=True,
    help="How long to wait for each echo.",
)
@format_option()
@config_options
def send(
    config: Config,
    output_format: OutputFormat,
    *,
    service: str,
    orders: tuple[str, ...],
    format_name: str | None,
    correlation_id: int | None,
    timeout: float,
) -> None:
    """Command a SERVICE: set a property, or have it do something, and wait until it has accepted.

    SERVICE is a name such as recorder, NAME:INSTANCE, or the whole tag service:NAME. A KEY without a value is
    a command. Values are true, false, numbers, ref:STREAM/EPOCH/SEQ for a frame, hex:BYTES, and otherwise
    text. `tpool services SERVICE` says which keys there are. Exit codes: 0, 1 when the service refuses or
    nobody answers, 3 without a media driver.

    \b
    Examples:
      tpool send service:recorder record.enable=true
      tpool send camera gain=2.5 flash
      tpool send camera label=42 --as string
    """  # noqa: D301 - click's mark for text that stays as it is
    parsed = [parse_assignment(text, format_name) for text in orders]

    def tell(control: ControlClient, key: str, value: Value, kind: Format | None) -> dict[str, Any]:
        started = time.monotonic()
        echo = control.send(
            service, key, value, format=kind, correlation_id=correlation_id or 0, timeout_s=timeout
        )
        return _row(echo) | {"elapsed_ms": round((time.monotonic() - started) * 1e3, 1)}

    accepted: list[dict[str, Any]] = []
    try:
        with _connected(config, tags=[service]) as control:
            for order in parsed:
                accepted.append(tell(control, *order))  # noqa: PERF401 - the next one may fail
    except ConfigError:
        raise
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    finally:  # what was accepted before the one that was not
        if accepted:
            _print_echoes(accepted, output_format)


def _print_echoes(rows: list[dict[str, Any]], output_format: OutputFormat) -> None:
    if output_format == "table":
        rows = [row | {"value": shown(row["value"])} for row in rows]
    print_rows(rows, ("service", "key", "value", "correlation_id", "elapsed_ms"), output_format)


@click.command()
@click.argument("service", required=False)
@click.option(
    "--listen",
    type=_SECONDS,
    metavar="SECONDS",
    help="How long to listen; a bit more than a status period by default.",
)
@format_option()
@config_options
@click.pass_context
def services(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    service: str | None,
    listen: float | None,
) -> None:
    """List the services that can be commanded; with a SERVICE, its properties and commands.

    Exit codes: 0, 1 when there is none, 3 without a media driver.

    \b
    Examples:
      tpool services
      tpool services recorder
      tpool services --format json
    """  # noqa: D301 - click's mark for text that stays as it is
    try:
        tags = None if service is None else [service]
        with _connected(config, tags=tags) as control:
            found = control.services(timeout_s=listen, only=service or "")
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    if service is None:
        rows = [_summary(known, output_format) for known in found]
        print_rows(rows, ("service", "host", "pid", "properties", "commands", "doc"), output_format)
    else:
        rows = [row for known in found for row in _keys(known, output_format)]
        print_rows(rows, ("key", "value", "expects", "doc"), output_format)
    if not found:
        click.echo(_nobody(service), err=True)
    ctx.exit(exit_codes.OK if found else exit_codes.PROBLEMS)


def _nobody(service: str | None) -> str:
    if service is None:
        return "no service tells of itself; `tpool up` runs a driver, which is one"
    return f"no service {service!r} tells of itself; `tpool services` without a name lists those that do"


@click.command()
@click.option("--tag", "tags", multiple=True, metavar="SERVICE", help="Only of this service; repeatable.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only with this key; repeatable.")
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--commands", is_flag=True, help="Show commands too, whether or not they were accepted.")
@click.option("--count", type=WholeNumber(min=1), metavar="N", help="End after so many events.")
@click.option("--seconds", type=_SECONDS, metavar="SECONDS", help="End after so many seconds.")
@format_option()
@config_options
def events(
    config: Config,
    output_format: OutputFormat,
    *,
    tags: tuple[str, ...],
    keys: tuple[str, ...],
    follow: bool,
    commands: bool,
    count: int | None,
    seconds: float | None,
) -> None:
    """Show what services tell: accepted commands, changes and their state, which comes again and again.

    Without --follow, --count or --seconds it ends after one status period, when everybody has told once.

    \b
    Examples:
      tpool events
      tpool events --follow --tag recorder
      tpool events --follow --key record.enable --format jsonl
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.control.config import ControlSection  # noqa: PLC0415 - help needs none of it

    if follow and output_format == "json":
        raise click.UsageError("--follow has no end, and a JSON document must have one; take --format jsonl")
    if seconds is None and count is None and not follow:
        seconds = 1.25 * config[ControlSection].status_period_ms / 1_000
    try:
        # Ctrl-C: enough was heard. Rows that are waited for end with it, so that a JSON document is whole.
        with (
            _connected(config, tags=tags or None, hears_commands=commands) as control,
            until_stopped(),
        ):
            rows = _followed(control.events(timeout_s=seconds), keys=keys, count=count, seconds=seconds)
            if output_format == "table":
                for row in rows:
                    told = (row["at"], row["service"], row["key"], shown(row["value"]))
                    click.echo("  ".join(told).rstrip())
                    sys.stdout.flush()
            else:
                print_rows(rows, (), output_format)
    except ValueError as e:
        raise click.UsageError(str(e)) from e


def _connected(config: Config, **options: Any) -> ControlClient:
    from tensor_pool.host.control import ControlClient  # noqa: PLC0415 - help needs none of it
    from tensor_pool.ops.cli.asking import check_media_driver  # noqa: PLC0415

    check_media_driver(config)
    return ControlClient(config=config, **options)


def _followed(
    heard: Iterator[Event], *, keys: tuple[str, ...], count: int | None, seconds: float | None
) -> Iterator[dict[str, Any]]:
    deadline = None if seconds is None else time.monotonic() + seconds
    left = count
    with suppress(KeyboardInterrupt):
        for event in heard:
            if not keys or event.key in keys:
                yield _row(event)
                left = None if left is None else left - 1
            if left == 0 or (deadline is not None and time.monotonic() >= deadline):
                return


def _row(event: Event) -> dict[str, Any]:
    at = datetime.fromtimestamp(event.timestamp_ns / 1e9, UTC)
    return {
        "at": at.isoformat(timespec="milliseconds"),
        "service": event.tag,
        "key": event.key,
        "value": _plain(event.value),
        "correlation_id": event.correlation_id,
        "source": event.source,
    }


def _plain(value: Value) -> Any:
    """A value as JSON has it."""
    return shown(value) if isinstance(value, bytes | FrameRef) else value


def _summary(known: KnownService, output_format: OutputFormat) -> dict[str, Any]:
    properties: Any = {key: _plain(value) for key, value in known.values.items()}
    if output_format == "table":
        properties = [f"{key}={shown(value)}" for key, value in known.values.items()]
    return {
        "service": known.info.tag,
        "host": known.info.host,
        "pid": known.info.pid,
        "properties": properties,
        "commands": [declared.key for declared in known.info.commands],
        "doc": known.info.doc,
    }


def _keys(known: KnownService, output_format: OutputFormat) -> list[dict[str, Any]]:
    show = shown if output_format == "table" else _plain
    properties = [
        {
            "key": each.key,
            "value": show(known.values.get(each.key)),
            "expects": "read only" if each.read_only else each.expects,
            "doc": each.doc,
        }
        for each in known.info.properties
    ]
    commands = [
        {"key": each.key, "value": None, "expects": f"command with {each.expects}", "doc": each.doc}
        for each in known.info.commands
    ]
    return properties + commands

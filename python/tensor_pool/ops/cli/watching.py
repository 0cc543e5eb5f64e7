"""``--watch``: the same listing again and again, for people and for programs."""

from __future__ import annotations

import functools
import itertools
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber
from tensor_pool.ops.cli.output import print_json, print_rows
from tensor_pool.stop_signals import until_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["print_listing", "watch_options"]

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")

_CLEAR = "\033[H\033[2J"


def watch_options(command: CommandT) -> CommandT:
    """Add ``--watch``, ``--interval`` and ``--count`` to a command, for `print_listing`.

    What can't go together is refused before the command connects to anything.

    Example:
        >>> @click.command
        ... @watch_options
        ... def listing(**options: Any) -> None: ...
        >>> [option.opts[0] for option in listing.params]
        ['--watch', '--interval', '--count']
    """
    options = (
        click.option(
            "--count",
            type=WholeNumber(min=1),
            metavar="N",
            help="With --watch: end after so many listings; without it, at Ctrl-C.",
        ),
        click.option(
            "--interval",
            type=FiniteFloat(0.1, 3600),
            default=1.0,
            show_default=True,
            metavar="SECONDS",
            help="With --watch: how often.",
        ),
        click.option("--watch", is_flag=True, help="Print it again and again; JSON says when."),
    )
    checked = _checking(command)
    for option in options:
        checked = option(checked)
    return checked


def _checking(command: CommandT) -> CommandT:
    @functools.wraps(command)
    def checked(*arguments: Any, **options: Any) -> Any:
        _check(click.get_current_context(), options)
        return command(*arguments, **options)

    return cast("CommandT", checked)


def _check(ctx: click.Context, options: Mapping[str, Any]) -> None:
    if options["watch"]:
        _check_end(options.get("output_format"), options["count"])
        return
    for name in ("interval", "count"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is for --watch, which is not given")


def _check_end(output_format: OutputFormat | None, count: int | None) -> None:
    if output_format == "json" and count is None:
        raise click.UsageError(
            "--watch has no end, and a JSON document must have one; add --count, or take --format jsonl"
        )


def print_listing(
    rows: Callable[[], Sequence[Mapping[str, Any]]],
    columns: Sequence[str],
    output_format: OutputFormat,
    *,
    watch: bool,
    interval: float,
    count: int | None,
    pause: Callable[[float], object] = time.sleep,
    spare: Sequence[str] = (),
) -> None:
    """Print a listing once, or again and again.

    On a terminal each table takes the place of the last one; in a pipe they follow each other. Rows of JSON
    get the time as ``at``; a JSON document is printed at the end. `spare` is that of `print_rows`.

    Raises:
        click.UsageError: An endless JSON document is asked for.

    Example:
        >>> print_listing(lambda: [{"id": 1}], ["id"], "jsonl", watch=False, interval=1, count=None)
        {"id": 1}
    """
    if not watch:
        print_rows(rows(), columns, output_format, spare=spare)
        return
    _check_end(output_format, count)
    document: list[dict[str, Any]] = []
    with until_stopped():  # it was watched for long enough
        for done in itertools.count(1):
            at = datetime.now().astimezone().isoformat(timespec="milliseconds")
            found = rows()
            if output_format == "jsonl":
                print_rows(({"at": at, **row} for row in found), columns, "jsonl")
            elif output_format == "json":
                document += ({"at": at, **row} for row in found)
            else:
                is_terminal = sys.stdout.isatty()
                click.echo(f"{_CLEAR}{at}" if is_terminal else at)
                print_rows(found, columns, "table", spare=spare)
                click.echo()
                sys.stdout.flush()
            if done == count:
                break
            pause(interval)
    if output_format == "json":
        print_json(document)

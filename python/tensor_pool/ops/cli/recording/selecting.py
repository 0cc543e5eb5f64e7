"""Options of commands that go through a part of a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.pipeline.record.selection import Damage

__all__ = ["selection_options", "tell_damage"]

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")


def selection_options(command: CommandT) -> CommandT:
    """Add ``--stream``, ``--from``, ``--to`` and ``--time-of`` to a command.

    Example:
        >>> @click.command
        ... @selection_options
        ... def play(**options: Any) -> None: ...
        >>> [option.opts[0] for option in play.params]
        ['--stream', '--from', '--to', '--time-of']
    """
    for option in reversed(
        (
            click.option(
                "--stream",
                "streams",
                multiple=True,
                metavar="NAME",
                help="Only this stream; repeatable. All when left out.",
            ),
            click.option(
                "--from",
                "start",
                metavar="TIME",
                help="Begin there: seconds from the start (1.5), or a time (2026-05-01T12:00:00+02:00).",
            ),
            click.option("--to", "end", metavar="TIME", help="End there."),
            click.option(
                "--time-of",
                type=click.Choice(["event", "recorded"]),
                default="event",
                show_default=True,
                help="Which time counts: when frames were taken, or when they were recorded.",
            ),
        )
    ):
        command = option(command)
    return command


def tell_damage(damage: Damage) -> None:
    """Names on standard error what can't be read."""
    click.echo(f"damaged: {damage.stream}: {damage.what}", err=True)

"""Options that many commands share, so that they are spelled and explained the same everywhere."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tensor_pool.config import load_config
from tensor_pool.config.layers import parse_assignment
from tensor_pool.runtime import logs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["config_options", "format_option"]

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")


def format_option(*formats: str, default: str = "table") -> Callable[[CommandT], CommandT]:
    """Add ``--format`` to a command, which gets it as ``output_format``.

    Args:
        formats: What to offer; table, json and jsonl when left out.
        default: What it is when not given.

    Example:
        >>> @click.command
        ... @format_option()
        ... def listing(output_format: str) -> None: ...
        >>> listing.params[0].opts
        ['--format']
    """
    choice = click.Choice(formats or ("table", "json", "jsonl"))
    return click.option(
        "--format", "output_format", type=choice, default=default, show_default=True, help="How to print."
    )


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config``, ``--set`` and ``--aeron-dir`` to a command.

    The command gets the loaded `Config` as ``config``. Before it runs, logging is set up as configured.

    Example:
        >>> @click.command
        ... @config_options
        ... def status(config: Any) -> None: ...
        >>> [option.opts[0] for option in status.params]
        ['--config', '--set', '--aeron-dir']
    """

    @click.option(
        "--config", "config_path", type=click.Path(), metavar="FILE", help="Configuration file to read."
    )
    @click.option(
        "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Set a value; repeatable."
    )
    @click.option(
        "--aeron-dir",
        type=click.Path(resolve_path=True),
        metavar="DIR",
        help="Directory of the media driver; same as --set aeron.dir=DIR.",
    )
    @functools.wraps(command)
    def with_config(
        *args: Any,
        config_path: str | None,
        assignments: tuple[str, ...],
        aeron_dir: str | None,
        **kwargs: Any,
    ) -> Any:
        overrides = dict(map(parse_assignment, assignments))
        if aeron_dir is not None:
            overrides["aeron.dir"] = aeron_dir
        config = load_config(config_path, overrides=overrides, overrides_from="command line")
        logs.configure(config.log.level, config.log.format)
        return command(*args, config=config, **kwargs)

    return with_config

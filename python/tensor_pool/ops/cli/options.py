"""Options that many commands share, so that they are spelled and explained the same everywhere."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tensor_pool.config import load_config
from tensor_pool.config.layers import parse_assignment
from tensor_pool.errors import NoDriverError
from tensor_pool.ops.cli import failures
from tensor_pool.runtime import logs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FiniteFloat", "StreamIdOrName", "WholeNumber", "config_options", "format_option"]

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")


def format_option(*others: str, default: str = "table") -> Callable[[CommandT], CommandT]:
    """Add ``--format`` to a command, which gets it as ``output_format``: table, json or jsonl.

    Args:
        others: What to offer beside these three, which every command has.
        default: What it is when not given.

    Example:
        >>> @click.command
        ... @format_option()
        ... def listing(output_format: str) -> None: ...
        >>> listing.params[0].opts
        ['--format']
    """
    choice = click.Choice(("table", "json", "jsonl", *others))
    return click.option(
        "--format", "output_format", type=choice, default=default, show_default=True, help="How to print."
    )


class FiniteFloat(click.FloatRange):
    """A number within bounds; unlike `click.FloatRange` it takes neither "nan" nor "inf".

    Example:
        >>> FiniteFloat(0, 10).convert("nan", None, None)
        Traceback (most recent call last):
        click.exceptions.BadParameter: 'nan' is not a finite number.
    """

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType.convert`."""
        number: float = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return float(super().convert(value, param, ctx))

    def _describe_range(self) -> str:
        # What click shows of a range without bounds is "x<=None".
        return "" if self.min is None and self.max is None else super()._describe_range()


class WholeNumber(click.IntRange):
    """A whole number within bounds; unlike `click.IntRange` it calls what is none "not a valid integer".

    Example:
        >>> WholeNumber(0, 10).convert("abc", None, None)
        Traceback (most recent call last):
        click.exceptions.BadParameter: 'abc' is not a valid integer.
    """

    name = "integer"


class StreamIdOrName(click.ParamType):  # type: ignore[type-arg]  # older click has none
    """A stream's id within bounds as a number, and anything that is no number as its name.

    Example:
        >>> kind = StreamIdOrName(0, 100)
        >>> kind.convert("17", None, None), kind.convert("camera-1", None, None)
        (17, 'camera-1')
        >>> kind.convert("101", None, None)
        Traceback (most recent call last):
        click.exceptions.BadParameter: 101 is not in the range 0<=x<=100.
    """

    name = "stream"

    def __init__(self, lowest: int, highest: int) -> None:
        self._ids = WholeNumber(lowest, highest)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """See `click.ParamType.convert`."""
        text = str(value)
        if text.isprintable() and not text.removeprefix("-").isdecimal() and text.strip():
            return text
        return int(self._ids.convert(value, param, ctx))


class _DirectoryName(click.Path):
    """Not the empty text, which would become the current directory: mostly a variable that is not set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty.", param, ctx)
        return super().convert(value, param, ctx)


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
        type=_DirectoryName(resolve_path=True, readable=False),  # who connects says why it may not
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
        try:
            return command(*args, config=config, **kwargs)
        except NoDriverError as e:
            raise failures.no_driver(e, config) from e

    return with_config

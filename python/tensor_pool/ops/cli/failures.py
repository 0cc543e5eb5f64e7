"""How a command fails: one line what, one line where, one line what to try, and an exit code."""

from __future__ import annotations

import traceback
from typing import Final

import click

from tensor_pool.errors import ConfigError, NoDriverError, NoMediaDriverError, TensorPoolError

__all__ = [
    "EXIT_BROKEN_PIPE",
    "EXIT_INTERRUPTED",
    "EXIT_NO_DRIVER",
    "EXIT_OK",
    "EXIT_PROBLEMS",
    "EXIT_USAGE",
    "report",
]

EXIT_OK: Final = 0
EXIT_PROBLEMS: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_DRIVER: Final = 3
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE: Final = 141  # 128 + SIGPIPE


def report(error: Exception, *, with_traceback: bool = False) -> int:
    """Tell a person about an error on standard error.

    Args:
        error: What a command raised.
        with_traceback: Whether to show where, for developers.

    Returns:
        The exit code.

    Example:
        >>> import contextlib, sys
        >>> with contextlib.redirect_stderr(sys.stdout):
        ...     report(NoDriverError("no SHM driver answers", hint="start one"))
        error: no SHM driver answers
          try: start one
        3
    """
    if isinstance(error, click.exceptions.Exit | click.exceptions.Abort | click.ClickException):
        return _report_click(error)
    if with_traceback:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, TensorPoolError):
        click.echo(f"error: {error}", err=True)
        return _exit_code(error)
    click.echo(f"error: unexpected {type(error).__qualname__}: {error}", err=True)
    click.echo(f"   at: {_raised_at(error)}", err=True)
    click.echo("  try: `tpool --debug ...` for a report, with `tpool version --verbose`", err=True)
    return EXIT_PROBLEMS


def _report_click(error: click.exceptions.Exit | click.exceptions.Abort | click.ClickException) -> int:
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.exceptions.Abort():
            # Ctrl-C and the end of input at a question arrive as their cause; said quietly.
            return EXIT_PROBLEMS if error.__cause__ is None else EXIT_INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            error.show()
        case click.UsageError():
            command = "tpool" if error.ctx is None else error.ctx.command_path
            click.echo(f"error: {error.format_message()}", err=True)
            click.echo(f"   at: {command}", err=True)
            click.echo(f"  try: `{command} --help`", err=True)
        case _:
            click.echo(f"error: {error.format_message()}", err=True)
    return error.exit_code


def _exit_code(error: TensorPoolError) -> int:
    if isinstance(error, NoDriverError | NoMediaDriverError):
        return EXIT_NO_DRIVER
    return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_PROBLEMS


def _raised_at(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"

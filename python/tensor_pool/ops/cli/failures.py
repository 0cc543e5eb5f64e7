"""How a command fails: one line what, one line where, one line what to try, and an exit code."""

from __future__ import annotations

import errno
import traceback
from typing import TYPE_CHECKING

import click

from tensor_pool.errors import ConfigError, NoDriverError, NoMediaDriverError, TensorPoolError, raised_at
from tensor_pool.ops.cli import exit_codes

if TYPE_CHECKING:
    from tensor_pool.config import Config

__all__ = ["no_driver", "report"]


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
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        # Standard output has no name, so it is mostly that; no bug of ours, and nothing to report.
        click.echo(f"error: can't write {error.filename or 'the output'}: {error.strerror}", err=True)
        click.echo("  try: make room where it goes, or send it elsewhere", err=True)
        return exit_codes.PROBLEMS
    click.echo(f"error: unexpected {type(error).__qualname__}: {error}", err=True)
    click.echo(f"   at: {raised_at(error)}", err=True)
    click.echo("  try: `tpool --debug ...` for a report, with `tpool version --verbose`", err=True)
    return exit_codes.PROBLEMS


def no_driver(error: NoDriverError, config: Config) -> NoDriverError:
    """The same words whoever noticed that no SHM driver answers, and a shell's way to start one.

    Args:
        error: What was raised; for programs, which may start a driver inside themselves.
        config: Where it was looked for, unless the error says so.
    """
    from tensor_pool.host.aeron import aeron_dir  # noqa: PLC0415 - help needs none of it
    from tensor_pool.transport.aeron_dir import is_somebody_elses  # noqa: PLC0415
    from tensor_pool.transport.media import is_alive  # noqa: PLC0415

    directory = error.where or aeron_dir(config.aeron)
    if is_somebody_elses(directory):
        return error  # has its own words for that
    command = "driver run" if is_alive(directory) else "up"
    return NoDriverError(
        "no SHM driver answers",
        where=directory,
        hint=f"start one with `tpool {command} --aeron-dir {directory}`; `tpool doctor` says what is missing",
    )


def _report_click(error: click.exceptions.Exit | click.exceptions.Abort | click.ClickException) -> int:
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.exceptions.Abort():
            # Ctrl-C and the end of input at a question arrive as their cause; said quietly.
            return exit_codes.PROBLEMS if error.__cause__ is None else exit_codes.INTERRUPTED
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
        return exit_codes.NO_DRIVER
    return exit_codes.USAGE if isinstance(error, ConfigError) else exit_codes.PROBLEMS

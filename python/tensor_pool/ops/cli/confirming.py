"""Asking before something is done that can't be undone."""

from __future__ import annotations

import sys

import click

__all__ = ["confirmed"]


def confirmed(question: str) -> bool:
    """Ask on standard error; whoever does not say yes is told that nothing was done.

    Example:
        >>> import contextlib, io
        >>> from unittest import mock
        >>> with mock.patch("sys.stdin", io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        ...     confirmed("Remove it?")
        False
        >>> told.getvalue().splitlines()[-1]
        'nothing was done; give --yes where standard input is no terminal'
    """
    try:
        if click.confirm(question, default=False, err=True):
            return True
        is_open_line = not _is_terminal()
    except click.Abort:  # Ctrl-C, or the end of input
        is_open_line = True
    if is_open_line:  # nobody's return key ended the line of the question
        click.echo(err=True)
    advice = "" if _is_terminal() else "; give --yes where standard input is no terminal"
    click.echo(f"nothing was done{advice}", err=True)
    return False


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()

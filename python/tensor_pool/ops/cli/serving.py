"""What commands that serve have in common: they run until they are told to stop, or stop by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.errors import NoMediaDriverError, raised_at
from tensor_pool.ops.cli import exit_codes
from tensor_pool.stop_signals import StopSignals

if TYPE_CHECKING:
    from tensor_pool.driver import Driver

__all__ = ["serve_until_stopped"]

_LOOK_S: Final = 0.5
"""How often to look whether the service has ended by itself."""


def serve_until_stopped(service: Driver) -> int:
    """Waits for a stop signal, or for the end of the service; the exit code."""
    import click  # noqa: PLC0415 - the CLI's own library

    with StopSignals() as stop:
        while service.is_running:
            if stop.wait(timeout_s=_LOOK_S):
                return exit_codes.OK
    if service.error is None:
        return exit_codes.OK  # it was asked to end
    if isinstance(service.error, NoMediaDriverError):
        click.echo(f"the driver ended: {service.error.message}", err=True)
        click.echo("  try: start the media driver, then this again; a supervisor does both", err=True)
        return exit_codes.NO_DRIVER
    click.echo(f"the driver ended: {service.error} ({raised_at(service.error)})", err=True)
    return exit_codes.PROBLEMS

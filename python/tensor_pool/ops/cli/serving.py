"""What commands that serve have in common: they run until they are told to stop, or stop by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.errors import AeronClientLostError, NoMediaDriverError, TransportError, raised_at
from tensor_pool.ops.cli import exit_codes
from tensor_pool.stop_signals import StopSignals

if TYPE_CHECKING:
    from tensor_pool.driver import Driver

__all__ = ["serve_until_stopped"]

_LOOK_S: Final = 0.5
"""How often to look whether the service has ended by itself."""

_HINTS: Final[dict[type[TransportError], str]] = {
    NoMediaDriverError: "start the media driver, then this again; a supervisor does both",
    AeronClientLostError: "start this again; a supervisor does, when it was stopped or starved for seconds",
}
"""What to do about the ends that are nobody's mistake."""


def serve_until_stopped(service: Driver) -> int:
    """Waits for a stop signal, or for the end of the service; the exit code."""
    import click  # noqa: PLC0415 - the CLI's own library

    with StopSignals() as stop:
        while service.is_running:
            if stop.wait(timeout_s=_LOOK_S):
                return exit_codes.OK
    if service.error is None:
        return exit_codes.OK  # it was asked to end
    for kind, hint in _HINTS.items():
        if isinstance(service.error, kind):
            click.echo(f"the driver ended: {service.error}".partition("\n")[0], err=True)
            click.echo(f"  try: {hint}", err=True)
            return exit_codes.NO_DRIVER
    click.echo(f"the driver ended: {service.error} ({raised_at(service.error)})", err=True)
    return exit_codes.PROBLEMS

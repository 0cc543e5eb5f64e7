"""What commands that serve have in common: they run until they are told to stop, or stop by themselves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

from tensor_pool.errors import AeronClientLostError, NoMediaDriverError, TransportError, raised_at
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.output import print_record
from tensor_pool.stop_signals import StopSignals

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["Service", "say_where", "serve_until_stopped"]

_LOOK_S: Final = 0.5
"""How often to look whether the service has ended by itself."""

_HINTS: Final[dict[type[TransportError], str]] = {
    NoMediaDriverError: "start the media driver, then this again; systemd, say, does both",
    AeronClientLostError: "start this again, as systemd does, say: it was stopped or starved for seconds",
}
"""What to do about the ends that are nobody's mistake."""


def say_where(facts: dict[str, Any], output_format: OutputFormat) -> None:
    """Prints where a service is found, in one line for people; scripts may wait for it."""
    import click  # noqa: PLC0415 - the CLI's own library

    if output_format == "table":
        click.echo(" ".join(f"{name.replace('_', '-')}={value}" for name, value in facts.items()))
    else:
        print_record(facts, output_format)
    sys.stdout.flush()


class Service(Protocol):
    """What serves."""

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        ...

    @property
    def error(self) -> BaseException | None:
        """What ended it, unless it was asked to end."""
        ...


def serve_until_stopped(service: Service, say: Callable[[], object], *, what: str = "driver") -> int:
    """Waits for a stop signal, or for the end of the service; the exit code.

    Args:
        service: What serves.
        say: Tells that it does: only now, when a signal can no longer end it at once.
        what: What to call it.
    """
    import click  # noqa: PLC0415 - the CLI's own library

    with StopSignals() as stop:
        say()
        while service.is_running:
            if stop.wait(timeout_s=_LOOK_S):
                return exit_codes.OK
    if service.error is None:
        return exit_codes.OK  # it was asked to end
    for kind, hint in _HINTS.items():
        if isinstance(service.error, kind):
            click.echo(f"the {what} ended: {service.error}".partition("\n")[0], err=True)
            click.echo(f"  try: {hint}", err=True)
            return exit_codes.NO_DRIVER
    click.echo(f"the {what} ended: {service.error} ({raised_at(service.error)})", err=True)
    return exit_codes.PROBLEMS

"""Asking the SHM driver: the connection that commands share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tensor_pool.host.aeron import connect, open_media_driver
from tensor_pool.ops.cli.options import FiniteFloat
from tensor_pool.pool.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tensor_pool.config import Config

__all__ = ["admin_client", "timeout_option"]

_TIMEOUT_S: Final = 2.0


def timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--timeout`` to a command, which gets it as ``timeout_s``.

    Example:
        >>> @click.command
        ... @timeout_option
        ... def status(timeout_s: float) -> None: ...
        >>> status.params[0].opts
        ['--timeout']
    """
    return click.option(
        "--timeout",
        "timeout_s",
        type=FiniteFloat(0.01, 3600),
        default=_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for each answer of the driver.",
    )(command)


@contextmanager
def admin_client(config: Config, *, timeout_s: float = _TIMEOUT_S) -> Iterator[AdminClient]:
    """A connection to the SHM driver of a configuration.

    Raises:
        NoMediaDriverError: No media driver runs; said at once, where connecting would wait for one.
    """
    open_media_driver(msgspec.structs.replace(config.aeron, media_driver="external")).close()
    with (
        connect(config.aeron, name="tpool") as client,
        AdminClient(client, config.streams, timeout_s=timeout_s) as admin,
    ):
        yield admin

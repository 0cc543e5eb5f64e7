"""Asking the SHM driver, listening to its clients, reading streams: the connections that commands share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tensor_pool.host.aeron import aeron_dir, connect, open_media_driver
from tensor_pool.ops.cli.options import FiniteFloat
from tensor_pool.ops.holders import find_holders
from tensor_pool.ops.listening import qos_listener
from tensor_pool.ops.stream_lookup import find_stream
from tensor_pool.pool.admin import AdminClient
from tensor_pool.pool.config import ClientSection
from tensor_pool.transport import read_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from tensor_pool.config import Config
    from tensor_pool.ops.holders import Holder
    from tensor_pool.ops.listening import Listener
    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.qos_board import QosBoard

__all__ = [
    "admin_client",
    "check_media_driver",
    "holders_here",
    "listen_option",
    "listening_client",
    "listening_time",
    "open_pool",
    "stream_ids",
    "timeout_option",
]

_TIMEOUT_S: Final = 2.0
_LONGER: Final = 1.25
"""Everybody reports once in an interval, but nobody is exactly in time."""


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
    check_media_driver(config)
    with (
        connect(config.aeron, name="tpool") as client,
        AdminClient(client, config.streams, timeout_s=timeout_s) as admin,
    ):
        yield admin


@contextmanager
def listening_client(
    config: Config, *others: str, timeout_s: float = _TIMEOUT_S
) -> Iterator[tuple[AdminClient, Listener, QosBoard]]:
    """The same, and somebody who listens to quality of service and to `others` from now on.

    Raises:
        NoMediaDriverError: No media driver runs.
    """
    check_media_driver(config)
    with connect(config.aeron, name="tpool") as client:
        listener, board = qos_listener(client, config.streams, *others)
        with listener, AdminClient(client, config.streams, timeout_s=timeout_s) as admin:
            yield admin, listener, board


@contextmanager
def open_pool(config: Config, *, timeout_s: float = _TIMEOUT_S) -> Iterator[Pool]:
    """A connection that can read streams.

    Raises:
        NoDriverError: No driver answers in time.
        NoMediaDriverError: No media driver runs.
    """
    from tensor_pool.host import connection  # noqa: PLC0415 - only commands that read frames need it

    check_media_driver(config)
    settings = {"client.attach_timeout_ms": round(timeout_s * 1000)}
    with connection.connect(config=config, name="tpool", settings=settings) as pool:
        yield pool


def holders_here(config: Config, listener: Listener) -> dict[int, Holder]:
    """The processes of this host behind the client ids that a listener has heard."""
    readings = read_counters(aeron_dir(config.aeron))
    return find_holders(listener.reporters, readings, qos_stream_id=config.streams.qos_stream_id)


def stream_ids(admin: AdminClient, wanted: Iterable[int | str], *, where: str) -> list[int]:
    """The ids of streams that are given by id or name; the driver is asked only for names.

    Args:
        admin: The connection to the driver.
        wanted: Ids, which need not exist, and names.
        where: The place that is asked, for errors.

    Raises:
        NoDriverError: Nobody answers.
        NoStreamError: There is no stream of such a name.
    """
    wanted = list(wanted)
    known = admin.streams() if any(isinstance(one, str) for one in wanted) else []
    return [one if isinstance(one, int) else find_stream(known, one, where=where).stream_id for one in wanted]


def listen_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--listen`` to a command, which gets it as ``listen_s``; `listening_time` has the default.

    Example:
        >>> @click.command
        ... @listen_option
        ... def clients(listen_s: float | None) -> None: ...
        >>> clients.params[0].opts
        ['--listen']
    """
    return click.option(
        "--listen",
        "listen_s",
        type=FiniteFloat(0, 3600),
        metavar="SECONDS",
        help="How long to wait for what clients report about once a second; a bit more than that by "
        "default, and never longer than needed. 0 doesn't.",
    )(command)


def listening_time(config: Config, listen_s: float | None) -> float:
    """How long to listen: as told, or a bit more than the interval of reports.

    Example:
        >>> from tensor_pool.config import load_config
        >>> listening_time(load_config(search=False, environ={}), None)
        1.25
    """
    return _LONGER * config[ClientSection].hello_interval_ms / 1000 if listen_s is None else listen_s


def check_media_driver(config: Config) -> None:
    """Says at once that there is none, where connecting would wait for one.

    Raises:
        NoMediaDriverError: No media driver runs.
    """
    open_media_driver(msgspec.structs.replace(config.aeron, media_driver="external")).close()

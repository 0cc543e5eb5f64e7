"""``tpool clients``, ``tpool leases``, ``tpool revoke``: who reads, who writes, and ending that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.errors import TensorPoolError
from tensor_pool.host.aeron import aeron_dir
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.asking import (
    admin_client,
    holders_here,
    listen_option,
    listening_client,
    listening_time,
    stream_ids,
    timeout_option,
)
from tensor_pool.ops.cli.confirming import confirmed
from tensor_pool.ops.cli.options import StreamIdOrName, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_record
from tensor_pool.ops.cli.watching import print_listing, watch_options
from tensor_pool.ops.model import as_row, have_reported, read_clients, read_leases

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["clients", "leases", "revoke"]

_CLIENT_COLUMNS: Final = (
    "client_id",
    "pid",
    "name",
    "role",
    "streams",
    "leases",
    "age_s",
    "keepalive_age_s",
    "lag_frames",
    "drops_gap",
    "drops_late",
)
_SPARE: Final = (
    "age_s",
    "keepalive_age_s",
    "drops_late",
    "drops_gap",
    "lag_frames",
    "expires_in_s",
    "stream_id",
    "role",
    "name",
    "pid",
)
"""Left out before the numbers that `tpool revoke` takes are broken in two."""


@click.command()
@listen_option
@timeout_option
@watch_options
@format_option()
@config_options
def clients(
    config: Config,
    output_format: OutputFormat,
    *,
    listen_s: float | None,
    timeout_s: float,
    **watching: Any,
) -> None:
    """List who reads and who writes: the holders of leases, producers first.

    LAG is about how many frames a consumer is behind, DROPS what it says that it has lost since it began. PID
    is the process and NAME what it calls itself, with connect(name=...); programs of other makers have none.

    \b
    Examples:
      tpool clients
      tpool clients --watch --interval 0.5
    """  # noqa: D301 - click's mark for text that stays as it is
    with listening_client(config, timeout_s=timeout_s) as (admin, listener, board):
        held = read_leases(admin)
        listener.listen(listening_time(config, listen_s), until=lambda: have_reported(held, board))

        def rows() -> list[dict[str, Any]]:
            board.expire(time.monotonic_ns())
            holders = holders_here(config, listener)
            return [as_row(row) for row in read_clients(admin, board, holders=holders)]

        print_listing(rows, _CLIENT_COLUMNS, output_format, pause=listener.listen, spare=_SPARE, **watching)


@click.command()
@click.option(
    "--stream",
    type=StreamIdOrName(0, 2**32 - 2),
    metavar="STREAM",
    help="Only of this one: an id, or a name.",
)
@listen_option
@timeout_option
@watch_options
@format_option()
@config_options
def leases(
    config: Config,
    output_format: OutputFormat,
    *,
    stream: int | str | None,
    listen_s: float | None,
    timeout_s: float,
    **watching: Any,
) -> None:
    """List the leases of the SHM driver: whose they are, and when they expire.

    Who holds one says so once a second, and is listened to; see `tpool clients`.

    \b
    Examples:
      tpool leases --stream camera-1
      tpool leases --format jsonl | jq 'select(.keepalive_age_s > 2)'
    """  # noqa: D301 - see above
    with listening_client(config, timeout_s=timeout_s) as (admin, listener, board):
        where = aeron_dir(config.aeron)
        stream_id = None if stream is None else stream_ids(admin, [stream], where=where)[0]
        held = read_leases(admin, stream_id)
        listener.listen(listening_time(config, listen_s), until=lambda: have_reported(held, board))

        def rows() -> list[dict[str, Any]]:
            return [
                as_row(row) for row in read_leases(admin, stream_id, holders=holders_here(config, listener))
            ]

        print_listing(
            rows,
            [
                "lease_id",
                "stream_id",
                "stream",
                "client_id",
                "pid",
                "name",
                "role",
                "age_s",
                "keepalive_age_s",
                "expires_in_s",
            ],
            output_format,
            pause=listener.listen,
            spare=_SPARE,
            **watching,
        )


@click.command()
@click.argument("lease_id", type=WholeNumber(0, 2**64 - 1), metavar="LEASE")
@click.option("--reason", default="revoked with tpool", show_default=True, help="What its holder is told.")
@click.option(
    "--token",
    default="",
    envvar="TPOOL_ADMIN_TOKEN",
    help="The administration token, where the driver has one; better given in TPOOL_ADMIN_TOKEN.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@timeout_option
@format_option()
@config_options
@click.pass_context
def revoke(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    lease_id: int,
    reason: str,
    token: str,
    yes: bool,
    timeout_s: float,
) -> None:
    """End LEASE against its holder's will; `tpool leases` lists them.

    A producer's lease ends its epoch: consumers map the next one. The holder may attach again. Asks first; an
    answer other than yes is exit code 1.

    \b
    Examples:
      tpool revoke 2623748840353155
      tpool revoke 2623748840353155 --reason "camera is serviced" --yes
    """  # noqa: D301 - see above
    with admin_client(config, timeout_s=timeout_s) as admin:
        found = next((row for row in read_leases(admin) if row.lease_id == lease_id), None)
        if found is None:
            where = aeron_dir(config.aeron)
            raise TensorPoolError(
                f"there is no lease {lease_id}", where=where, hint="`tpool leases` lists them"
            )
        stream = found.stream or f"stream {found.stream_id}"
        question = f"Revoke lease {lease_id} of {found.role} {found.client_id} on {stream}?"
        if not (yes or confirmed(question)):
            ctx.exit(exit_codes.PROBLEMS)
        admin.revoke(found.stream_id, lease_id, token=token, reason=reason)
    print_record({"revoked": lease_id, **as_row(found)}, output_format)

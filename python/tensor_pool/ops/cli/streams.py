"""``tpool streams``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.ops.cli.asking import listening_client, timeout_option
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.watching import print_listing, watch_options
from tensor_pool.ops.model import as_row, read_streams
from tensor_pool.pool.streams import PRESENT

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["streams"]

_COLUMNS: Final = (
    "stream_id",
    "name",
    "state",
    "dtype",
    "shape",
    "rate_hz",
    "mb_per_s",
    "consumers",
    "producer_id",
    "current_seq",
    "activity_age_s",
)
_SPARE: Final = ("producer_id", "activity_age_s", "current_seq", "dtype", "mb_per_s", "shape", "state")
_SLOW_HZ: Final = 10.0
"""Faster streams are not known to more than a tenth of a frame a second."""
_WATCHED_COLUMNS: Final = (*_COLUMNS[:8], "drops", *_COLUMNS[8:])
"""What consumers have lost is only known to who listens for a while."""


@click.command()
@click.option(
    "--all",
    "ended",
    is_flag=True,
    help="Also those of which only the name is left: they ended, or somebody waits for them.",
)
@timeout_option
@watch_options
@format_option()
@config_options
def streams(
    config: Config, output_format: OutputFormat, *, ended: bool, timeout_s: float, **watching: Any
) -> None:
    """List the streams of the SHM driver: what they carry, how fast, for whom.

    Rates come from what producers report once a second; with --watch also what consumers say they lost.
    A STATE is `live`, `waiting` (for a producer), `ended`, or `named` (asked for, or known from earlier).

    \b
    Examples:
      tpool streams --watch
      tpool streams --format json | jq '.[] | select(.consumers == 0).name'
    """  # noqa: D301 - click's mark for text that stays as it is
    with listening_client(config, timeout_s=timeout_s) as (admin, listener, board):

        def rows() -> list[dict[str, Any]]:
            board.expire(time.monotonic_ns())
            known = read_streams(admin, board)
            found = [as_row(row) for row in known if ended or row.state in PRESENT]
            return [_for_people(row) for row in found] if output_format == "table" else found

        columns = _WATCHED_COLUMNS if watching["watch"] else _COLUMNS
        print_listing(rows, columns, output_format, pause=listener.listen, spare=_SPARE, **watching)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    bytes_per_s, shape, rate_hz = row["bytes_per_s"], row["shape"], row["rate_hz"]
    return {
        **row,
        "rate_hz": rate_hz if rate_hz is None or rate_hz < _SLOW_HZ else round(rate_hz, 1),
        "shape": None if shape is None else "x".join(map(str, shape)),
        "mb_per_s": None if bytes_per_s is None else round(bytes_per_s / 1e6, 1),
    }

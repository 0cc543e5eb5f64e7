"""``tpool info``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.host.aeron import aeron_dir
from tensor_pool.ops.cli.asking import (
    holders_here,
    listen_option,
    listening_client,
    listening_time,
    timeout_option,
)
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.output import print_json, print_record, print_rows
from tensor_pool.ops.stream_detail import read_detail

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["info"]

_CLIENT_COLUMNS: Final = (
    "role",
    "client_id",
    "pid",
    "name",
    "lease_id",
    "age_s",
    "keepalive_age_s",
    "mode",
    "lag_frames",
    "drops_gap",
    "drops_late",
)
_SPARE_OF_CLIENTS: Final = (
    "age_s",
    "keepalive_age_s",
    "drops_late",
    "drops_gap",
    "lag_frames",
    "mode",
    "name",
    "pid",
)
_PARTS: Final = ("pools", "clock", "metadata", "clients")


@click.command()
@click.argument("stream")
@listen_option
@timeout_option
@format_option()
@config_options
def info(
    config: Config, output_format: OutputFormat, *, stream: str, listen_s: float | None, timeout_s: float
) -> None:
    """Tell all there is to know of STREAM (a name or an id), without reading a frame of it.

    \b
    Examples:
      tpool info camera-1
      tpool info 10000 --format json | jq .metadata
    """  # noqa: D301 - click's mark for text that stays as it is
    with listening_client(config, "announce", "metadata", timeout_s=timeout_s) as (admin, listener, board):
        row = read_detail(
            admin,
            listener,
            board,
            stream,
            listen_s=listening_time(config, listen_s),
            where=aeron_dir(config.aeron),
            holders=lambda: holders_here(config, listener),
        ).as_row()
    if output_format == "json":
        print_json(row)
    elif output_format == "jsonl":
        print_record(row, "jsonl")
    else:
        _print_for_people(row)


def _print_for_people(row: dict[str, Any]) -> None:
    head = {name: value for name, value in row.items() if name not in _PARTS}
    if head["shape"] is not None:
        head["shape"] = "x".join(map(str, head["shape"]))
    clock = {f"clock_{name}": value for name, value in row["clock"].items()}
    print_record({**head, **clock}, "table")
    click.echo("\npools")
    if row["pools"] is None:
        click.echo("nobody announced any")
    else:
        print_rows(row["pools"], ["pool_id", "slots", "stride_bytes"], "table")
    click.echo("\nmetadata")
    if row["metadata"]:
        print_record({_shown(key): _shown(value) for key, value in row["metadata"].items()}, "table")
    else:
        click.echo("none was heard")
    click.echo("\nclients")
    print_rows(row["clients"], _CLIENT_COLUMNS, "table", spare=_SPARE_OF_CLIENTS)


def _shown(value: Any) -> Any:
    """A text of a peer stays on its line, whatever is in it."""
    text = str(value) if isinstance(value, str | list | dict) else ""
    return value if text.isprintable() else ascii(text)

"""``tpool counters``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.host.aeron import aeron_dir
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.watching import print_listing, watch_options

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["counters"]

_SPARE: Final = ("owner_id", "kind", "type_id", "per_second", "counter_id")


@click.command()
@click.option("--ours", is_flag=True, help="Only counters of tensor pools, not Aeron's own.")
@click.option("--type", "type_id", type=int, metavar="ID", help="Only counters of this type.")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only counters with TEXT in their label.")
@watch_options
@format_option()
@config_options
def counters(
    config: Config,
    output_format: OutputFormat,
    *,
    ours: bool,
    type_id: int | None,
    text: str,
    **watching: Any,
) -> None:
    """List the counters of everybody on this host: the media driver's, its clients' and our agents'.

    They lie in the media driver's shared memory and can be read without disturbing anybody, also after its
    death.

    \b
    Examples:
      tpool counters --ours --watch
      tpool counters --filter "back-pressure" --format json
      tpool counters --type 4002 --watch --format jsonl --count 60
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.ops.counters import CounterRows  # noqa: PLC0415 - the help text needs none of it
    from tensor_pool.transport import read_counters  # noqa: PLC0415

    directory = aeron_dir(config.aeron)
    seen = CounterRows(ours=ours, type_id=type_id, text=text)

    def rows() -> list[dict[str, Any]]:
        found = seen.update(read_counters(directory), now_ns=time.monotonic_ns())
        return [msgspec.structs.asdict(row) for row in found]

    columns = ["counter_id", "type_id", "kind", "value", "owner_id", "label"]
    if watching["watch"]:
        columns.insert(4, "per_second")
    print_listing(rows, columns, output_format, spare=_SPARE, **watching)

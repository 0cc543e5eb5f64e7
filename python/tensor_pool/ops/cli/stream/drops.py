"""``tpool drops``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.asking import listen_option, listening_client, listening_time, timeout_option
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.stream.live import observer
from tensor_pool.ops.cli.watching import print_listing, watch_options

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.ops.listening import Listener
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.qos_board import QosBoard

__all__ = ["drop_rows", "drops"]

_COLUMNS: Final = (
    "consumer",
    "mode",
    "drops_gap",
    "drops_late",
    "by_reason",
    "drops_per_s",
    "lag_frames",
    "heard_s_ago",
)
_SPARE: Final = ("heard_s_ago", "drops_per_s", "mode", "by_reason", "lag_frames")
_OBSERVER: Final = "this command"
_SLICE_S: Final = 0.005
_BATCH: Final = 1_000


@click.command()
@click.argument("stream")
@listen_option
@timeout_option
@watch_options
@format_option()
@config_options
@click.pass_context
def drops(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    stream: str,
    listen_s: float | None,
    timeout_s: float,
    **watching: Any,
) -> None:
    """Say who loses frames of STREAM (a name or an id), how many, and why.

    Consumers report gaps (frames that they never found) and late ones (overwritten before they were read),
    counted since they began. This command reads the stream too while it listens, and so also tells of frames
    that nobody could read, by reason. Exit codes: 0 when nobody loses any, 1 when somebody does.

    \b
    Examples:
      tpool drops camera-1
      tpool drops camera-1 --watch --interval 5
    """  # noqa: D301 - click's mark for text that stays as it is
    lost = False
    with (
        listening_client(config, timeout_s=timeout_s) as (_, listener, board),
        observer(config, stream, timeout_s=timeout_s) as (consumer, *_),
    ):

        def rows() -> list[dict[str, Any]]:
            nonlocal lost
            found = drop_rows(consumer, board, now_ns=time.monotonic_ns())
            lost = any(row["drops_gap"] or row["drops_late"] or row["by_reason"] for row in found)
            return [_for_people(row) for row in found] if output_format == "table" else found

        def watch(seconds: float) -> None:
            _watch(consumer, listener, seconds)

        watch(listening_time(config, listen_s))
        print_listing(rows, _COLUMNS, output_format, pause=watch, spare=_SPARE, **watching)
    ctx.exit(exit_codes.PROBLEMS if lost else exit_codes.OK)


def drop_rows(consumer: Consumer, board: QosBoard, *, now_ns: int) -> list[dict[str, Any]]:
    """What everybody has lost of a stream: those who report it, and the one who looks.

    Args:
        consumer: The one who looks; what it reports itself is left out.
        board: What was reported.
        now_ns: The monotonic time.
    """
    board.expire(now_ns)
    stream_id, own_id = consumer.stream_id, consumer.session.consumer_id
    assert stream_id is not None, "the driver has answered"
    found: list[dict[str, Any]] = [
        {
            "consumer": report.consumer_id,
            "stream_id": stream_id,
            "mode": report.mode,
            "epoch": report.epoch,
            "drops_gap": report.drops_gap,
            "drops_late": report.drops_late,
            "by_reason": None,
            "drops_per_s": None if report.drops_per_s is None else round(report.drops_per_s, 1),
            "lag_frames": board.lag(stream_id, report.consumer_id),
            "heard_s_ago": round((now_ns - report.heard_ns) / 1e9, 1),
        }
        for report in board.consumers(stream_id)
        if report.consumer_id != own_id
    ]
    stats = consumer.stats
    found.append(
        {
            "consumer": _OBSERVER,
            "stream_id": stream_id,
            "mode": "stream",
            "epoch": stats.epoch,
            "drops_gap": stats.drops_gap,
            "drops_late": stats.drops_late,
            "by_reason": stats.drops_by_reason,
            "drops_per_s": None,
            "lag_frames": None,
            "heard_s_ago": None,
        }
    )
    return found


def _watch(consumer: Consumer, listener: Listener, seconds: float) -> None:
    """Reads and listens for so long."""
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        listener.poll()
        for _ in range(_BATCH):
            if consumer.poll() is None:
                consumer.poll(timeout=min(left_s, _SLICE_S))
                break


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    reasons = row["by_reason"]
    return {**row, "by_reason": [f"{name} {n}" for name, n in sorted(reasons.items())] if reasons else None}

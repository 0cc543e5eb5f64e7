"""``tpool shm``: what lies in shared memory, whether it is right, and what may go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.errors import RegionError
from tensor_pool.ops.cli import exit_codes, failures
from tensor_pool.ops.cli.confirming import confirmed
from tensor_pool.ops.cli.options import WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_record, print_rows
from tensor_pool.ops.cli.shm_place import find_place
from tensor_pool.ops.doctor.finding import counted, human_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.ops.shm.collect import Served
    from tensor_pool.ops.shm.survey import Surveyed

__all__ = ["shm"]

_COLUMNS: Final = (
    "user",
    "namespace",
    "stream_id",
    "epoch",
    "state",
    "allocated_bytes",
    "slots",
    "pools",
    "pid",
    "activity_age_s",
    "leases",
    "reason",
)
_SPARE: Final = ("pid", "pools", "slots", "activity_age_s", "leases", "epoch")
_STALE_AFTER_S: Final = 60


@click.group()
def shm() -> None:
    """Look into shared memory: the epochs of all streams below the configured base directories.

    Works without any driver. Files are read, never mapped, and only `gc` changes anything.
    """


_offline = click.option(
    "--offline", is_flag=True, help="Don't ask the SHM driver what it serves; only look at files."
)
_stale_after = click.option(
    "--older-than",
    "stale_after_s",
    type=WholeNumber(5, 1_000_000_000),
    default=_STALE_AFTER_S,
    show_default=True,
    metavar="SECONDS",
    help="An epoch is stale when nobody said for so long that it is alive.",
)


@shm.command()
@_offline
@_stale_after
@format_option()
@config_options
def ls(config: Config, output_format: OutputFormat, *, offline: bool, stale_after_s: int) -> None:
    """List epochs: by user, namespace, stream and epoch.

    A state is `current` (the driver serves it), `leased`, `live` (active lately), `stale`, `damaged`, or
    `kept` (stale, but perhaps of a driver that is only stopped).

    \b
    Examples:
      tpool shm ls
      tpool shm ls --format jsonl | jq 'select(.state == "stale") | .path'
    """  # noqa: D301 - click's mark for text that stays as it is
    found = _survey(config, offline=offline, stale_after_s=stale_after_s)
    print_rows((msgspec.structs.asdict(item.row) for item in found), _COLUMNS, output_format, spare=_SPARE)


@shm.command()
@click.argument("place")
@click.option("--width", type=WholeNumber(8, 4096), default=64, show_default=True, help="Of the strip.")
@format_option()
@config_options
def inspect(config: Config, output_format: OutputFormat, place: str, width: int) -> None:
    """Show one epoch: its superblock, its pools and its slots.

    PLACE is the directory of an epoch, or a stream id for the newest epoch of that stream, first of all in
    the configured namespace.

    \b
    Examples:
      tpool shm inspect 10000
      tpool shm inspect /dev/shm/tensorpool-ada/default/10000/1794743845133905
    """  # noqa: D301 - see above
    from tensor_pool.ops.shm.ring_view import LEGEND, view_ring  # noqa: PLC0415 - help needs none of it

    folder = find_place(config, place)
    if folder.ring is None or folder.superblock is None:
        why = folder.flaw or (folder.ring.flaw if folder.ring else None)
        raise RegionError(
            f"{folder.path} holds no ring that can be read: {why}",
            hint=f"`tpool shm verify {folder.path}` says more",
        )
    view = msgspec.structs.asdict(view_ring(folder.ring, width=width))
    facts: dict[str, Any] = {
        "path": folder.path,
        "superblock": _plain(folder.superblock),
        "pools": [_pool_facts(pool) for pool in folder.pools],
        "slots": view,
    }
    if output_format != "table":
        print_record(facts, output_format)
        return
    strip = view.pop("strip")
    print_record({"path": folder.path, **facts["superblock"], **view}, "table")
    click.echo()
    print_rows(facts["pools"], ["pool_id", "stride_bytes", "bytes", "allocated_bytes", "flaw"], "table")
    click.echo(f"\n{strip}\n{LEGEND}")


@shm.command()
@click.argument("places", nargs=-1)
@format_option()
@config_options
@click.pass_context
def verify(ctx: click.Context, config: Config, output_format: OutputFormat, places: tuple[str, ...]) -> None:
    """Check superblocks, sizes, pools and slots of PLACES, or of every epoch.

    Each is the directory of an epoch or a stream id. Exit codes: 0 when all is right (warnings aside), 1 when
    a consumer would refuse an epoch or one of its frames.

    \b
    Examples:
      tpool shm verify
      tpool shm verify 10000 --format json
    """  # noqa: D301 - see above
    from tensor_pool.ops.shm.regions import find_epochs  # noqa: PLC0415 - see above
    from tensor_pool.ops.shm.verify import verify_epoch  # noqa: PLC0415

    folders = [find_place(config, place) for place in places] or list(find_epochs(config.shm.base_dirs))
    flaws = [flaw for folder in folders for flaw in verify_epoch(folder)]
    if flaws or output_format != "table":
        rows = (msgspec.structs.asdict(flaw) for flaw in flaws)
        print_rows(rows, ["severity", "path", "what"], output_format)
    if output_format == "table":
        click.echo(f"{counted(len(folders), 'epoch')}, {counted(len(flaws), 'flaw')}", err=bool(flaws))
    has_problem = any(flaw.severity == "problem" for flaw in flaws)
    ctx.exit(exit_codes.PROBLEMS if has_problem else exit_codes.OK)


@shm.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@_offline
@_stale_after
@format_option()
@config_options
@click.pass_context
def gc(
    ctx: click.Context,
    config: Config,
    output_format: OutputFormat,
    *,
    dry_run: bool,
    yes: bool,
    offline: bool,
    stale_after_s: int,
) -> None:
    """Remove epochs that nobody uses any more.

    An epoch goes when nobody said for --older-than seconds that it is alive, no lease refers to it, and it is
    not the newest of a stream that a live driver serves. Asks before it removes. Exit codes: 0 when all of
    them went, 1 when one did not, or when the answer was no.

    \b
    Examples:
      tpool shm gc --dry-run
      tpool shm gc --yes --older-than 3600
    """  # noqa: D301 - see above
    stale = [
        item
        for item in _survey(config, offline=offline, stale_after_s=stale_after_s)
        if item.verdict.collectable
    ]
    if dry_run or not stale:
        _print_collected([(item, "would go") for item in stale], output_format)
        return
    if not (yes or _confirmed(stale)):
        _print_collected([(item, "kept") for item in stale], output_format)
        ctx.exit(exit_codes.PROBLEMS)
    refused = 0
    done: list[tuple[Surveyed, str]] = []
    for item in stale:
        try:
            _remove(item)
            done.append((item, "removed"))
        except RegionError as e:
            refused += 1
            failures.report(e)
            done.append((item, "failed"))
    _print_collected(done, output_format)
    ctx.exit(exit_codes.PROBLEMS if refused else exit_codes.OK)


def _remove(item: Surveyed) -> None:
    from tensor_pool.ops.shm.collect import remove  # noqa: PLC0415 - see above

    remove(item.folder)


def _confirmed(stale: Sequence[Surveyed]) -> bool:
    for item in stale:
        click.echo(f"{item.row.path}  {human_bytes(item.row.allocated_bytes)}  {item.row.reason}", err=True)
    total = human_bytes(sum(item.row.allocated_bytes for item in stale))
    these = "this epoch" if len(stale) == 1 else f"these {len(stale)} epochs"
    return confirmed(f"Remove {these} with {total}?")


def _print_collected(items: Sequence[tuple[Surveyed, str]], output_format: OutputFormat) -> None:
    rows = [{**msgspec.structs.asdict(item.row), "action": action} for item, action in items]
    if rows or output_format != "table":
        print_rows(rows, ["action", "path", "allocated_bytes", "reason"], output_format)
    else:
        click.echo("nothing to remove")


def _survey(config: Config, *, offline: bool, stale_after_s: int) -> list[Surveyed]:
    from tensor_pool.ops.shm import collect, survey  # noqa: PLC0415 - see above

    served: Served = collect.Served() if offline else survey.ask_driver(config)
    return survey.survey(config.shm.base_dirs, survey.this_moment(stale_after_s=stale_after_s), served)


def _pool_facts(pool: Any) -> dict[str, Any]:
    return {
        "pool_id": None if pool.superblock is None else pool.superblock.pool_id,
        "stride_bytes": None if pool.superblock is None else pool.superblock.stride_bytes,
        "bytes": pool.size_bytes,
        "allocated_bytes": pool.allocated_bytes,
        "flaw": pool.flaw,
        "path": pool.path,
    }


def _plain(superblock: Any) -> dict[str, Any]:
    fields = msgspec.structs.asdict(superblock)
    return {**fields, "region_type": superblock.region_type.name}

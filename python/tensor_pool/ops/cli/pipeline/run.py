"""``tpool pipeline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import WholeNumber, format_option
from tensor_pool.ops.cli.output import print_record, print_rows
from tensor_pool.ops.cli.pipeline.monitor import monitor
from tensor_pool.ops.cli.pipeline.named_frame import NamedFrame
from tensor_pool.ops.cli.pipeline.serve import serve
from tensor_pool.ops.cli.pipeline.splits import Splits

if TYPE_CHECKING:
    from tensor_pool.control.values import FrameRef
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["pipeline"]

_OWN: Final = ("read_bytes", "windows", "count", "size", "contrast", "splits", "by", "every", "dataset")
"""Options that belong to some of the jobs."""


@click.group()
def pipeline() -> None:
    """Run jobs over recordings with Spark."""


pipeline.add_command(monitor)
pipeline.add_command(serve)


@pipeline.command("list")
@format_option()
def list_jobs(output_format: OutputFormat) -> None:
    """List the jobs that `tpool pipeline run` knows.

    \b
    Examples:
      tpool pipeline list
      tpool pipeline list --format json
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.pipeline.jobs.registry import JOBS  # noqa: PLC0415 - help needs none of it

    rows = [
        {
            "job": each.name,
            "reads_tensors": each.reads_tensors,
            "options": [f"--{name.replace('_', '-')}" for name in each.options],
            "summary": each.summary,
        }
        for each in JOBS.values()
    ]
    print_rows(rows, ("job", "reads_tensors", "options", "summary"), output_format)


@pipeline.command()
@click.argument("name")
@click.argument("recording")
@click.option("--stream", "streams", multiple=True, metavar="NAME", help="Only this stream; repeatable.")
@click.option("--from", "start", metavar="TIME", help="Only frames from then on: ISO 8601 or nanoseconds.")
@click.option("--to", "end", metavar="TIME", help="Only frames up to then.")
@click.option(
    "--frame",
    "frames",
    type=NamedFrame(),
    multiple=True,
    metavar="STREAM/EPOCH/SEQ",
    help="thumbnails, statistics: exactly this frame; repeatable.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="tensor-pool-report",
    show_default=True,
    help="The directory of the report.",
)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("--read-bytes", is_flag=True, default=None, help="quality: read and check every byte.")
@click.option("--windows", type=WholeNumber(2, 10_000), metavar="N", help="statistics, latency: parts.")
@click.option("--count", type=WholeNumber(1, 1_000), metavar="N", help="thumbnails: frames of a stream.")
@click.option("--size", type=WholeNumber(16, 1_024), metavar="PX", help="thumbnails: the longer side.")
@click.option("--contrast", type=click.Choice(["stream", "frame"]), help="thumbnails: what it is fitted to.")
@click.option(
    "--splits", type=Splits(), metavar="NAME=PART,...", help="training-set: train=0.8,val=0.2 or times."
)
@click.option("--by", type=click.Choice(["hash", "time"]), help="training-set: what splits go by.")
@click.option("--every", type=WholeNumber(min=1), metavar="N", help="training-set: only each N-th frame.")
@click.option(
    "--dataset", metavar="PLACE", help="training-set: a directory or URI; by default dataset in --out."
)
@format_option()
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    name: str,
    recording: str,
    streams: tuple[str, ...],
    start: str | None,
    end: str | None,
    frames: tuple[FrameRef, ...],
    out: str,
    master: str,
    output_format: OutputFormat,
    **own: Any,
) -> None:
    """Run the job NAME over a RECORDING (a directory or a URI) and write a report.

    `tpool pipeline list` lists the jobs. The report is NAME.html, and NAME.json with the same numbers.
    Segments that are missing are counted, and end nothing. Exit codes: 0 when nothing is bad, 1 when
    something is: the verdict of quality, a drift, a clock that is wrong, a training set without a frame or of
    a recording with frames that can't be read, a --frame that is not there.

    \b
    Examples:
      tpool pipeline run quality recordings
      tpool pipeline run quality recordings --read-bytes --stream camera-1 --out report
      tpool pipeline run statistics recordings --from 2026-11-15T12:00:00Z --format json
      tpool pipeline run thumbnails recordings --count 48 --size 240
      tpool pipeline run thumbnails recordings --frame 10000/3/42 --frame 10000/3/57
      tpool pipeline run training-set recordings --splits train=0.8,val=0.2 --by time --out set
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.ops.cli.pipeline.progress import spark_session, told  # noqa: PLC0415 - help needs none
    from tensor_pool.pipeline.jobs.registry import job  # noqa: PLC0415

    options = {key: own[key] for key in _OWN if own[key] is not None}
    if frames and (streams or start or end):
        raise click.UsageError("--frame names a frame; --stream, --from and --to choose among all.")
    job(name).check_options(options, of_frames=bool(frames))  # said before Spark starts, which takes seconds
    from tensor_pool.pipeline.jobs.report.page import cell_text  # noqa: PLC0415
    from tensor_pool.pipeline.jobs.running import run_job  # noqa: PLC0415

    with spark_session(master) as spark, told(spark, name):
        finished = run_job(
            spark,
            name,
            recording,
            out,
            streams=streams,
            start=start,
            end=end,
            options=options,
            frames=frames,
        )
    written = finished.written
    if output_format == "table":
        first, *others = finished.report.tables
        for table in (first, *(each for each in others if each.is_printed and each.rows)):
            if table is not first:
                click.echo(f"\n{table.title}")
            rows = [{name: cell_text(row.get(name)) for name in table.columns} for row in table.rows]
            print_rows(rows, table.columns, "table")
        for note in finished.report.notes:
            click.echo(note, err=True)
    else:
        document = {
            "job": name,
            "report": msgspec.to_builtins(written),
            **msgspec.to_builtins(finished.result),
        }
        print_record(document, output_format)
    click.echo(f"report: {written.html} and {written.json}", err=True)
    ctx.exit(exit_codes.PROBLEMS if finished.result.has_problems else exit_codes.OK)

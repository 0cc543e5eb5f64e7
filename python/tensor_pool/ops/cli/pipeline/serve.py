"""``tpool pipeline serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.serving import say_where, serve_until_stopped

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["serve"]


@click.command()
@click.argument("recording")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="tensor-pool-report",
    show_default=True,
    help="The directory of pictures and reports.",
)
@click.option("--instance", default="", metavar="NAME", help="The service is pipeline:NAME then.")
@click.option(
    "--queue",
    "most_waiting",
    type=WholeNumber(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Refuse commands beyond so many that are not finished.",
)
@click.option(
    "--wait",
    "wait_s",
    type=FiniteFloat(0, 86_400),
    default=90.0,
    show_default=True,
    metavar="S",
    help="How long to wait for frames that are newer than all that is recorded.",
)
@click.option("--size", type=WholeNumber(16, 1_024), metavar="PX", help="The longer side of pictures.")
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@format_option()
@config_options
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    recording: str,
    out: str,
    instance: str,
    most_waiting: int,
    wait_s: float,
    size: int | None,
    master: str,
) -> None:
    """Work on frames of a RECORDING that events name, until Ctrl-C or SIGTERM.

    The service `pipeline` takes thumbnail=ref:STREAM/EPOCH/SEQ, statistics=ref:STREAM/EPOCH/SEQ and run=JOB.
    Commands are accepted at once and done in their turn; thumbnail.done, or thumbnail.failed, tells what
    became of one. The recording may grow meanwhile: what a recorder has not sealed yet is waited for. Exit
    codes: 0 when told to stop, 1 when Spark ends, 3 without a media driver.

    \b
    Examples:
      tpool pipeline serve recordings --out interesting
      tpool send pipeline thumbnail=ref:10000/3/42
      tpool events --follow --tag pipeline
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.control.config import ControlSection  # noqa: PLC0415 - help needs none of it
    from tensor_pool.control.tags import service_tag  # noqa: PLC0415
    from tensor_pool.ops.cli.asking import check_media_driver  # noqa: PLC0415
    from tensor_pool.ops.cli.pipeline.progress import spark_session  # noqa: PLC0415
    from tensor_pool.pipeline.record.recording import Recording  # noqa: PLC0415

    try:
        service_tag("pipeline", instance)
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    # What is wrong is said before Spark starts, which takes seconds.
    config[ControlSection].require_enabled()
    Recording(recording)
    check_media_driver(config)
    from tensor_pool.pipeline.jobs.pipeline_service import PipelineService  # noqa: PLC0415 - imports Spark

    with (
        spark_session(master) as spark,
        PipelineService(
            spark,
            recording,
            out,
            instance=instance,
            most_waiting=most_waiting,
            wait_s=wait_s,
            size=size,
            on_outcome=lambda key, text: click.echo(f"{key} {text}", err=True),
            config=config,
        ) as running,
    ):
        where = {"service": running.tag, "recording": recording, "out": out}
        code = serve_until_stopped(
            running, lambda: say_where(where, output_format), what="service of the pipeline"
        )
    ctx.exit(code)

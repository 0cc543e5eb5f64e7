"""The demo's second half: Spark finds the camera's defect in what was recorded, and makes a training set."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tensor_pool.pipeline.jobs.running import Finished
    from tensor_pool.pipeline.jobs.verdicts import Finding

__all__ = ["DEAD_AFTER", "Places", "analyse", "of_the_machine"]

DEAD_AFTER: Final = 0.6
"""Which part of the pictures comes before the defect."""
_OURS: Final = "made-by-tpool-demo"
_OF_THE_MACHINE: Final = {"jitter_share", "late_share"}
"""What of the quality says something about the machine, and nothing about what came."""
_SPLITS: Final = {"train": 0.8, "val": 0.2}


class Places:
    """Where the demo leaves what it makes.

    Args:
        directory: Made when it is not there; what an earlier demo left in it is replaced.

    Raises:
        ConfigError: There is something else in it.
    """

    def __init__(self, directory: Path) -> None:
        if directory.exists() and any(directory.iterdir()) and not (directory / _OURS).exists():
            raise ConfigError(
                f"{directory} is not empty, and no demo made it", hint="choose another directory"
            )
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        (directory / _OURS).touch()
        self.recording: Final = directory / "recording"
        self.report: Final = directory / "report"
        self.dataset: Final = directory / "dataset"


def analyse(
    spark: SparkSession,
    places: Places,
    *,
    step: Callable[[str], AbstractContextManager[None]],
    tell: Callable[[str], None],
) -> None:
    """Runs jobs over the recording and writes a training set; tells what they found.

    Args:
        spark: The session.
        places: Where the recording is, and where results go.
        step: Entered with the name of each piece of work while it is done.
        tell: Called with lines for people.
    """
    from tensor_pool.pipeline import spark as tps  # noqa: PLC0415 - needs the extra `spark`
    from tensor_pool.pipeline.jobs import run_job  # noqa: PLC0415

    def run(name: str, **options: Any) -> Finished:
        with step(name):
            return run_job(spark, name, places.recording, places.report, options=options)

    quality = run("quality", read_bytes=True)
    (stream,) = quality.result.streams
    rate = f"{stream.rate_hz:.1f} a second" if stream.rate_hz else "at no steady rate"
    tell(
        f"  {stream.verdict}: {_reason(stream)}{stream.frames} frames {rate}, "
        f"{stream.missing_frames} missing, {sum(stream.damaged.values())} damaged"
    )
    for line in of_the_machine(stream.findings):
        tell(line)
    statistics = run("statistics")
    (stream,) = statistics.result.streams
    tell(f"  mean {stream.mean:.1f}, standard deviation {stream.std:.1f}")
    for band in stream.dead_bands:
        tell(f"  defect found: {_described(band)}")
    pictures = run("thumbnails", count=24)
    with step("training set"):
        df = spark.read.format("tensorpool").load(str(places.recording))
        manifest = tps.write_dataset(df, places.dataset, splits=_SPLITS, transform=_smaller)
    counts = ", ".join(f"{number} for {split}" for split, number in sorted(manifest.frames.items()))
    tell(f"  {counts}; {manifest.tensor_bytes / 1e6:.0f} MB of tensors")
    tell("")
    for what, path in (
        ("recording", places.recording),
        ("quality report", quality.written.html),
        ("statistics report", statistics.written.html),
        ("contact sheet", pictures.result.streams[0].sheet),
        ("training set", places.dataset),
    ):
        tell(f"{what + ':':<18} {path}")


def of_the_machine(findings: Iterable[Finding]) -> list[str]:
    """What to tell of findings that are about this machine, and about nothing that came: a line or none."""
    if not any(finding.measure in _OF_THE_MACHINE for finding in findings):
        return []
    return [
        "  that is how evenly pictures came here; a machine with other things to do disturbs it, no picture"
    ]


def _reason(stream: Any) -> str:
    from tensor_pool.pipeline.jobs.quality_report import why  # noqa: PLC0415 - see above

    return f"{why(stream)}; " if stream.verdict != "ok" else ""


def _smaller(picture: Any) -> Any:
    """Every fourth pixel in both directions: training does not need more of these."""
    return picture[::4, ::4].copy()


def _described(band: Any) -> str:
    return f"{band.axis} {band.first} to {band.last} are dead from frame {band.since_seq} on"

"""The demo's second half: Spark finds the camera's defect in what was recorded, and makes a training set."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["DEAD_AFTER", "Places", "analyse"]

DEAD_AFTER: Final = 0.6
"""Which part of the pictures comes before the defect."""
_OURS: Final = "made-by-tpool-demo"
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


def analyse(spark: SparkSession, places: Places, tell: Callable[[str], None]) -> None:
    """Runs jobs over the recording and writes a training set; tells what they found.

    Args:
        spark: The session.
        places: Where the recording is, and where results go.
        tell: Called with lines for people.
    """
    from tensor_pool.pipeline import spark as tps  # noqa: PLC0415 - needs the extra `spark`
    from tensor_pool.pipeline.jobs import run_job  # noqa: PLC0415

    finished = {
        name: run_job(spark, name, places.recording, places.report, options=options)
        for name, options in _JOBS.items()
    }
    (quality,) = finished["quality"].result.streams
    rate = f"{quality.rate_hz:.1f} a second" if quality.rate_hz else "at no steady rate"
    tell(f"quality: {quality.verdict}, {quality.frames} frames {rate}, {quality.missing_frames} missing")
    (statistics,) = finished["statistics"].result.streams
    tell(f"statistics: mean {statistics.mean:.1f}, standard deviation {statistics.std:.1f}")
    for band in statistics.dead_bands:
        tell(f"  defect: {_described(band)}")
    df = spark.read.format("tensorpool").load(str(places.recording))
    manifest = tps.write_dataset(df, places.dataset, splits=_SPLITS, transform=_smaller)
    counts = ", ".join(f"{number} for {split}" for split, number in sorted(manifest.frames.items()))
    tell(f"training set: {counts}, {manifest.tensor_bytes / 1e6:.0f} MB of tensors in {places.dataset}")
    for name in _JOBS:
        tell(f"report: {finished[name].written.html}")
    for sheet in sorted(places.report.glob("contact-*.png")):
        tell(f"contact sheet: {sheet}")


_JOBS: Final[dict[str, dict[str, Any]]] = {"quality": {}, "statistics": {}, "thumbnails": {"count": 24}}


def _smaller(picture: Any) -> Any:
    """Every fourth pixel in both directions: training does not need more of these."""
    return picture[::4, ::4].copy()


def _described(band: Any) -> str:
    return f"{band.axis} {band.first} to {band.last} are dead from frame {band.since_seq} on"

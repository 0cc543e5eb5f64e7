"""How old a camera's frame is when a streaming query has computed with it: 100 Hz x 1 MiB, two cores."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from results import MIB, Results, progress
from steady_camera import STREAM, Plan, steady_camera

from tensor_pool.pipeline import spark as tps
from tensor_pool.testing import Cluster, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES: Final = 2
RATE_HZ: Final = 100
SECONDS: Final = 30
WARM_UP_S: Final = 5
SLOTS: Final = 512
"""Five seconds of frames."""


def measure(spark: SparkSession, results: Results, host: Cluster) -> None:
    """Runs a query over a camera for a while."""
    progress(f"a live query over {RATE_HZ} Hz x 1 MiB for {SECONDS + WARM_UP_S} s")
    settings = {key: str(value) for key, value in host.settings.items()}
    ages: list[tuple[int, int]] = []
    gaps: list[int] = []

    def keep(batch: DataFrame, number: int) -> None:
        del number
        for row in batch.collect():
            if row.status == "ok":
                ages.append((row.timestamp_ns, row.done_ns))
            else:
                gaps.append(row["count"])

    plan = Plan(settings=settings, rate_hz=RATE_HZ, size=MIB, slots=SLOTS)
    with steady_camera(plan) as go:
        source = spark.readStream.format("tensorpool").option("mode", "live").option("stream", STREAM)
        frames = source.option("settings", json.dumps(settings)).load()
        means = tps.map_tensors(
            frames,
            lambda tensor: {"mean": float(tensor.mean()), "done_ns": time.monotonic_ns()},
            "mean double, done_ns long",
            keep=("timestamp_ns", "status", "count"),
        )
        query = means.writeStream.foreachBatch(keep).start()
        wait_until(lambda: query.lastProgress is not None, timeout_s=60)
        go.set()
        wait_until(
            lambda: (ages and ages[-1][0] - ages[0][0] > (SECONDS + WARM_UP_S) * 1e9) or query.exception(),
            timeout_s=120,
        )
        error = query.exception()
        query.stop()
    assert error is None, error
    first = ages[0][0] + WARM_UP_S * 1_000_000_000
    steady = np.array([(done - taken) / 1e6 for taken, done in ages if taken >= first])
    p50, p99 = np.percentile(steady, (50, 99))
    results.add("age of a frame, p50", float(p50), "ms", at_most=250)
    results.add("age of a frame, p99", float(p99), "ms")
    results.add("frames", len(steady), "")
    results.add("frames lost", sum(gaps), "", at_most=0)


def main() -> int:
    """Measures."""
    results = Results(Path(__file__).stem)
    spark = tps.session(f"local[{CORES}]", name="bench")
    with Cluster() as host:
        measure(spark, results, host)
    spark.stop()
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

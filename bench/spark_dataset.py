"""Training sets written by Spark's workers from references, against ``df.write.parquet`` of the same bytes.

Both read the same recording with the same number of cores, in one session, in turn, with the default options;
the best round counts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from results import MIB, Results, label, progress

from tensor_pool.pipeline import spark as tps
from tensor_pool.pipeline.record.catalogue import Catalogue, stream_directory
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.pipeline.record.rows import Row
from tensor_pool.pipeline.record.store import StreamStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 4
"""The first one also warms up: Spark's workers, and memory that a virtual machine has to be given first."""
CORES = 2
PLANS = {8 * MIB: 128, MIB: 1024}
"""Sizes of tensors, and how many of them: enough that what every query of Spark costs weighs little."""


def record(recording: Path, size: int, frames: int) -> None:
    """A recording of random bytes, which nothing can compress."""
    source = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    about = Catalogue(stream_name="camera-1", stream_id=10_000)
    options = RecorderOptions(sync="seal")
    with StreamStore(stream_directory(recording, "camera-1"), options, about=about) as store:
        for seq in range(frames):
            source[:8] = np.frombuffer(np.int64(seq).tobytes(), np.uint8)
            row = Row(
                kind="frame",
                stream_id=10_000,
                epoch=1,
                seq=seq,
                timestamp_ns=seq,
                dtype="uint8",
                shape=(size,),
                realtime_offset_ns=0,
            )
            store.append(row, source, now_ns=seq)


def measure(results: Results, spark: SparkSession, directory: Path, size: int, frames: int) -> None:
    """One size of tensors."""
    progress(f"{frames} tensors of {label(size)}")
    recording, out = directory / "recording", directory / "out"
    record(recording, size, frames)
    splits = {"train": 0.9, "val": 0.1}

    def table(payload: str) -> DataFrame:
        source = spark.read.format("tensorpool").option("payload", payload)
        return source.load(str(recording))

    ways = {
        "write_dataset": lambda: tps.write_dataset(table("ref"), out, splits=splits),
        "df.write.parquet of bytes": lambda: (
            table("bytes").write.option("compression", "none").parquet(str(out))
        ),
        "a query that writes nothing": lambda: table("ref").count(),
    }
    best: dict[str, float] = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, write in ways.items():
            started = time.perf_counter()
            write()
            best[name] = min(best[name], time.perf_counter() - started)
            shutil.rmtree(out, ignore_errors=True)
    rows = [
        [name, f"{seconds:.2f}", f"{frames * size / seconds / 1e9:.2f}"] for name, seconds in best.items()
    ]
    results.table(f"{frames} tensors of {label(size)}, {CORES} cores", ["", "s", "GB/s"], rows)
    ours, theirs, _ = best.values()
    results.add(f"{label(size)}: write_dataset / df.write.parquet of bytes", theirs / ours, "x", at_least=2.0)
    shutil.rmtree(recording)


def main() -> int:
    """Measures all sizes."""
    results = Results(Path(__file__).stem)
    spark = tps.session(f"local[{CORES}]", name="bench", settings={"spark.driver.memory": "4g"})
    # In memory: on a disk that is slower than both, the ratio would be that of the disk with itself.
    with tempfile.TemporaryDirectory(prefix="tensor-pool-bench-", dir="/dev/shm") as directory:
        for size, frames in PLANS.items():
            measure(results, spark, Path(directory), size, frames)
    spark.stop()
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

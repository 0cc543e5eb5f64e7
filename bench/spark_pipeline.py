"""The Spark pipeline beside plain memcpy, plain loops over the same files, and its own way with bytes.

Tensors of 8 MiB on two cores. Tables of references are small, so each tensor is computed with many times:
rows are multiplied, tensors stay where they are.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from results import MIB, Results, progress

from tensor_pool.pipeline import spark as tps
from tensor_pool.pipeline.record import Recorder
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.testing import Cluster, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tensor_pool import Pool

SHAPE = (1024, 2048)
TENSOR = 8 * MIB
SLOTS = 32
CORES = 2
ROUNDS = 3
TIMES = 200
"""How often each tensor is computed with."""


def best(measure: Any, *args: Any, **kw: Any) -> float:
    """The highest of a few rounds after one that warms up; what disturbs a machine only makes it slower."""
    return max([measure(*args, **kw) for _ in range(1 + ROUNDS)][1:])


def memcpy() -> float:
    """GB/s of one thread, beyond the last cache."""
    source, target = np.ones((SLOTS, *SHAPE), "f4"), np.ones((SLOTS, *SHAPE), "f4")
    started = time.perf_counter()
    for _ in range(4):
        for slot in range(SLOTS):
            np.copyto(target[slot], source[slot])
    return 4 * SLOTS * TENSOR / (time.perf_counter() - started) / 1e9


def mean_of(df: DataFrame, tensors: int) -> float:
    """GB/s of a mean over all tensors of a table."""
    means = tps.map_tensors(df, lambda tensor: float(tensor.mean()), "mean double", keep=("seq", "status"))
    started = time.perf_counter()
    counted = means.where("status = 'ok' and mean is not null").count()
    seconds = time.perf_counter() - started
    assert counted == tensors, f"{counted} of {tensors} tensors"
    return tensors * TENSOR / seconds / 1e9


def times(spark: SparkSession, df: DataFrame, factor: int) -> DataFrame:
    """The same rows many times, spread over all cores."""
    return df.crossJoin(spark.range(factor).withColumnRenamed("id", "again")).repartition(4 * CORES)


def measure_live(spark: SparkSession, results: Results, host: Cluster, pool: Pool) -> None:
    """References into a ring against its bytes."""
    progress("live ring: references and bytes")
    settings = json.dumps({key: str(value) for key, value in host.settings.items()})
    with pool.producer("bench", dtype="float32", shape=SHAPE, slots=SLOTS) as out:
        for value in range(SLOTS):
            out.publish(np.full(SHAPE, value, "float32"))

        def ring(**options: Any) -> DataFrame:
            source = spark.read.format("tensorpool").option("mode", "live").option("stream", "bench")
            return source.options(settings=settings, **options).load()

        by_ref = best(mean_of, times(spark, ring(), TIMES), SLOTS * TIMES)
        by_bytes = best(mean_of, ring(payload="bytes", partitionBytes=4 * TENSOR), SLOTS)
    copied = best(memcpy)
    results.table(
        "mean over 8 MiB tensors of a live ring, GB/s",
        ["payload", "GB/s"],
        [["ref", f"{by_ref:.2f}"], ["bytes", f"{by_bytes:.2f}"], ["memcpy, one thread", f"{copied:.2f}"]],
    )
    results.add("ref to bytes", by_ref / by_bytes, "times", at_least=20)
    results.add("ref to memcpy", by_ref / copied, "times", at_least=1.5)


def plain_mean(args: tuple[list[str], int]) -> float:
    """What a loop over files with plain pyarrow computes, in one process."""
    paths, factor = args
    total = 0.0
    for _ in range(factor):
        for path in paths:
            reader = pa.ipc.open_file(pa.memory_map(path))
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                if batch.column("kind")[0].as_py() == "frame":
                    total += float(np.frombuffer(batch.column("values").buffers()[2], "f4").mean())
    return total


def measure_recording(spark: SparkSession, results: Results, pool: Pool, directory: Path) -> None:
    """A recording through Spark against the same files in a plain loop."""
    progress("recording: Spark and a plain loop")
    frames = 4 * SLOTS
    record(pool, directory, frames)
    stream = Recording(directory)["bench"]
    paths = [str(stream.place.local / segment.file) for segment in stream.catalogue.segments]
    factor = TIMES // 3
    df = times(spark, spark.read.format("tensorpool").load(str(directory)), factor)
    by_spark = best(mean_of, df, frames * factor)
    with multiprocessing.get_context("spawn").Pool(CORES) as processes:
        processes.map(plain_mean, [(paths[:1], 1)] * CORES)

        def loop() -> float:
            started = time.perf_counter()
            processes.map(plain_mean, [(paths[n::CORES], factor) for n in range(CORES)], chunksize=1)
            return frames * factor * TENSOR / (time.perf_counter() - started) / 1e9

        by_loop = best(loop)
    results.table(
        "mean over 8 MiB tensors of a recording, GB/s",
        ["reader", "GB/s"],
        [["Spark", f"{by_spark:.2f}"], [f"plain loop, {CORES} processes", f"{by_loop:.2f}"]],
    )
    results.add("recording to a plain loop", by_spark / by_loop, "times", at_least=0.7)


def record(pool: Pool, directory: Path, frames: int) -> float:
    """Records so many frames as fast as they are taken; GB/s."""
    with (
        pool.producer("bench", dtype="float32", shape=SHAPE, slots=SLOTS) as out,
        Recorder(pool, ["bench"], directory) as recorder,
    ):
        wait_until(lambda: out.stats.consumers)
        array = np.ones(SHAPE, "float32")
        started = time.perf_counter()
        for number in range(frames):
            out.publish(array)
            while (recorder.progress["bench"].last_seq or 0) < number - SLOTS // 2:
                time.sleep(0.001)
        wait_until(lambda: recorder.progress["bench"].last_seq == frames - 1, timeout_s=120)
    seconds = time.perf_counter() - started
    assert recorder.progress["bench"].frames == frames
    return frames * TENSOR / seconds / 1e9


def write_plainly(directory: Path, frames: int) -> float:
    """The same bytes into files of the same size, synced as often; GB/s."""
    array = np.ones(SHAPE, "float32")
    per_file = 128 * MIB // TENSOR
    started = time.perf_counter()
    for first in range(0, frames, per_file):
        with (directory / f"{first}.plain").open("wb", buffering=0) as file:
            for number in range(first, min(first + per_file, frames)):
                file.write(array)
                if number % 8 == 7:
                    os.fdatasync(file.fileno())
            os.fsync(file.fileno())
    return frames * TENSOR / (time.perf_counter() - started) / 1e9


def measure_recorder(results: Results, pool: Pool, directory: Path) -> None:
    """The recorder against a plain writer."""
    progress("recorder and a plain writer")
    frames = 2 * SLOTS
    recorded, plain = [], []
    for number in range(ROUNDS):
        target = directory / str(number)
        target.mkdir()
        recorded.append(record(pool, target / "recording", frames))
        plain.append(write_plainly(target, frames))
    results.table(
        "writing 8 MiB tensors to the disk, GB/s",
        ["writer", "GB/s"],
        [["recorder", f"{max(recorded):.2f}"], ["plain files", f"{max(plain):.2f}"]],
    )
    results.add("recorder to a plain writer", max(recorded) / max(plain), "times", at_least=0.8)


def main() -> int:
    """Measures everything."""
    results = Results(Path(__file__).stem)
    spark = tps.session(f"local[{CORES}]", name="bench")
    with tempfile.TemporaryDirectory(dir=".build") as name, Cluster() as host, host.connect() as pool:
        directory = Path(name)
        measure_live(spark, results, host, pool)
        measure_recording(spark, results, pool, directory / "recording")
        measure_recorder(results, pool, directory)
    spark.stop()
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

"""Two streaming queries over one recording, for tests that kill them: a training set, and Parquet files.

    python streaming_child.py RECORDING OUT

Ends when all that is recorded has been written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

from tensor_pool.pipeline import spark as tps
from tensor_pool.testing import wait_until

FRAMES_PER_BATCH = {"files": 8, "set": 30}
"""Files are done sooner than training sets, and both are to be killed in mid-batch."""
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
}


def main(recording: Path, out: Path) -> None:
    spark = tps.session("local[2]", name="killed", settings=SETTINGS)

    def start(name: str) -> StreamingQuery:
        source = spark.readStream.format("tensorpool").option("maxFramesPerTrigger", FRAMES_PER_BATCH[name])
        writer = source.load(str(recording)).writeStream
        if name == "set":
            writer = writer.foreachBatch(tps.dataset_sink(out / "set", row_group_bytes=1))
        else:
            writer = writer.format("parquet").option("path", str(out / "files"))
        checkpoint = str(out / f"{name}-checkpoint")
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    # One after the other: Spark gives the process that reads a stream ten seconds to appear.
    files = start("files")
    wait_until(lambda: files.lastProgress is not None or not files.isActive, 120, what="a first batch")
    for query in (start("set"), files):
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

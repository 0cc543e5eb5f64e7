"""The live quality monitor: a streaming query that tells how streams are, window by window, with alarms."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as f

from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.jobs.columns import is_frame, stream_name
from tensor_pool.pipeline.jobs.monitor_windows import (
    Alarm,
    BatchSums,
    MonitorLimits,
    MonitorWindow,
    WindowBook,
)
from tensor_pool.pipeline.jobs.report.files import output_directory
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.spark.source import FORMAT

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ALARMS", "WINDOWS", "Monitor", "monitor"]

WINDOWS: Final = "windows.jsonl"
ALARMS: Final = "alarms.jsonl"
_US: Final = 1_000_000
_LOOK_S: Final = 0.2


class Monitor(Closing):
    """A monitor that runs; made by `monitor`."""

    def __init__(
        self,
        window_s: float,
        limits: MonitorLimits,
        *,
        out: Path | None,
        on_window: Callable[[MonitorWindow], None] | None,
        on_alarm: Callable[[Alarm], None] | None,
    ) -> None:
        self._window_us = round(window_s * _US)
        self._limits = limits
        self._book = WindowBook(window_s, limits)
        self._out = out
        self._on_window = on_window
        self._on_alarm = on_alarm
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], MonitorWindow] = {}
        self._alarms: list[Alarm] = []
        self._came: dict[str, float] = {}
        self._ended = False
        self.query: StreamingQuery | None = None
        """Spark's own handle."""

    @property
    def windows(self) -> list[MonitorWindow]:
        """What is known of each window so far, by stream and time."""
        with self._lock:
            return [msgspec.structs.replace(self._windows[key]) for key in sorted(self._windows)]

    @property
    def alarms(self) -> list[Alarm]:
        """All alarms so far, oldest first."""
        with self._lock:
            return list(self._alarms)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of the query, and raises alarms about silence meanwhile.

        Args:
            timeout_s: At most so long; None for ever.

        Returns:
            Whether it has ended.

        Raises:
            pyspark.errors.StreamingQueryException: It failed.
        """
        assert self.query is not None
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.query.awaitTermination(timeout=_LOOK_S):  # type: ignore[arg-type]
            self._listen_for_silence()
            if ends is not None and time.monotonic() >= ends:
                return False
        self._end()
        return True

    def close(self) -> None:
        """Ends the query. May be called again."""
        if self.query is not None:
            self.query.stop()
        self._end()

    def take(self, batch: DataFrame, number: int) -> None:
        """What Spark calls with each batch."""
        sums = [BatchSums(**row.asDict()) for row in self._sums(batch).collect()]
        with self._lock:
            windows, alarms = self._book.add(number, sums)
            for each in sums:
                self._came[each.stream] = time.monotonic()
        self._tell(windows, alarms)

    def _sums(self, batch: DataFrame) -> DataFrame:
        # Frames that no clock puts anywhere belong to the time at which they are read.
        when = f.unix_micros(f.coalesce("event_time", "recorded_time", f.current_timestamp()))
        age_us = f.unix_micros(f.coalesce("recorded_time", f.current_timestamp())) - f.unix_micros(
            "event_time"
        )
        frame = is_frame()
        stamp = f.when(frame, f.col("timestamp_ns"))
        age_s = f.when(frame, age_us / _US)
        return (
            batch.withColumns({"stream": stream_name(), "us": when})
            .withColumn("start_us", f.floor(f.col("us") / self._window_us).cast("long") * self._window_us)
            .groupBy("stream", "start_us")
            .agg(
                f.count_if(frame).alias("frames"),
                f.sum(f.when(frame, f.lit(0)).otherwise(f.col("count"))).alias("missing"),
                f.max("epoch").alias("epoch"),
                f.min(stamp).alias("first_ns"),
                f.max(stamp).alias("last_ns"),
                f.min("us").alias("first_us"),
                f.max("us").alias("last_us"),
                f.count(age_s).alias("ages"),
                f.coalesce(f.sum(age_s), f.lit(0.0)).alias("age_sum_s"),
                f.max(age_s).alias("age_max_s"),
            )
        )

    def _listen_for_silence(self) -> None:
        most_s = self._limits.max_silence_s
        if most_s is None:
            return
        now = time.monotonic()
        with self._lock:
            quiet = [(name, now - came) for name, came in self._came.items() if now - came > most_s]
            alarms = [alarm for name, seconds in quiet for alarm in self._book.silence(name, seconds)]
        self._tell([], alarms)

    def _end(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            windows, alarms = self._book.end()
        self._tell(windows, alarms)

    def _tell(self, windows: Sequence[MonitorWindow], alarms: Sequence[Alarm]) -> None:
        with self._lock:
            self._windows |= {(window.stream, window.start): window for window in windows}
            self._alarms += alarms
            if self._out is not None:
                _append(self._out / WINDOWS, windows)
                _append(self._out / ALARMS, alarms)
        for window in windows:
            if self._on_window is not None:
                self._on_window(window)
        for alarm in alarms:
            if self._on_alarm is not None:
                self._on_alarm(alarm)


def monitor(
    spark: SparkSession,
    path: str | None = None,
    *,
    window_s: float = 10.0,
    limits: MonitorLimits | None = None,
    out: str | os.PathLike[str] | None = None,
    on_window: Callable[[MonitorWindow], None] | None = None,
    on_alarm: Callable[[Alarm], None] | None = None,
    follow: bool = True,
    every_s: float = 1.0,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Monitor:
    r"""Watches streams: rate, missing frames and age of each window, and alarms with names.

    Only rows are looked at, no tensor. Windows are of real time; frames whose clock is not known belong to
    the window in which they are read. Rows of a window that is not over may come again with larger counts.

    Args:
        spark: The session.
        path: A recording, with ``mode="recording"``.
        window_s: How long a window is.
        limits: What is alarming.
        out: A directory for ``windows.jsonl`` and ``alarms.jsonl``, which are continued.
        on_window: Called with each window that changed.
        on_alarm: Called with each alarm.
        follow: Go on when all is read that there is; otherwise the query ends by itself.
        every_s: How often to look for more.
        checkpoint: A directory in which Spark remembers what was read, to go on there after a restart; the
            window in which that happens counts anew.
        options: Of the format ``tensorpool``, such as ``stream="camera-1"`` or ``mode="live"``.

    Raises:
        ConfigError: A number makes no sense, or the directory can't be written to.

    Example:
        >>> limits = MonitorLimits(min_rate_hz=25)
        >>> with monitor(spark, "recordings/", limits=limits) as watching:  # doctest: +SKIP
        ...     watching.wait(timeout_s=60)
        ...     print(*watching.alarms, sep="\n")
        rate_low: camera-1 at 2026-11-15T12:00:10Z: 12.5, limit 25
    """
    if not 0.001 <= window_s <= 86_400 or not every_s >= 0:
        raise ConfigError(f"window_s={window_s}, every_s={every_s}", hint="a millisecond to a day; 0 or more")
    directory = None if out is None else output_directory(out)
    limits = MonitorLimits() if limits is None else limits
    watching = Monitor(window_s, limits, out=directory, on_window=on_window, on_alarm=on_alarm)
    reader = spark.readStream.format(FORMAT).options(**{key: str(value) for key, value in options.items()})
    # Workers may run in another directory than this process.
    rows = reader.load() if path is None else reader.load(Place(path).uri)
    writer = rows.writeStream.foreachBatch(watching.take)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    if follow:
        writer = writer.trigger(processingTime=f"{every_s:g} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    watching.query = writer.start()
    return watching


def _append(path: Path, rows: Sequence[msgspec.Struct]) -> None:
    if rows:
        with path.open("ab") as file:
            file.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))

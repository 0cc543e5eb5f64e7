"""Running a job over a recording, and writing its report."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import PySparkException

from tensor_pool.errors import ConfigError, TensorPoolError
from tensor_pool.pipeline.jobs.registry import job
from tensor_pool.pipeline.jobs.report.files import output_directory, write_report
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.spark.source import FORMAT

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from tensor_pool.control.values import FrameRef
    from tensor_pool.pipeline.jobs.report.files import WrittenReport
    from tensor_pool.pipeline.jobs.report.model import Report

__all__ = ["Finished", "plain_errors", "run_job"]

_OURS: Final = re.compile(r"tensor_pool\.errors\.(\w+): (.+?)(?=\n\s*(?:try: |at |$)|$)(?:\n\s*try: (.+))?")


class Finished(NamedTuple):
    """A job that has run."""

    result: Any
    """The struct that it returned."""
    report: Report
    written: WrittenReport


def run_job(
    spark: SparkSession,
    name: str,
    recording: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    streams: Sequence[str] = (),
    start: str | None = None,
    end: str | None = None,
    options: Mapping[str, Any] | None = None,
    frames: Sequence[FrameRef] = (),
) -> Finished:
    """Runs a job over a recording and writes ``NAME.html`` and ``NAME.json``.

    Segments that are missing or damaged are counted, and end nothing.

    Args:
        spark: The session.
        name: The job.
        recording: A directory or a URI.
        out: The directory of the report.
        streams: Only these.
        start: Only frames from this real time on: ISO 8601, or nanoseconds.
        end: Only frames up to this one.
        options: Keywords for the job's function.
        frames: Exactly these, of jobs that take frames; see `work_on_frames`.

    Raises:
        ConfigError: There is no such job, it takes no frames, or an option makes no sense.
        RegionError: There is no recording, or a stream is not in it.
        TensorPoolError: Spark failed; says why as far as that is known.

    Example:
        >>> run_job(spark, "quality", "recordings/", "report/").written.html  # doctest: +SKIP
        'report/quality.html'
    """
    chosen = job(name)
    chosen.check_options(options or {}, of_frames=bool(frames))
    known = Recording(recording)
    if frames:
        if streams or start or end:
            raise ConfigError("frames, and streams or times", hint="a frame is of one stream and one time")
        from tensor_pool.pipeline.jobs.chosen_frames import work_on_frames  # noqa: PLC0415 - imports two jobs

        with plain_errors():
            result = work_on_frames(spark, name, known, frames, out, options=options)
        return _finished(result, out, recording)
    names = [known[stream].name for stream in streams] or list(known)
    directory = output_directory(out)
    reader = spark.read.format(FORMAT).option("failOnDataLoss", "false")
    for key, value in (("stream", ",".join(streams)), ("startTs", start), ("endTs", end)):
        if value:
            reader = reader.option(key, value)
    with plain_errors():
        # Workers may run in another directory than this process.
        df = reader.load(known.place.uri)
        files = (directory,) if chosen.writes_files else ()
        more = {"recording": known} if chosen.takes_recording else {}
        result = chosen.load()(df, *files, streams=names, **more, **(options or {}))
    return _finished(result, directory, recording)


def _finished(result: Any, out: str | os.PathLike[str], recording: str | os.PathLike[str]) -> Finished:
    report = result.report()
    return Finished(result, report, write_report(report, result, out, source=str(recording)))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors that travelled through Spark as what they were, without a hundred lines of Java.

    Raises:
        TensorPoolError: Spark failed.
    """
    try:
        yield
    except PySparkException as e:
        text = str(e)
        found = _OURS.search(text)
        if found is not None:
            kind = ConfigError if found[1] == "ConfigError" else TensorPoolError
            raise kind(found[2].strip(), hint=found[3]) from e
        first = next((line.strip() for line in text.splitlines() if line.strip()), type(e).__name__)
        raise TensorPoolError(f"Spark failed: {first}", hint="`tpool --debug ...` shows all of it") from e

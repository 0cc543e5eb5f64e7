"""The files of a report: a page for people and the same numbers for programs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.jobs.report.page import page

if TYPE_CHECKING:
    import os

    from tensor_pool.pipeline.jobs.report.model import Report

__all__ = ["WrittenReport", "output_directory", "write_report"]


class WrittenReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of a report are."""

    html: str
    json: str


def output_directory(out: str | os.PathLike[str]) -> Path:
    """A directory to write to; made when it is not there.

    Raises:
        ConfigError: It can't be made.
    """
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(
            f"can't write a report into {directory}: {e.strerror}", hint="choose another directory"
        ) from None
    return directory


def write_report(
    report: Report, result: Any, out: str | os.PathLike[str], *, source: str, now: dt.datetime | None = None
) -> WrittenReport:
    """Writes ``JOB.html`` and ``JOB.json``; replaces those of an earlier run.

    Args:
        report: What the page says.
        result: What the job found: a struct, as it is written to the JSON file.
        out: The directory.
        source: What it is about, such as the recording.
        now: When it was made; now if not given.

    Raises:
        ConfigError: The directory can't be written to.
    """
    directory = output_directory(out)
    made = (now or dt.datetime.now(dt.UTC)).isoformat(timespec="seconds")
    document = {
        "job": report.job,
        "source": source,
        "made": made,
        "summary": report.summary,
        "result": result,
    }
    paths = WrittenReport(
        html=str(directory / f"{report.job}.html"), json=str(directory / f"{report.job}.json")
    )
    try:
        # Half characters, as in names that are not UTF-8, can't be written.
        html = page(report, source=source, made=made).encode("utf-8", "backslashreplace")
        Path(paths.html).write_bytes(html)
        Path(paths.json).write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    except OSError as e:
        raise ConfigError(
            f"can't write a report into {directory}: {e.strerror}", hint="choose another directory"
        ) from None
    return paths

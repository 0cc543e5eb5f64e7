"""How far Spark is, told on standard error."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["spark_session", "told"]

_LOOK_S: Final = 1.0
_TELL_S: Final = 10.0


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """A session of Spark; one that was there before stays when the command ends."""
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415 - takes a second

    from tensor_pool.pipeline.spark.session import session  # noqa: PLC0415

    had_one = Session.getActiveSession() is not None
    if not had_one:
        click.echo(f"starting Spark ({master})", err=True)
    spark = session(master)
    try:
        yield spark
    finally:
        if not had_one:
            spark.stop()


@contextmanager
def told(spark: SparkSession, what: str) -> Iterator[None]:
    """Tells how many tasks are done, when that changes and every ten seconds, until the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(spark, what, over), name="spark progress", daemon=True)
    started = time.monotonic()
    click.echo(f"{what}: begins", err=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    click.echo(f"{what}: done after {time.monotonic() - started:.1f} s", err=True)


def _tell(spark: SparkSession, what: str, over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    started = last = time.monotonic()
    before = ""
    while not over.wait(_LOOK_S):
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done, total = (sum(getattr(s, name) for s in known) for name in ("numCompletedTasks", "numTasks"))
        doing = f"{done} of {total} tasks" if total else "planning"
        now = time.monotonic()
        if doing != before or now - last >= _TELL_S:
            before, last = doing, now
            click.echo(f"{what}: {doing}, {now - started:.0f} s", err=True)

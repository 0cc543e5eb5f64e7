"""How far Spark is, told on standard error."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

import click

from tensor_pool.ops.cli.pipeline.interrupting import QuietInterrupts
from tensor_pool.ops.cli.pipeline.java_words import java_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["spark_session", "told"]

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOOK_S: Final = 0.5
_TELL_S: Final = 10.0
_SAME_LINE: Final = "\r\x1b[K"


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """A session of Spark; one that was there before stays when the command ends."""
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415 - takes a second

    from tensor_pool.pipeline.spark.session import SETTINGS, session  # noqa: PLC0415

    had_one = Session.getActiveSession() is not None
    if not had_one:
        click.echo(f"starting Spark ({master})", err=True)
    # Commands run for seconds and their JVM moves no tensors: compiling it well would take a third of that.
    options = f"{SETTINGS[_JAVA_OPTIONS]} -XX:TieredStopAtLevel=1"
    with QuietInterrupts() as interrupts:
        with nullcontext() if had_one else java_words(are_wanted=lambda: not interrupts.came):
            spark = session(master, settings={_JAVA_OPTIONS: options})
        try:
            interrupts.started()
            yield spark
        except BaseException as e:
            if not interrupts.came:
                raise
            # Whatever Spark made of it: a call to Java that was cut off fails in many ways.
            raise KeyboardInterrupt from e
        finally:
            if not had_one:
                with suppress(Exception) if interrupts.came else nullcontext():
                    spark.stop()


@contextmanager
def told(spark: SparkSession, what: str) -> Iterator[None]:
    """Tells how many tasks are done until the block ends: on a line of a terminal, else now and then."""
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(spark, what, over), name="spark progress", daemon=True)
    started = time.monotonic()
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
    is_terminal = sys.stderr.isatty()
    while not over.wait(_LOOK_S):
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done, total = (sum(getattr(s, name) for s in known) for name in ("numCompletedTasks", "numTasks"))
        now = time.monotonic()
        doing = f"{what}: {f'{done} of {total} tasks' if total else 'planning'}, {now - started:.0f} s"
        if is_terminal:
            click.echo(f"{_SAME_LINE}{doing}", nl=False, err=True)
        elif now - last >= _TELL_S:
            last = now
            click.echo(doing, err=True)
    if is_terminal:
        click.echo(_SAME_LINE, nl=False, err=True)

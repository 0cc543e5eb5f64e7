"""Spark for tests: the same, with less time spent on its starts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

__all__ = ["quick_spark"]

_PYTHON = """#!/bin/sh
rest= IFS=:
for each in $PYTHONPATH; do
    case $each in *.zip) ;; *) rest=$rest:$each ;; esac
done
PYTHONPATH=${{rest#:}} exec {python} "$@"
"""


def quick_spark(directory: Path) -> dict[str, str]:
    """The environment of a program that starts a session.

    Spark begins a process of Python for each look at a table, with its archive ``pyspark.zip`` in front of
    all paths. Nothing in there is compiled, so that each one spent most of a second on that; the same package
    is installed, and has its bytecode beside it. And what Java compiles thoroughly only pays after minutes.

    Args:
        directory: Where the program lies that is Python for Spark.
    """
    python = directory / "python-for-spark"
    python.write_text(_PYTHON.format(python=shlex.quote(sys.executable)), encoding="utf-8")
    python.chmod(0o755)
    return {"PYSPARK_PYTHON": str(python), "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}

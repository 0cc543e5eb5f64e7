"""Looks at the machines of a cluster before work is given to them."""

from __future__ import annotations

import platform
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.errors import PySparkException

import tensor_pool
from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Worker", "check_workers"]

_COLUMNS: Final = "host string, python string, tensor_pool string, pyarrow string, problem string"


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that works for a session, and what is installed there."""

    host: str
    python: str
    tensor_pool: str | None
    pyarrow: str
    problem: str | None
    """Why the package can't be used there."""


def check_workers(spark: SparkSession, *, tasks: int = 32) -> list[Worker]:
    """Looks whether workers can do what this session will ask of them; waits for executors to start.

    Args:
        spark: The session.
        tasks: How often to look. Spark chooses where; with many, every executor gets its turn.

    Raises:
        ConfigError: A worker has another Python, no package, or another version of it; says what to do.

    Example:
        >>> check_workers(tps.session("spark://host:7077"))  # doctest: +SKIP
        [Worker(host='node-1', python='3.11', tensor_pool='0.1.0', pyarrow='26.0.0', problem=None)]
    """
    try:
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(_looking(), _COLUMNS).distinct().collect()
    except PySparkException as e:
        raise _explained(str(e)) from None
    found = [Worker(**row.asDict()) for row in sorted(rows)]
    for worker in found:
        if worker.problem is not None:
            raise ConfigError(
                f"workers on {worker.host} can't use tensor_pool: {worker.problem}",
                hint="pip install 'shm-tensor-pool[spark]' for the Python of every worker "
                "(PYSPARK_PYTHON, spark.pyspark.python), or ship an environment with --archives",
            )
        if worker.tensor_pool != tensor_pool.__version__:
            raise ConfigError(
                f"workers on {worker.host} have tensor_pool {worker.tensor_pool}, "
                f"this program has {tensor_pool.__version__}",
                hint="install the same version everywhere",
            )
    return found


def _looking() -> Any:
    """A function that travels by its code, not by its name: where it runs the package may be missing."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib  # noqa: PLC0415
        import platform as here  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415, ICN001 - the short name is the type's above

        for _ in batches:
            pass
        version, problem = None, None
        try:
            package = importlib.import_module("tensor_pool")
            importlib.import_module("tensor_pool._native")
            importlib.import_module("tensor_pool.pipeline.spark")
            version = package.__version__
        except Exception as e:  # whatever it is, it is what has to be told
            problem = f"{type(e).__name__}: {e}"
        seen = {
            "host": here.node(),
            "python": ".".join(here.python_version_tuple()[:2]),
            "tensor_pool": version,
            "pyarrow": pyarrow.__version__,
            "problem": problem,
        }
        kinds = [(name, pyarrow.string()) for name in seen]
        yield pyarrow.RecordBatch.from_pylist([seen], pyarrow.schema(kinds))

    return look


def _explained(text: str) -> ConfigError:
    """What Spark says of workers that can't even start, in one line."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if "PYTHON_VERSION_MISMATCH" in text:
        theirs = re.search(r"different version[^:]*: \(?'?([\d., ]+)", text)
        other = f" ({theirs[1].strip(', ')})" if theirs else ""
        return ConfigError(
            f"workers run another Python{other} than this program ({mine})",
            hint=f"point PYSPARK_PYTHON, or spark.pyspark.python, to a Python {mine} on every worker",
        )
    last = [
        line.strip() for line in text.splitlines() if re.match(r"\s*\w+(\.\w+)*(Error|Exception)\b", line)
    ]
    return ConfigError(
        f"workers can't run Python as {platform.node()} does: {(last or [text.strip()[:300]])[-1]}",
        hint="every worker needs this Python with 'shm-tensor-pool[spark]'; see the guide about clusters",
    )

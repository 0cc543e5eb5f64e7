"""Sessions of Spark with the settings that pay for tensors."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from tensor_pool.errors import ConfigError, TensorPoolError
from tensor_pool.pipeline.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SETTINGS", "session"]

SETTINGS: Final[Mapping[str, str]] = {
    # Spark asks for filters only with this; see the option `filterPushdown` of the format.
    "spark.sql.python.filterPushdown.enabled": "true",
    # What travels between the JVM and Python does so faster, and in pieces that fit.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    # Tables of descriptors are small.
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",
    # Parquet with large cells: look at sizes after each row, not after a hundred.
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    "spark.hadoop.parquet.page.size.row.check.max": "1",
    "spark.hadoop.parquet.block.size.row.check.min": "1",
    "spark.hadoop.parquet.block.size.row.check.max": "1",
    "spark.sql.parquet.columnarReaderBatchSize": "8",
    # Nobody has asked for a web server.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # Spark's usual way to write checkpoints starts a process (chmod) for each file of a local disk: 40 ms,
    # twice in each batch, instead of 10. Both rename whole files into their place.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_MASTER: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?|local-cluster\[\d+,\s*\d+,\s*\d+\]|yarn|k8s://.+|spark://.+:\d+"
)
_MASTERS: Final = (
    "local[*] for all cores of this machine, local[2] for two, or a cluster: spark://host:7077, yarn, "
    "k8s://https://host:443"
)
_QUIET: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# Where this one differs from the root, Spark says two lines about it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
"""


def session(
    master: str = "local[*]", *, name: str = "tensor-pool", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session of Spark that knows the format ``tensorpool``; the one that is there, if there is one.

    Args:
        master: Where it runs: this process (``local[*]``), or a cluster such as ``spark://host:7077``.
        name: What the cluster calls it.
        settings: More of Spark's settings, or others than those of `SETTINGS`.

    Raises:
        ConfigError: There is no Java, or no master of that name.
        TensorPoolError: Spark does not start; says why as far as that is known.

    Example:
        >>> spark = session("local[2]")  # doctest: +SKIP
        >>> df = spark.read.format("tensorpool").load("recordings/")  # doctest: +SKIP
    """
    _check_master(master)
    _check_java()
    # Workers run this very interpreter, with the packages that this one has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = {**SETTINGS, **(_LOCAL_SETTINGS if is_local else {}), **(settings or {})}
    options = f"-Dlog4j2.configurationFile={_log_settings().as_uri()}"
    chosen["spark.driver.extraJavaOptions"] = f"{chosen['spark.driver.extraJavaOptions']} {options}"
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as e:  # errors of Java are none of PySpark's yet
        said = " ".join(str(e).split("\n\tat ")[0].split())
        raise TensorPoolError(
            f"Spark does not start with the master {master!r}: {said}", hint=_MASTERS
        ) from e
    register(spark)
    return spark


def _check_master(master: str) -> None:
    """Before Java starts, which takes seconds and says it in a hundred lines."""
    if not _MASTER.fullmatch(master):
        raise ConfigError(f"there is no master {master!r}", hint=_MASTERS)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and (home is None or not Path(home, "bin", "java").exists()):
        raise ConfigError(
            "there is no Java, which Spark needs",
            hint="install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME",
        )


def _log_settings() -> Path:
    """Where Spark is told to be quiet; it has to be a file."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensor-pool"
    path = base / "spark-log4j2.properties"
    if not path.exists() or path.read_text(encoding="ascii") != _QUIET:
        base.mkdir(parents=True, exist_ok=True)
        # Another session may be reading it at this moment.
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(_QUIET, encoding="ascii")
        fresh.replace(path)
    return path

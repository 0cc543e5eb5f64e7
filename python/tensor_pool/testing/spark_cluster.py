"""A standalone cluster of Spark on loopback: a master and workers in processes of their own.

Needs the extra ``spark`` and Java. The same by hand, on real machines, is in the guide about clusters.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError
from tensor_pool.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SparkCluster"]

_START_S: Final = 60.0
_END_S: Final = 15.0
_HOST: Final = "127.0.0.1"
_SMALL: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class SparkCluster(Closing):
    """Runs until it is closed, and then leaves no process and no file behind.

    Args:
        workers: How many; each runs programs on one core.
        environ: More of the environment of the workers, and so of the Python that they run.

    Raises:
        ConfigError: PySpark is not installed.
        AssertionError: It did not start; says what its log says.

    Example:
        >>> with SparkCluster(workers=2) as cluster:  # doctest: +SKIP
        ...     spark = tps.session(cluster.url, settings=cluster.settings)
    """

    def __init__(self, workers: int = 2, environ: Mapping[str, str] | None = None) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self.directory: Final = Path(tempfile.mkdtemp(prefix="tensor-pool-spark-"))
        self._environ = {**os.environ, **(environ or {}), **self._own_environ()}
        self.workers: Final = workers
        try:
            self.url: Final = self._start_master()
            """What programs are told: ``spark://127.0.0.1:...``."""
            logs = [self._start_worker(number) for number in range(workers)]
            for log in logs:
                self._await(log, r"Successfully registered with master")
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> dict[str, str]:
        """What a session on a loopback needs: addresses, and executors that fit into the workers."""
        return {
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": _SMALL,
            "spark.driver.extraJavaOptions": _SMALL,
        }

    def close(self) -> None:
        """Ends all processes that it started, and removes their files. May be called again."""
        for process in reversed(self._processes):
            process.terminate()  # workers end their executors, which end their Python
        for process in reversed(self._processes):
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _own_environ(self) -> dict[str, str]:
        return {
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "SPARK_LOG_DIR": str(self.directory),
            "SPARK_CONF_DIR": str(self.directory),  # not that of whoever runs the tests
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL,
        }

    def _start_master(self) -> str:
        log = self._start("master.Master", "master", "--host", _HOST, "--port", "0", "--webui-port", "0")
        return self._await(log, r"Starting Spark master at (spark://\S+)")

    def _start_worker(self, number: int) -> Path:
        work = str(self.directory / f"work-{number}")
        options = ["--host", _HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", work]
        return self._start("worker.Worker", f"worker-{number}", *options, self.url)

    def _start(self, what: str, name: str, *arguments: str) -> Path:
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - Spark's own program
                [_spark_class(), f"org.apache.spark.deploy.{what}", *arguments],
                env=self._environ,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return log

    def _await(self, log: Path, pattern: str) -> str:
        """What a process says when it is ready."""

        def found() -> re.Match[str] | None:
            text = log.read_text(encoding="utf-8", errors="replace")
            ended = [process for process in self._processes if process.poll() is not None]
            assert not ended, f"a process of the cluster ended:\n{text[-2000:]}"
            return re.search(pattern, text)

        match = wait_until(found, _START_S, what=f"Spark ({log.name})")
        assert match is not None
        return match[match.re.groups]


def _spark_class() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigError("PySpark is not installed", hint="pip install 'shm-tensor-pool[spark]'")
    return str(Path(found.origin).parent / "bin" / "spark-class")

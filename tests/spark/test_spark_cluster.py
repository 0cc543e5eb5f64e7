"""A real standalone cluster: the same answers as in one process, and errors that say what is wrong.

The session of the other tests is in this process, and there can be only one: programs for the cluster are
processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from doc_pages import DOCS, Page
from recordings import record
from tensor_pool.pipeline import spark as tps
from tensor_pool.testing.spark_cluster import SparkCluster

pytestmark = [pytest.mark.timeout(420), pytest.mark.slow]

PROGRAM = """
import json, os, runpy, sys
from pyspark.sql import SparkSession
from tensor_pool.pipeline import spark as tps

def failure(work):
    try:
        work()
    except Exception as e:
        return str(e)

def host_and_mean(tensor):
    return os.getcwd(), float(tensor.mean())

url, without_package = sys.argv[1:]
sys.argv = ["means.py", url, "recording"]
stop, SparkSession.stop = SparkSession.stop, lambda session: None  # another session takes ten seconds
runpy.run_path("means.py")

spark = tps.session(url)
context = spark.sparkContext
said = {"workers": [[w.python, w.tensor_pool] for w in tps.check_workers(spark)]}

table = spark.read.format("tensorpool").load("recording")
mapped = tps.map_tensors(table, host_and_mean, "where string, mean double")
rows = mapped.collect()
said["rows"] = sorted([row.seq, row.status, row["count"], row["mean"]] for row in rows)
said["places"] = sorted({row["where"] for row in rows if row["where"]})

# A path that means something else on each machine: here it is the directory of this program.
hidden = spark.read.format("tensorpool").load("/proc/self/cwd/recording")
said["hidden"] = failure(hidden.collect)

context.pythonVer, right = "3.9", context.pythonVer
said["version, asked for"] = failure(lambda: tps.check_workers(spark))
said["version, met"] = failure(tps.map_tensors(table, lambda t: float(t.mean()), "mean double").collect)
context.pythonVer = right

context.pythonExec = without_package
said["package, asked for"] = failure(lambda: tps.check_workers(spark))
said["package, met"] = failure(tps.map_tensors(table, lambda t: float(t.mean()), "mean double").collect)
print(json.dumps(said))
stop(spark)
"""

WITHOUT_PACKAGE = """#!/bin/sh
PYTHONPATH={directory}:$PYTHONPATH exec {python} "$@"
"""
NOT_FOUND = """
import sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensor_pool":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotInstalled())
"""


@pytest.fixture(scope="module")
def cluster():
    with SparkCluster(workers=2) as cluster:
        yield cluster
        ids = [process.pid for process in cluster._processes]
    assert len(ids) == 3
    assert not cluster.directory.exists(), "nothing is left of it"
    for pid in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture
def without_package(tmp_path):
    """A Python that has everything but our package."""
    (tmp_path / "sitecustomize.py").write_text(NOT_FOUND)
    program = tmp_path / "python"
    program.write_text(WITHOUT_PACKAGE.format(directory=tmp_path, python=sys.executable))
    program.chmod(0o755)
    return program


def run(cluster, directory, *arguments):
    """A program that ends by itself; what it prints."""
    settings = cluster.settings | {"spark.task.maxFailures": "1"}  # what fails here fails again
    given = [f"--conf {name}={value!r}" for name, value in settings.items()]
    environ = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{' '.join(given)} pyspark-shell",
    }
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environ,
        cwd=directory,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def means(table):
    rows = tps.map_tensors(table, lambda tensor: float(tensor.mean()), "mean double").collect()
    return sorted([row.seq, row.status, row["count"], row["mean"]] for row in rows)


def test_a_cluster_gives_the_answers_of_one_process_and_says_what_is_wrong(
    cluster, load, tmp_path, without_package
):
    record(tmp_path / "recording")
    (tmp_path / "means.py").write_text(Page(DOCS / "guides" / "clusters.md").files["means.py"])
    *printed, said = run(cluster, tmp_path, "-c", PROGRAM, cluster.url, without_package).splitlines()
    assert printed[-1] == "17 frames, mean 9.8", "as the guide's program says"
    said = json.loads(said)
    assert said["rows"] == means(load(tmp_path / "recording")) != []
    assert len(said["places"]) == 2, "both workers had something to do"
    assert len(said["workers"]) == 1, "two workers of one machine are the same"
    assert "there is no /proc/self/cwd/recording/camera%2F1 on" in said["hidden"]
    assert "a shared disk or an object store" in said["hidden"]
    assert said["version, asked for"].startswith("workers run another Python (3.11")
    assert "PYTHON_VERSION_MISMATCH" in said["version, met"]
    assert "can't use tensor_pool: ModuleNotFoundError: No module named" in said["package, asked for"]
    assert "pip install 'shm-tensor-pool[spark]'" in said["package, asked for"]
    assert "No module named 'tensor_pool'" in said["package, met"]

"""One session of Spark for all tests of a process; starting one takes ten seconds."""

from __future__ import annotations

import contextlib

import pytest

from quick_spark import quick_spark
from s3_server import credentials_of
from tensor_pool.pipeline import spark as tps

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory):
    """Of sessions here, and of programs that begin their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_spark(tmp_path_factory.mktemp("spark")).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(environment):
    session = tps.session("local[2]", name="tests", settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def load(spark):
    """Reads a recording with options."""

    def load(recording, **options):
        return spark.read.format("tensorpool").options(**options).load(str(recording))

    return load


@pytest.fixture
def with_credentials(spark, monkeypatch):
    """Those of a store, in this process and in those that Spark starts meanwhile."""

    @contextlib.contextmanager
    def with_credentials(server):
        with credentials_of(server):
            for name, value in server.environment.items():
                monkeypatch.setitem(spark.sparkContext.environment, name, value)
            tps.register(spark)
            yield
        monkeypatch.undo()
        tps.register(spark)

    return with_credentials

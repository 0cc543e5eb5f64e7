"""One session of Spark for all tests of a process; starting one takes ten seconds."""

from __future__ import annotations

import pytest

from tensor_pool.pipeline import spark as tps

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session")
def spark():
    session = tps.session("local[2]", name="tests", settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def load(spark):
    """Reads a recording with options."""

    def load(recording, **options):
        return spark.read.format("tensorpool").options(**options).load(str(recording))

    return load

"""Recordings in an object store as tables: the same rows and tensors, and no secret in them."""

from __future__ import annotations

import numpy as np
import pytest

from recordings import record
from s3_server import BUCKET, credentials_of, s3_server
from tensor_pool.pipeline import spark as tps
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.upload import push

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def uri(server):
    return server.uri(BUCKET, "run", credentials=False)


@pytest.fixture
def credentials(spark, server, monkeypatch):
    """In this process, and in those that Spark starts from now on."""
    with credentials_of(server):
        for name, value in server.environment.items():
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        tps.register(spark)
        yield
    monkeypatch.undo()
    tps.register(spark)


@pytest.fixture
def here(tmp_path):
    record(tmp_path / "here")
    return tmp_path / "here"


def means(table):
    rows = tps.map_tensors(table, lambda tensor: float(tensor.mean()), "mean double").collect()
    return sorted((row.seq, row.status, row["count"], row["mean"]) for row in rows)


FRAMES = [*range(7), *range(10, 20)]


@pytest.mark.usefixtures("credentials")
def test_rows_lead_to_the_tensors_that_were_sent(load, here, uri, server):
    push(here, Place(uri))
    assert means(load(uri)) == sorted([*((n, "ok", 1, float(n)) for n in FRAMES), (7, "lost", 3, None)])
    last = load(uri, payload="bytes").filter("seq >= 18").collect()
    assert [np.frombuffer(row["values"], "uint16").tolist() for row in last] == [[18] * 6, [19] * 6]
    refs = [row.ref.uri for row in load(uri).select("ref").collect() if row.ref]
    assert all(ref.startswith(f"s3://{BUCKET}/run/camera%252F1/0") for ref in refs)
    assert not [ref for ref in refs if server.secret_key in ref or "@" in ref]


@pytest.mark.usefixtures("credentials")
def test_what_is_sent_later_is_read_later_and_each_frame_once(spark, here, uri, tmp_path):
    uri = uri.replace("/run", "/followed")

    def follow():
        table = spark.readStream.format("tensorpool").option("maxFramesPerTrigger", 12).load(uri)
        writer = tps.map_tensors(table, lambda tensor: float(tensor.mean()), "mean double").writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).format("parquet")
        assert writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(90)

    push(here, Place(uri))
    follow()
    record(here, epoch=8, frames=5)
    push(here, Place(uri))
    follow()
    rows = spark.read.parquet(str(tmp_path / "out")).filter("status = 'ok'").collect()
    assert sorted((row.epoch, row.seq, row["mean"]) for row in rows) == [
        *((7, seq, float(seq)) for seq in FRAMES),
        *((8, seq, float(seq)) for seq in range(5)),
    ]


def test_workers_without_credentials_say_what_they_need(load, uri):
    with pytest.raises(Exception, match="ACCESS_DENIED") as refused:
        load(uri).collect()
    assert "spark.executorEnv.AWS_ACCESS_KEY_ID" in str(refused.value)


def test_a_uri_with_credentials_is_refused_without_repeating_them(load, server, caplog, capfd):
    with pytest.raises(Exception, match="there are credentials in the URI") as refused:
        load(server.uri(BUCKET, "run")).collect()
    said = capfd.readouterr()
    assert server.secret_key not in str(refused.value) + caplog.text + said.out + said.err

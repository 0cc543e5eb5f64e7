"""Live streams as tables: every frame once while all is well, and a row for each loss."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from pool_hosts import quick_host
from tensor_pool.pipeline import spark as tps
from tensor_pool.pipeline.machine import boot_id, host_name
from tensor_pool.pipeline.spark.live_pool import Connection, RingUri
from tensor_pool.testing import wait_until

SHAPE = (16, 16)


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def pool(host):
    with host.connect() as pool:
        yield pool


@pytest.fixture
def name(request):
    return request.node.name


class Camera:
    """Publishes frames whose values are their numbers, from a thread."""

    def __init__(self, pool, name, rate_hz=200, slots=1024):
        self.out = pool.producer(name, dtype="int64", shape=SHAPE, slots=slots)
        self.epoch = self.out.epoch
        self._rate_hz = rate_hz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.wait(1 / self._rate_hz):
            self.take()

    def take(self):
        with self.out.claim(SHAPE, "int64") as slot:
            slot.array[:] = slot.seq

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.out.close()


class Query:
    """A running query and the rows that it has brought."""

    def __init__(self, spark, host, transform=lambda df: df, **options):
        self.rows = []
        self.batches = 0
        settings = json.dumps({key: str(value) for key, value in host.settings.items()})
        df = spark.readStream.format("tensorpool").options(mode="live", settings=settings, **options).load()
        self._query = transform(df).writeStream.foreachBatch(self._take).start()

    def _take(self, df, _batch):
        self.rows += df.collect()
        self.batches += 1

    def until(self, condition, timeout_s=60):
        def met():
            if self._query.exception() is not None:
                raise self._query.exception()
            return condition()

        wait_until(met, timeout_s=timeout_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._query.stop()

    @property
    def frames(self):
        return [row for row in self.rows if row.status == "ok"]

    @property
    def gaps(self):
        return [row for row in self.rows if row.status != "ok" and row["count"]]


def first_and_last(df):
    return tps.map_tensors(df, lambda t: (int(t[0, 0]), int(t[-1, -1])), "first long, last long")


def check_complete(rows):
    """From the first row on, each number once: as a frame or in a gap."""
    at = rows[0].seq
    for row in rows:
        assert row.seq == at, (row, at)
        at += row["count"]


def test_every_frame_arrives_once_with_its_own_values(spark, host, pool, name):
    with Camera(pool, name) as camera, Query(spark, host, first_and_last, stream=name) as query:
        query.until(lambda: len(query.frames) > 300)
    assert query.gaps == []
    check_complete(query.frames)
    assert all(row.first == row.last == row.seq for row in query.frames)
    assert {row.epoch for row in query.frames} == {camera.epoch}
    ages_s = [time.time() - row.event_time.timestamp() for row in query.frames]
    assert 0 < min(ages_s) <= max(ages_s) < 120


def test_bytes_travel_for_who_asks_for_them(spark, host, pool, name):
    with Camera(pool, name), Query(spark, host, stream=name, payload="bytes") as query:
        query.until(lambda: len(query.frames) > 20)
    for row in query.frames:
        assert (np.frombuffer(row["values"], "int64") == row.seq).all()
        assert list(row.shape) == list(SHAPE)


def test_what_a_short_ring_loses_is_counted(spark, host, pool, name):
    """Eight slots at 2 kHz: a batch comes too late for most."""
    with (
        Camera(pool, name, rate_hz=2_000, slots=8),
        Query(spark, host, first_and_last, stream=name) as query,
    ):
        query.until(lambda: query.batches > 4 and query.gaps)
    check_complete([row for row in query.rows if row["count"]])
    assert {row.status for row in query.gaps} == {"overwritten"}
    assert all(row.first == row.last == row.seq for row in query.frames)


def test_another_producer_is_followed_and_its_predecessors_losses_are_told(spark, host, pool, name):
    with Query(spark, host, first_and_last, stream=name, startingOffsets="oldest") as query:
        epochs = []
        for _ in range(2):
            with Camera(pool, name) as camera:
                epochs.append(camera.epoch)
                query.until(lambda epoch=camera.epoch: sum(row.epoch == epoch for row in query.frames) > 50)
        query.until(lambda: len({row.epoch for row in query.rows}) == 2)
    first, second = ([row for row in query.rows if row.epoch == epoch and row["count"]] for epoch in epochs)
    check_complete(first)
    check_complete(second)
    assert {row.status for row in first} <= {"ok", "epoch_ended"}
    assert all(row.first == row.last == row.seq for row in query.frames)


def test_several_streams_in_one_query(spark, host, pool, name):
    with (
        Camera(pool, f"{name}-a"),
        Camera(pool, f"{name}-b", rate_hz=50),
        Query(spark, host, stream=f"{name}-a,{name}-b", maxFramesPerTrigger=40) as query,
    ):
        query.until(lambda: len({row.stream_name for row in query.frames}) == 2 and query.batches > 4)
    for stream in ("a", "b"):
        check_complete([row for row in query.rows if row.stream_name.endswith(stream)])


def test_loss_ends_the_query_for_who_wants_that(spark, host, pool, name):
    with (
        Camera(pool, name, rate_hz=2_000, slots=8),
        Query(spark, host, stream=name, failOnDataLoss=True) as query,
        pytest.raises(Exception, match=r"are lost \(overwritten\)"),
    ):
        query.until(lambda: False)


def test_a_stream_that_never_appears_ends_the_query_with_a_hint(spark, host, name):
    with (
        Query(spark, host, stream=name, waitSeconds=1) as query,
        pytest.raises(Exception, match=f"nobody has produced stream {name}"),
    ):
        query.until(lambda: False)


def test_a_table_of_what_is_in_the_ring_at_the_moment(spark, host, pool, name):
    with pool.producer(name, dtype="int64", shape=SHAPE, slots=8) as out:
        for value in range(20):
            out.publish(np.full(SHAPE, value))
        settings = json.dumps({key: str(value) for key, value in host.settings.items()})
        df = spark.read.format("tensorpool").options(mode="live", stream=name, settings=settings).load()
        rows = first_and_last(df).collect()
    assert sorted((row.seq, row.first, row.last) for row in rows) == [(v, v, v) for v in range(12, 20)]


def test_references_are_refused_where_they_mean_nothing(host, pool, name):
    """On another host, in another boot, in another epoch, or when the slot was used again."""
    with pool.producer(name, dtype="int64", shape=SHAPE, slots=8) as out:
        settings = json.dumps({key: str(value) for key, value in host.settings.items()})
        seq = out.publish(np.full(SHAPE, 7, "int64"))
        ref = {
            "kind": "ring",
            "uri": str(RingUri(name, Connection(settings=settings))),
            "host": host_name(),
            "boot": boot_id(),
        }
        row = {"status": "ok", "epoch": out.epoch, "seq": seq, "ref": ref}
        assert (tps.load_tensor(row) == 7).all()
        for changes, status, said in [
            ({"host": "elsewhere"}, "other_host", "host elsewhere"),
            ({"boot": "before"}, "other_host", "another start of this machine"),
        ]:
            with pytest.raises(tps.TensorUnavailableError, match=said) as refused:
                tps.load_tensor(row | {"ref": ref | changes})
            assert refused.value.status == status
            assert "recording" in refused.value.hint
        with pytest.raises(tps.TensorUnavailableError, match="is over") as refused:
            tps.load_tensor(row | {"epoch": out.epoch - 1})
        assert refused.value.status == "epoch_ended"
        for _ in range(8):
            out.publish(np.zeros(SHAPE, "int64"))
        with pytest.raises(tps.TensorUnavailableError, match="overwritten") as refused:
            tps.load_tensor(row)
        assert refused.value.status == "overwritten"

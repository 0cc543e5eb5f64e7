"""Tables published into a pool."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from pool_hosts import quick_host
from recordings import record, record_arrays
from tensor_pool.pipeline import spark as tps
from tensor_pool.testing import wait_until

FRAMES = [0, 1, 2, 3, 4, 5, 6, *range(10, 20)]


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
    return request.node.name.replace("[", "-").rstrip("]")


@pytest.fixture
def to_pool(host, name):
    """The options of a sink."""
    settings = json.dumps({key: str(value) for key, value in host.settings.items()})
    return {"stream": name, "settings": settings, "idleSeconds": "5"}


class Listener:
    """Collects everything of a stream, from before it exists."""

    def __init__(self, pool, name):
        self._consumer = pool.consumer(name, start="oldest", max_outstanding_seq_gap=0)
        self.frames = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        for frame in self._consumer:
            self.frames.append((frame.info, frame.copy()))

    @property
    def metadata(self):
        return self._consumer.metadata

    @property
    def stats(self):
        return self._consumer.stats

    def values(self):
        return [int(array.flat[0]) for _, array in self.frames]

    def until(self, count):
        wait_until(lambda: len(self.frames) >= count, what=f"{count} frames, got {self.values()}")


@pytest.fixture
def listener(pool, name):
    return Listener(pool, name)


@pytest.mark.parametrize("payload", ["ref", "bytes"])
def test_a_recording_is_published_with_all_that_belongs_to_it(load, listener, to_pool, tmp_path, payload):
    record(tmp_path)
    table = load(tmp_path, payload=payload).coalesce(1)
    table.write.format("tensorpool").options(**to_pool).mode("append").save()
    listener.until(len(FRAMES))
    assert listener.values() == FRAMES
    assert {(info.dtype, info.shape) for info, _ in listener.frames} == {("uint16", (2, 3))}
    assert [info.timestamp_ns for info, _ in listener.frames] == [100 * seq for seq in FRAMES]


def test_what_a_function_computes_is_published(load, listener, to_pool, tmp_path):
    record_arrays(tmp_path, [np.full((4, 4), value, "float32") for value in range(10)])

    def halve(tensor):
        half = tensor[::2, ::2] * 2
        return {"values": half.tobytes(), "dtype": half.dtype.name, "shape": list(half.shape)}

    table = tps.map_tensors(load(tmp_path), halve, "values binary, dtype string, shape array<long>")
    table.coalesce(1).write.format("tensorpool").options(**to_pool).mode("append").save()
    listener.until(10)
    assert listener.values() == [2 * value for value in range(10)]
    assert {(array.dtype.name, array.shape) for _, array in listener.frames} == {("float32", (2, 2))}


def test_batches_of_a_query_share_one_lease_and_are_not_repeated(spark, listener, to_pool, tmp_path):
    recording, checkpoint = tmp_path / "recording", tmp_path / "checkpoint"
    record(recording)

    def run():
        table = spark.readStream.format("tensorpool").option("maxFramesPerTrigger", 5).load(str(recording))
        query = (
            table.coalesce(1)
            .writeStream.format("tensorpool")
            .options(**to_pool, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    listener.until(len(FRAMES))
    assert listener.values() == FRAMES
    assert {info.epoch for info, _ in listener.frames} == {listener.frames[0][0].epoch}
    commits = sorted(path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    assert len(commits) > 2
    wait_until(lambda: listener.metadata.get("spark.batch", "").endswith(f":{len(commits) - 1}"))
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()  # as if Spark had been killed between publishing and its own note
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    run()
    record(recording, "camera-2", frames=3)
    run()
    listener.until(len(FRAMES) + 3)
    assert listener.values() == [*FRAMES, 0, 1, 2]


def test_larger_tensors_get_a_larger_ring(load, listener, to_pool, tmp_path):
    record_arrays(tmp_path, [np.full(size, 1, "uint8") for size in (10, 100, 100_000, 10)])
    table = load(tmp_path).coalesce(1)
    table.write.format("tensorpool").options(**to_pool).mode("append").save()
    wait_until(lambda: listener.frames and listener.frames[-1][1].size == 10 and len(listener.frames) >= 2)
    assert 100_000 in {array.size for _, array in listener.frames}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": ""}, "no stream to publish"),
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"slots": "many"}, "slots"),
        ({"settings": '{"aeron.dir": "/nowhere"}'}, "did not start"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(load, to_pool, tmp_path, options, said):
    record_arrays(tmp_path, [np.zeros(4, "uint8")])
    writer = load(tmp_path).write.format("tensorpool").options(**{**to_pool, **options}).mode("append")
    with pytest.raises(Exception, match=said):
        writer.save()


def test_tables_without_tensors_are_refused(spark, to_pool):
    with pytest.raises(Exception, match="the table lacks dtype, shape, values"):
        spark.range(3).write.format("tensorpool").options(**to_pool).mode("append").save()


GOOD = (b"abcd", "uint8", [4])
ROW = "values binary, dtype string, shape array<int>"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((None, "uint8", [4]), "row 1 of a batch: the row has no values"),
        ((b"abcd", "uint8", None), "row 1 of a batch: shape None"),
        ((b"abcd", "uint8", [None]), r"row 1 of a batch: shape \[None\]"),
        ((b"abcd", None, [4]), "row 1 of a batch: dtype None"),
        ((b"abcd", "uint8", [5]), "row 1 of a batch: 4 bytes are no uint8"),
    ],
    ids=["values", "shape", "lengths", "dtype", "length"],
)
def test_rows_that_can_not_be_published_are_said(spark, to_pool, row, said):
    table = spark.createDataFrame([GOOD, row], ROW).coalesce(1)
    with pytest.raises(Exception, match=f"can't publish {said}"):
        table.write.format("tensorpool").options(**to_pool).mode("append").save()


def test_what_a_producer_refuses_is_said(spark, to_pool):
    table = spark.createDataFrame([(*GOOD, -1)], f"{ROW}, timestamp_ns long")
    with pytest.raises(Exception, match=r"can't publish .*timestamp_ns=-1: a whole number"):
        table.write.format("tensorpool").options(**to_pool).mode("append").save()


def test_a_stream_that_somebody_else_produces_is_refused(load, pool, name, to_pool, tmp_path):
    record_arrays(tmp_path, [np.zeros(4, "uint8")])
    with (
        pool.producer(name, dtype="uint8", shape=(4,)),
        pytest.raises(Exception, match=f"can't publish {name}"),
    ):
        load(tmp_path).write.format("tensorpool").options(**to_pool).mode("append").save()

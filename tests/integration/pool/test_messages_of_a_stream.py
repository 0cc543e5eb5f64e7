"""Which messages a stream's producer and consumers send, where, when, and with what in them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pool_hosts import Ear, quick_host
from slot_files import is_committed, pool_file, slot_header_of, slot_of
from tensor_pool.datatypes import Dtype
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import wait_until
from tensor_pool.wire import decode
from tensor_pool.wire.messages import (
    ConsumerConfig,
    ConsumerHello,
    DataSourceAnnounce,
    DataSourceMeta,
    FrameDescriptor,
    FrameProgress,
    FrameProgressState,
    Mode,
    QosConsumer,
    QosProducer,
    ShmAttachRequest,
    ShmAttachResponse,
)


def frame(value: int) -> np.ndarray:
    return np.full(1000, value, "uint32")


@pytest.mark.req("WIRE-5-2", "WIRE-5-3", "WIRE-5-4", "WIRE-10.1.2-1", "DRV-2.2-2")
def test_each_message_has_its_stream() -> None:
    with quick_host() as host, Ear(host) as ear, host.connect() as pool:
        out = pool.producer("camera-1", dtype="uint32", shape=(1000,), metadata={"exposure_ms": 1.5})
        inp = pool.consumer("camera-1", progress=True, wait_s=5)
        ear.await_one(ConsumerConfig, stream_id=out.stream_id)
        out.publish(frame(1), progress=True)
        for kind in (FrameDescriptor, FrameProgress, QosConsumer, QosProducer, DataSourceMeta):
            ear.await_one(kind, stream_id=out.stream_id)
        places = {
            "control": (ConsumerHello, ConsumerConfig, FrameProgress, ShmAttachRequest, ShmAttachResponse),
            "qos": (QosConsumer, QosProducer),
            "metadata": (DataSourceAnnounce, DataSourceMeta),
            "descriptor": (FrameDescriptor,),
        }
        for place, kinds in places.items():
            for kind in kinds:
                assert ear.sources_of(kind) == {place}, kind
        assert ear.all_of(ConsumerHello)[0].consumer_id == inp.session.consumer_id


@pytest.mark.req("WIRE-10.1.2-16", "WIRE-11-2")
def test_a_hello_says_what_the_consumer_can_and_wants(pool: Pool, ear: Ear, name: str) -> None:
    out = pool.producer(name, dtype="uint32", shape=(1000,))
    plain = pool.consumer(name, wait_s=5)
    curious = pool.consumer(name, progress=True, wait_s=5)
    modest = pool.consumer(name, mode="rate_limited", max_rate_hz=10, wait_s=5)

    def hello(consumer) -> ConsumerHello:
        return ear.await_one(ConsumerHello, stream_id=out.stream_id, consumer_id=consumer.session.consumer_id)

    assert [hello(inp).supports_shm for inp in (plain, curious, modest)] == [True] * 3
    assert [hello(inp).supports_progress for inp in (plain, curious, modest)] == [False, True, False]
    assert [hello(inp).mode for inp in (plain, curious, modest)] == [
        Mode.STREAM,
        Mode.STREAM,
        Mode.RATE_LIMITED,
    ]
    assert hello(modest).max_rate_hz == 10


@pytest.mark.req("WIRE-10.1.2-8", "WIRE-10.1.2-11")
@pytest.mark.parametrize("ranges", ["", "31500-31509"])
def test_a_hello_asks_for_a_whole_stream_or_none(ranges: str) -> None:
    """A channel always comes with an id."""
    control = ranges.replace("31", "32")
    settings = {"driver__descriptor_stream_id_range": ranges, "driver__control_stream_id_range": control}
    with quick_host(**settings) as host, Ear(host) as ear, host.connect() as pool:
        pool.producer("camera-1", dtype="uint32", shape=(1000,))
        pool.consumer("camera-1", own_stream=True, progress=True, wait_s=5)
        hello = ear.await_one(ConsumerHello)
        if ranges:
            assert hello.descriptor_stream_id in range(31_500, 31_510)
            assert hello.control_stream_id in range(32_500, 32_510)
            assert (hello.descriptor_channel, hello.control_channel) == ("aeron:ipc", "aeron:ipc")
        else:
            assert (hello.descriptor_channel, hello.descriptor_stream_id) == ("", 0)
            assert (hello.control_channel, hello.control_stream_id) == ("", 0)


@pytest.mark.quiet
@pytest.mark.req("WIRE-10.4.1-1", "WIRE-10.4.1-2", "WIRE-10.4.1-3")
def test_a_consumer_reports_what_it_lost(pool: Pool, ear: Ear, name: str) -> None:
    """Gaps and lateness apart, once an interval (100 ms here)."""
    out = pool.producer(name, dtype="uint32", shape=(1000,), slots=16)
    inp = pool.consumer(name, start="oldest", max_outstanding_seq_gap=0, wait_s=5)
    writer = out._session.writer
    out.publish(frame(0))
    with writer.claim((1000,), Dtype.UINT32, seq=8) as claim:  # 1 to 7 never exist
        claim.array[:] = 8
    assert [inp.poll(timeout=5).seq for _ in range(2)] == [0, 8]

    def report() -> QosConsumer:
        return ear.all_of(QosConsumer, stream_id=out.stream_id)[-1]

    ear.await_one(QosConsumer, stream_id=out.stream_id)
    wait_until(lambda: report().last_seq_seen == 8)
    assert (report().drops_gap, report().drops_late) == (7, 0)
    for _ in range(3):
        overtaken = out.publish(frame(9))
        for _ in range(16):
            last = out.publish(frame(10))
        assert inp.session.reader.read(overtaken) is None  # its slot has another frame by now
        inp.session.reader.seek(last + 1)
    wait_until(lambda: report().drops_late == 3)
    assert report().drops_gap == 7
    before = len(ear.all_of(QosConsumer, stream_id=out.stream_id))
    time.sleep(1.0)
    assert 5 <= len(ear.all_of(QosConsumer, stream_id=out.stream_id)) - before <= 12


@pytest.mark.req("WIRE-10.2.1-4", "WIRE-10.2.1-7", "WIRE-15.7-4")
def test_both_time_stamps_of_a_frame(pool: Pool, ear: Ear, name: str) -> None:
    """When it was taken and when its descriptor left differ; both are told, and neither goes back."""
    out = pool.producer(name, dtype="uint32", shape=(1000,), stamp_descriptors=True)
    inp = pool.consumer(name, wait_s=5)
    wait_until(lambda: out.publish(frame(0)) + 1 and out.stats.descriptors_sent)
    inp.latest()
    series = []
    for value in range(1_000):
        before = time.monotonic_ns()
        seq = out.publish(frame(value))
        after = time.monotonic_ns()
        found = inp.poll(timeout=5)
        assert found.seq == seq
        assert before <= found.info.timestamp_ns <= found.info.publish_timestamp_ns <= after
        series.append((found.info.timestamp_ns, found.info.publish_timestamp_ns))
    assert series == sorted(series)
    assert [s[1] for s in series] == sorted(s[1] for s in series)
    taken = time.monotonic_ns() - 5_000_000_000
    out.publish(frame(1), timestamp_ns=taken)
    found = inp.poll(timeout=5)
    assert (found.info.timestamp_ns, found.copy()[0]) == (taken, 1)
    assert found.info.publish_timestamp_ns > taken


@pytest.mark.req("WIRE-15.7-3")
def test_latency_is_now_minus_the_time_stamp(pool: Pool, name: str) -> None:
    out = pool.producer(name, dtype="uint32", shape=(1000,))
    inp = pool.consumer(name, wait_s=5)
    out.publish(frame(1), timestamp_ns=time.monotonic_ns() - 10_000_000)
    found = inp.poll(timeout=5)
    latency_ms = (time.monotonic_ns() - found.info.timestamp_ns) / 1e6
    assert 10 <= latency_ms < 1_000


@pytest.mark.req("WIRE-10.2.1-8", "WIRE-10.2.1-9", "WIRE-8.3-19", "WIRE-8.2-8", "WIRE-10.2.2-18")
def test_what_is_told_is_there(pool: Pool, ear: Ear, name: str) -> None:
    """Whenever a descriptor or COMPLETE is heard, its slot is committed and its payload whole."""
    out = pool.producer(name, dtype="uint32", shape=(1000,), slots=2048)
    pool.consumer(name, progress=True, wait_s=5)
    address = out._session.writer.address
    (stride,) = (pool[1] for pool in address.pools)
    told: list[int] = []
    with pool_file(address).open("rb") as payloads:

        def check(seq: int) -> None:
            assert is_committed(address, seq)
            payloads.seek(64 + stride * slot_header_of(address, seq).payload_slot)
            assert (np.frombuffer(payloads.read(4000), "uint32") == seq).all()
            told.append(seq)

        for value in range(1_000):
            out.publish(frame(value), progress=True)
            # A new subscription also hears what others had not read yet, of streams of earlier tests too.
            for descriptor in ear.all_of(FrameDescriptor, stream_id=out.stream_id):
                check(descriptor.seq)
            progress = ear.all_of(FrameProgress, stream_id=out.stream_id)
            for complete in (p for p in progress if p.state is FrameProgressState.COMPLETE):
                check(complete.seq)
            started = [p.seq for p in progress if p.state is FrameProgressState.STARTED]
            assert len(started) == len(set(started))
            assert set(started) <= {value}
            ear.heard.clear()
    assert set(told) >= set(range(10, 1_000)), "the first may be sent before anybody listens"


@pytest.mark.req("WIRE-15.18-1", "WIRE-8.3-20")
def test_the_order_of_publishing(pool: Pool, ear: Ear, name: str) -> None:
    """In progress, payload, header, flush, committed, descriptor; looked at from outside after each step."""
    flushed: list[int] = []

    def flush(array: np.ndarray) -> None:
        flushed.append(slot_header_of(address, 1).seq_commit)
        assert (array == 5).all()

    out = pool.producer(name, dtype="uint32", shape=(1000,), slots=8, flush=flush)
    pool.consumer(name, wait_s=5)
    address = out._session.writer.address
    out.publish(frame(0))

    def described() -> list[int]:
        return [d.seq for d in ear.all_of(FrameDescriptor, stream_id=out.stream_id)]

    slot = out.claim((1000,), "uint32")
    header = slot_header_of(address, 1)
    assert (header.seq_commit, header.values_len_bytes) == (2, 0), "in progress, no header yet"
    slot.array[:] = 5
    with pool_file(address).open("rb") as payloads:
        payloads.seek(64 + address.pools[0][1])
        assert (np.frombuffer(payloads.read(4000), "uint32") == 5).all()
    assert slot_header_of(address, 1).seq_commit == 2
    assert 1 not in described()
    slot.commit()
    assert flushed == [2], "the flush came before the commit"
    whole = slot_of(address, 1)
    assert (whole.header.seq_commit, whole.header.values_len_bytes) == (3, 4000)
    assert whole.tensor_header is not None
    assert whole.tensor_header.dims[0] == 1000
    wait_until(lambda: 1 in described(), what="its descriptor")


class TestProgress:
    @pytest.mark.req("WIRE-10.2.2-4")
    def test_who_did_not_ask_for_it_does_not_notice(self, pool: Pool, ear: Ear, name: str) -> None:
        out = pool.producer(name, dtype="uint32", shape=(1000,))
        inp = pool.consumer(name, wait_s=5)
        slot = out.claim((1000,), "uint32", progress=True)
        slot.array[:] = 1
        slot.progress(bytes_filled=2_000)
        ear.say(FrameProgress(out.stream_id, out.epoch, 0, 4_000, FrameProgressState.COMPLETE))
        assert inp.poll(timeout=0.2) is None
        assert inp.poll_progress(timeout=0.1) is None
        slot.commit()
        assert inp.poll(timeout=5).copy()[0] == 1
        assert (inp.stats.delivered, inp.stats.drops) == (1, 0)

    @pytest.mark.req("WIRE-10.2.2-11")
    def test_complete_is_no_proof(self, pool: Pool, ear: Ear, name: str) -> None:
        out = pool.producer(name, dtype="uint32", shape=(1000,))
        inp = pool.consumer(name, progress=True, wait_s=5)
        slot = out.claim((1000,), "uint32", progress=True)
        slot.array[:] = 1
        ear.say(FrameProgress(out.stream_id, out.epoch, 0, 4_000, FrameProgressState.COMPLETE))
        assert inp.poll(timeout=0.3) is None
        slot.commit()
        assert inp.poll(timeout=5).copy()[0] == 1

    @pytest.mark.req("WIRE-10.2.2-12")
    def test_complete_is_no_descriptor(self, pool: Pool, ear: Ear, name: str) -> None:
        """Where descriptors say what there is, on a stream of one's own, progress does not."""
        out = pool.producer(name, dtype="uint32", shape=(1000,))
        inp = pool.consumer(name, own_stream=True, progress=True, wait_s=5)
        wait_until(lambda: inp.session.streams.private and out._session.private_sinks)
        out.publish(frame(9))
        assert (
            inp.poll(timeout=5).copy()[0] == 9
        )  # the first that is described: from here on nothing else counts
        claim = out._session.writer.claim((1000,), Dtype.UINT32)
        claim.array[:] = 1
        claim.commit()  # behind the producer's back: nothing goes to the private stream
        ear.say(FrameProgress(out.stream_id, out.epoch, 1, 4_000, FrameProgressState.COMPLETE))
        assert inp.poll(timeout=0.3) is None
        out.publish(frame(2))
        assert inp.poll(timeout=5).copy()[0] == 2


class TestPrivateStreams:
    @pytest.mark.quiet
    @pytest.mark.req("WIRE-5-8", "WIRE-5-9")
    def test_only_what_is_described_there_is_read_and_all_is_closed_in_the_end(
        self, pool: Pool, ear: Ear, name: str
    ) -> None:
        out = pool.producer(name, dtype="uint32", shape=(1000,), slots=1024)
        shared = pool.consumer(name, wait_s=5)
        private = pool.consumer(name, mode="rate_limited", max_rate_hz=20, wait_s=5)
        wait_until(lambda: private.session.streams.private and out._session.private_sinks)
        start = time.monotonic_ns()
        for value in range(200):  # two seconds of frames by their time stamps
            out.publish(frame(value), timestamp_ns=start + value * 10_000_000)
        assert [shared.poll(timeout=5).seq for _ in range(200)] == list(range(200))
        seen = []
        while (found := private.poll(timeout=0.3)) is not None:
            seen.append(found.seq)
        assert 30 <= len(seen) <= 42
        assert np.diff(seen).min() >= 5
        private.close()
        wait_until(lambda: out._session.private_sinks is None, 0.35, what="its publication is closed")
        out.publish(frame(1))
        assert shared.poll(timeout=5).copy()[0] == 1

    @pytest.mark.req("WIRE-5-18", "WIRE-5-19", "WIRE-5-20")
    def test_progress_comes_there_and_everything_else_where_it_always_does(
        self, pool: Pool, ear: Ear, name: str
    ) -> None:
        size = 1 << 20
        out = pool.producer(name, dtype="uint8", shape=(size,))
        inp = pool.consumer(name, own_stream=True, progress=True, wait_s=5)
        config = wait_until(
            lambda: [
                c
                for c in ear.all_of(ConsumerConfig, stream_id=out.stream_id)
                if c.control_channel and c.consumer_id == inp.session.consumer_id
            ]
        )[0]
        place = ("aeron:ipc", config.control_stream_id)
        wait_until(lambda: inp.session.streams._progress_endpoint == place)
        assert out._session.private_sinks is not None
        private = ear._client.add_subscription(*place)
        wait_until(lambda: private.connected)
        heard: list[bytes] = []
        slot = out.claim((size,), "uint8", progress=True)
        slot.array[: size // 2] = 7
        slot.progress(bytes_filled=size // 2)
        prefix = inp.poll_progress(timeout=5)
        assert prefix is not None
        assert (prefix.usable_bytes, prefix.state()) == (size // 2, "in_progress")
        slot.array[size // 2 :] = 7
        slot.commit()
        assert inp.poll(timeout=5).copy()[-1] == 7
        wait_until(lambda: heard.extend(private.receive(100)) or len(heard) >= 2)
        out.close()
        again = pool.producer(name, dtype="uint8", shape=(size,))
        wait_until(lambda: inp.stats.epoch == again.epoch, what="announces still count")
        heard.extend(private.receive(100))
        assert {type(decode(data)) for data in heard} == {FrameProgress}

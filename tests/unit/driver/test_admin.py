"""Schema 906: names, geometry, lists and status."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from driver_bench import DriverBench, only
from tensor_pool.config import StreamsSection
from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.driver.config import StaticStream
from tensor_pool.wire import encode
from tensor_pool.wire.messages import (
    DriverState,
    DriverStatus,
    GetDriverStatus,
    LeasesListed,
    ListLeases,
    ListStreams,
    QosProducer,
    ResolveStream,
    ResponseCode,
    Role,
    StreamPool,
    StreamResolved,
    StreamsListed,
)

StartDriver = Callable[..., DriverBench]


class TestResolve:
    def test_names_get_ids_and_keep_them(self, driver: DriverBench) -> None:
        first = driver.resolve("camera-1")
        assert (first.stream_id, first.created, first.producer_attached, first.epoch) == (
            20_000,
            True,
            False,
            None,
        )
        assert driver.resolve("camera-2", client_id=8).stream_id == 20_001
        again = driver.resolve("camera-1", client_id=9, role=Role.CONSUMER)
        assert (again.stream_id, again.created, again.name) == (20_000, False, "camera-1")

    def test_a_consumer_may_ask_before_there_is_a_producer(self, driver: DriverBench) -> None:
        reserved = driver.resolve("camera", client_id=8, role=Role.CONSUMER)
        assert driver.epochs == {}  # nothing is made for a question
        assert driver.resolve("camera").stream_id == reserved.stream_id
        lease = driver.attach(reserved.stream_id or 0)
        after = driver.resolve("camera", client_id=8, role=Role.CONSUMER)
        assert (after.epoch, after.producer_attached) == (lease.epoch, True)

    def test_an_id_of_the_clients_choice(self, driver: DriverBench) -> None:
        assert driver.resolve("camera", stream_id=10_005).stream_id == 10_005
        assert driver.resolve("camera").stream_id == 10_005

    def test_by_id_alone(self, driver: DriverBench) -> None:
        driver.attach()
        found = driver.resolve(client_id=8, role=Role.CONSUMER, stream_id=10_000)
        assert (found.code, found.stream_id, found.producer_attached) == (ResponseCode.OK, 10_000, True)

    def test_a_stream_may_get_its_name_later(self, driver: DriverBench) -> None:
        driver.attach()
        assert driver.resolve("camera", stream_id=10_000).code is ResponseCode.OK
        assert driver.resolve("camera").stream_id == 10_000

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({}, "neither a name nor a stream id"),
            ({"name": " x"}, "no space at either end"),
            ({"name": "a\nb"}, "printable"),
            ({"name": "x", "stream_id": 5}, "driver.creatable_ranges are"),
            ({"stream_id": 31_000}, "driver.creatable_ranges are"),
            ({"name": "taken", "stream_id": 10_001}, "'taken' is the name of stream 20000, not of 10001"),
            ({"name": "other", "stream_id": 20_000}, "stream 20000 is called 'taken', not 'other'"),
            ({"name": "x", "nslots": 3}, "3 slots: a power of two"),
            ({"name": "x", "nslots": 8, "max_frame_bytes": 2**40}, "do not fit a slot"),
            ({"name": "x", "pools": (StreamPool(63),)}, "64 times a power of two"),
            ({"name": "x", "ndims": 9}, "9 dimensions"),
            ({"name": "x", "ndims": 1, "dims": (5,) + (0,) * 7}, "without an element type"),
            (
                {"name": "x", "ndims": 1, "dims": (-5,) + (0,) * 7, "dtype": Dtype.UINT8},
                "none of them negative",
            ),
        ],
    )
    def test_nonsense_is_refused(self, driver: DriverBench, fields: dict[str, object], words: str) -> None:
        driver.resolve("taken")
        answer = driver.resolve(**fields)  # type: ignore[arg-type]
        assert answer.code is ResponseCode.INVALID_PARAMS
        assert words in answer.error_message
        assert answer.stream_id is None
        assert driver.agent.status().stream_count == 1

    def test_a_request_that_comes_twice_is_answered_the_same(self, driver: DriverBench) -> None:
        request = ResolveStream(correlation_id=900, client_id=7, name="camera")
        first, second = (only(StreamResolved, driver.say(request)) for _ in range(2))
        assert first == second
        assert first.created

    def test_static_streams_have_their_names(self, start: StartDriver) -> None:
        driver = start(static=(StaticStream(id=10_001, name="lab"),))
        assert driver.resolve("lab").stream_id == 10_001


def producer_id(driver: DriverBench) -> int:
    return only(StreamsListed, driver.say(ListStreams(2, 9))).streams[0].producer_id or 0


class TestGeometry:
    def geometry(self, driver: DriverBench, **fields: object) -> tuple[int | None, tuple[int, ...]]:
        stream_id = driver.resolve("camera", **fields).stream_id  # type: ignore[arg-type]
        lease = driver.attach(stream_id or 0)
        assert lease.code is ResponseCode.OK, lease.error_message
        return lease.header_nslots, tuple(pool.stride_bytes for pool in lease.payload_pools)

    def test_from_dtype_and_shape(self, driver: DriverBench) -> None:
        dims = (48, 64, 0, 0, 0, 0, 0, 0)
        wish = {"dtype": Dtype.UINT16, "major_order": MajorOrder.ROW, "ndims": 2, "dims": dims, "nslots": 4}
        assert self.geometry(driver, **wish) == (4, (8192,))
        entry = only(StreamsListed, driver.say(ListStreams(1, 9))).streams[0]
        assert (entry.dtype, entry.major_order, entry.ndims, entry.dims) == (
            Dtype.UINT16,
            MajorOrder.ROW,
            2,
            dims,
        )

    def test_who_produces_may_say_later_what_its_frames_are(self, driver: DriverBench) -> None:
        """A bridge attaches before it hears it."""
        stream_id = driver.resolve("camera").stream_id or 0
        producer = driver.attach(stream_id)

        def says(client_id: int) -> Dtype:
            driver.say(
                ResolveStream(
                    correlation_id=900 + client_id,
                    client_id=client_id,
                    stream_id=stream_id,
                    role=Role.PRODUCER,
                    dtype=Dtype.UINT16,
                    major_order=MajorOrder.ROW,
                    ndims=1,
                    dims=(4, 0, 0, 0, 0, 0, 0, 0),
                )
            )
            return only(StreamsListed, driver.say(ListStreams(1, 9))).streams[0].dtype

        assert says(producer_id(driver) + 1) is Dtype.UNKNOWN
        assert says(producer_id(driver)) is Dtype.UINT16
        assert producer.code is ResponseCode.OK

    def test_from_the_largest_frame(self, driver: DriverBench) -> None:
        assert self.geometry(driver, max_frame_bytes=5_000, nslots=16) == (16, (8192,))

    def test_from_pools(self, driver: DriverBench) -> None:
        pools = (StreamPool(64), StreamPool(1024))
        assert self.geometry(driver, pools=pools, nslots=2) == (2, (64, 1024))

    @pytest.mark.req("WIRE-15.6-1")
    def test_from_rate_and_latency(self, driver: DriverBench) -> None:
        assert self.geometry(driver, max_frame_bytes=64, rate_milli_hz=100_000, consumer_latency_ms=500) == (
            128,
            (64,),
        )

    def test_default_number_of_slots(self, driver: DriverBench) -> None:
        assert self.geometry(driver, max_frame_bytes=100) == (1024, (128,))

    def test_from_the_profile_when_nothing_is_said(self, driver: DriverBench) -> None:
        assert self.geometry(driver) == (8, (4096,))

    def test_only_a_number_of_slots(self, driver: DriverBench) -> None:
        assert self.geometry(driver, nslots=32) == (32, (4096,))

    def test_the_wish_of_another_client_is_not_mine(self, driver: DriverBench) -> None:
        driver.describe(10_000, client_id=8, strides=(64,))
        assert driver.attach(client_id=7).payload_pools[0].stride_bytes == 4096

    def test_a_wish_holds_for_half_a_minute(self, driver: DriverBench) -> None:
        driver.describe(10_000, strides=(64,))
        driver.pass_time(ms=31_000, step_ms=500)
        assert driver.attach().payload_pools[0].stride_bytes == 4096

    def test_the_last_geometry_is_kept_for_the_next_producer(self, driver: DriverBench) -> None:
        driver.describe(10_000, strides=(64,))
        driver.detach(driver.attach(), 7, Role.PRODUCER)
        assert driver.attach(client_id=9).payload_pools[0].stride_bytes == 64

    def test_wishes_are_bounded(self, driver: DriverBench) -> None:
        for client_id in range(1, 100):
            driver.describe(10_000, client_id=client_id, strides=(64,))
        stream = driver.agent._streams.get(10_000)
        assert stream is not None
        assert len(stream.wishes) == 16


class TestLists:
    def test_streams_with_all_that_is_known(self, driver: DriverBench) -> None:
        driver.resolve("later", client_id=5, role=Role.CONSUMER)
        driver.attach(10_000, client_id=7)
        driver.attach(10_000, client_id=8, role=Role.CONSUMER)
        page = only(StreamsListed, driver.say(ListStreams(correlation_id=1, client_id=9)))
        assert (page.correlation_id, page.client_id, page.code, page.total_count) == (
            1,
            9,
            ResponseCode.OK,
            2,
        )
        used, later = page.streams
        assert (used.stream_id, used.producer_id, used.consumer_count, used.nslots) == (10_000, 7, 1, 8)
        assert (used.max_frame_bytes, used.region_bytes) == (4096, 8 * (256 + 4096) + 128)
        assert (later.name, later.epoch, later.producer_id, later.region_bytes) == ("later", None, None, 0)

    def test_rate_and_sequence_number_come_from_the_producers_reports(self, driver: DriverBench) -> None:
        lease = driver.attach()
        assert lease.epoch is not None
        for seq in (100, 150):
            driver.clock.advance(ms=500)
            driver.qos.offer(encode(QosProducer(10_000, 7, lease.epoch, seq)))
            driver.qos.offer(encode(QosProducer(10_000, 7, lease.epoch - 1, 9)))  # of an epoch that has ended
            driver.qos.offer(encode(QosProducer(10_001, 7, lease.epoch, 9)))  # of no stream
            driver.work()
        entry = only(StreamsListed, driver.say(ListStreams(1, 9))).streams[0]
        assert (entry.current_seq, entry.rate_milli_hz) == (150, 100_000)

    def test_a_report_that_is_heard_late_hardly_changes_the_rate(self, driver: DriverBench) -> None:
        lease = driver.attach()
        assert lease.epoch is not None
        rates = []
        late = [0, 40, 0, 45, 10, 50, 0, 30, 50, 0, 50]
        for number, (before_ms, late_ms) in enumerate(itertools.pairwise([0, *late])):
            driver.clock.advance(ms=1000 + late_ms - before_ms)
            driver.qos.offer(encode(QosProducer(10_000, 7, lease.epoch, 100 * number)))
            driver.work()
            rates.append(only(StreamsListed, driver.say(ListStreams(1, 9))).streams[0].rate_milli_hz)
        assert rates[0] is None
        assert all(rate == pytest.approx(100_000, rel=0.02) for rate in rates[5:]), rates

    def test_numbers_of_a_former_epoch_mean_nothing_in_the_next(self, driver: DriverBench) -> None:
        lease = driver.attach()
        assert lease.epoch is not None
        driver.qos.offer(encode(QosProducer(10_000, 7, lease.epoch, 150)))
        driver.work()
        driver.detach(lease, 7, Role.PRODUCER)
        entry = only(StreamsListed, driver.say(ListStreams(1, 9))).streams[0]
        assert entry.epoch != lease.epoch
        assert entry.current_seq is None

    @pytest.mark.parametrize("end", ["silence", "detach"])
    def test_a_producer_that_ended_or_is_stuck_has_no_rate(self, driver: DriverBench, end: str) -> None:
        lease = driver.attach()
        assert lease.epoch is not None
        for seq in (100, 150):
            driver.clock.advance(ms=500)
            driver.qos.offer(encode(QosProducer(10_000, 7, lease.epoch, seq)))
            driver.work()
        if end == "detach":
            driver.detach(lease, 7, Role.PRODUCER)
        else:
            for _ in range(6):
                driver.clock.advance(ms=900)
                driver.keep_alive(lease, 7, Role.PRODUCER)
        entry = only(StreamsListed, driver.say(ListStreams(1, 9))).streams[0]
        assert entry.rate_milli_hz is None

    def test_pages(self, driver: DriverBench) -> None:
        for n in range(25):
            driver.resolve(f"s{n}", client_id=n + 1)
        ids = []
        for offset in range(0, 30, 10):
            page = only(StreamsListed, driver.say(ListStreams(1, 9, offset, 10)))
            assert (page.offset, page.total_count) == (offset, 25)
            ids += [entry.stream_id for entry in page.streams]
        assert ids == list(range(20_000, 20_025))
        assert only(StreamsListed, driver.say(ListStreams(1, 9, 0, 0))).streams == ()
        assert only(StreamsListed, driver.say(ListStreams(1, 9, 99, 10))).streams == ()

    def test_a_page_is_never_longer_than_a_message(self, start: StartDriver) -> None:
        driver = start(streams=StreamsSection(control_channel="aeron:ipc?term-length=64k"))
        for n in range(100):
            driver.resolve(f"s{n:03}" + "x" * 200, client_id=n + 1)
        page = only(StreamsListed, driver.say(ListStreams(1, 9)))
        assert page.total_count == 100
        assert 10 < len(page.streams) < 100

    def test_leases_of_one_stream_or_of_all(self, driver: DriverBench) -> None:
        driver.attach(10_000, client_id=1)
        driver.attach(10_001, client_id=2)
        driver.clock.advance(ms=100)
        consumer = driver.attach(10_001, client_id=3, role=Role.CONSUMER)
        driver.keep_alive(consumer, 3, Role.CONSUMER)
        page = only(LeasesListed, driver.say(ListLeases(1, 9)))
        assert [lease.client_id for lease in page.leases] == [1, 2, 3]
        page = only(LeasesListed, driver.say(ListLeases(1, 9, stream_id=10_001, offset=1)))
        assert page.total_count == 2
        (lease,) = page.leases
        assert (lease.lease_id, lease.client_id, lease.role) == (consumer.lease_id, 3, Role.CONSUMER)
        now_ns = driver.clock.monotonic_ns()
        assert (lease.granted_timestamp_ns, lease.keepalive_timestamp_ns) == (now_ns, now_ns)
        assert lease.expiry_timestamp_ns == now_ns + 3_000_000_000
        assert lease.epoch == consumer.epoch


class TestStatus:
    @pytest.mark.req("DRV-4.4-7")
    def test_says_what_clients_should_keep_to(self, start: StartDriver) -> None:
        driver = start(keepalive_interval_ms=500, expiry_grace_intervals=4, instance_id="b")
        driver.attach(client_id=1)
        driver.attach(client_id=2, role=Role.CONSUMER)
        status = only(DriverStatus, driver.say(GetDriverStatus(correlation_id=5, client_id=9)))
        assert (status.correlation_id, status.client_id, status.code) == (5, 9, ResponseCode.OK)
        assert (status.keepalive_interval_ms, status.expiry_grace_intervals) == (500, 4)
        assert (status.stream_count, status.producer_count, status.consumer_count) == (1, 1, 1)
        assert (status.state, status.instance_id, status.max_results) == (DriverState.RUNNING, "b", 1_000)
        assert status.region_bytes == 8 * (256 + 4096) + 128
        assert status.free_bytes is not None
        assert status.timestamp_ns == driver.clock.monotonic_ns()

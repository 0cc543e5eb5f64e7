"""Attach: what is granted, what is refused, and which words the driver has for it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from driver_bench import DriverBench, all_of, announces, only
from tensor_pool import _native
from tensor_pool.wire import encode
from tensor_pool.wire.messages import (
    HugepagesPolicy,
    NewerShmAttachRequest,
    NewerShmAttachResponse,
    PublishMode,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDetachResponse,
    ShmPoolAnnounce,
)
from tensor_pool.wire.shm import decode_superblock

StartDriver = Callable[..., DriverBench]

REQUEST = ShmAttachRequest(
    correlation_id=77,
    stream_id=10_000,
    client_id=7,
    role=Role.PRODUCER,
    publish_mode=PublishMode.EXISTING_OR_CREATE,
)


def region_paths(response: ShmAttachResponse | ShmPoolAnnounce) -> list[str]:
    uris = [response.header_region_uri, *(pool.region_uri for pool in response.payload_pools)]
    return [_native.parse_region_uri(uri)[0] for uri in uris]


class TestGranted:
    @pytest.mark.req(
        "DRV-4.2-3", "DRV-4.2-4", "DRV-4.2-5", "DRV-4.2-9", "DRV-4.2-10", "DRV-4.2-11", "DRV-3-3"
    )
    def test_the_answer_tells_everything_about_the_regions(self, driver: DriverBench) -> None:
        response = driver.attach()

        assert response.code is ResponseCode.OK
        assert None not in (response.lease_id, response.stream_id, response.epoch, response.layout_version)
        assert (response.stream_id, response.header_nslots, response.header_slot_bytes) == (10_000, 8, 256)
        assert [(p.pool_id, p.pool_nslots, p.stride_bytes) for p in response.payload_pools] == [(1, 8, 4096)]
        for path in region_paths(response):
            superblock = decode_superblock(Path(path).read_bytes())
            assert superblock.epoch == response.epoch
            assert superblock.layout_version == response.layout_version == 1
            assert superblock.nslots == response.header_nslots

    @pytest.mark.req("DRV-3-7", "DRV-4.2-5")
    def test_the_regions_can_be_written_and_read(self, driver: DriverBench, base: Path) -> None:
        response = driver.attach()
        assert response.stream_id is not None
        assert response.epoch is not None
        address = _native.RingAddress(
            stream_id=response.stream_id,
            epoch=response.epoch,
            nslots=response.header_nslots or 0,
            header_uri=response.header_region_uri,
            pools=[(p.pool_id, p.stride_bytes, p.region_uri) for p in response.payload_pools],
        )
        with _native.RingWriter(address, base_dirs=[base]) as writer:
            writer.publish(b"x" * 100)
        with _native.RingReader(address, base_dirs=[base]) as reader:
            frame = reader.poll()
            assert frame is not None
            assert frame.nbytes == 100

    @pytest.mark.req("DRV-4.2-2")
    def test_each_answer_has_the_correlation_id_of_its_request(self, driver: DriverBench) -> None:
        requests = [
            ShmAttachRequest(n, 10_000 + n, n, Role.PRODUCER, publish_mode=PublishMode.EXISTING_OR_CREATE)
            for n in (3, 1, 2)
        ]
        responses = all_of(ShmAttachResponse, driver.say(*requests))
        assert [(r.correlation_id, r.stream_id) for r in responses] == [(3, 10_003), (1, 10_001), (2, 10_002)]

    def test_the_answer_comes_before_the_announce(self, start: StartDriver) -> None:
        from tensor_pool.config import StreamsSection

        driver = start(streams=StreamsSection(announce_stream_id=1000))
        driver.attach()
        kinds = [type(message).__name__ for message in driver.said]
        assert kinds == ["ShmAttachResponse", "ShmPoolAnnounce"]

    @pytest.mark.req("DRV-8-2", "WIRE-15.21a.4-1")
    def test_announce_and_answer_say_the_same(self, driver: DriverBench) -> None:
        response = driver.attach()
        announce = only(ShmPoolAnnounce, driver.said)
        for name in (
            "stream_id",
            "epoch",
            "layout_version",
            "header_nslots",
            "header_region_uri",
            "payload_pools",
        ):
            assert getattr(announce, name) == getattr(response, name)
        assert all(path.startswith("/") for path in region_paths(announce))

    @pytest.mark.req("DRV-4.3-2", "DRV-4.3-4")
    @pytest.mark.parametrize("max_dims", [0, 1, 4, 8])
    def test_any_layout_version_and_no_more_dimensions_than_there_are(
        self, driver: DriverBench, max_dims: int
    ) -> None:
        response = driver.attach(max_dims=max_dims, expected_layout_version=0)
        assert (response.code, response.layout_version, response.max_dims) == (ResponseCode.OK, 1, 8)

    @pytest.mark.req("DRV-4.3-6")
    @pytest.mark.parametrize("wish", [False, None])
    def test_huge_pages_are_nobodys_wish(self, driver: DriverBench, wish: bool | None) -> None:
        assert driver.attach(require_hugepages=wish).code is ResponseCode.OK

    @pytest.mark.req("DRV-5-3")
    def test_many_consumers(self, driver: DriverBench) -> None:
        driver.attach()
        codes = {driver.attach(client_id=100 + n, role=Role.CONSUMER).code for n in range(100)}
        assert codes == {ResponseCode.OK}

    def test_stream_0_is_a_new_one_each_time(self, driver: DriverBench) -> None:
        ids = [driver.attach(0, client_id=n).stream_id for n in (1, 2, 3)]
        assert ids == [20_000, 20_001, 20_002]

    def test_the_lease_belongs_to_the_assigned_stream(self, driver: DriverBench) -> None:
        response = driver.attach(0)
        answer = only(ShmDetachResponse, driver.detach(response, 7, Role.PRODUCER))
        assert answer.code is ResponseCode.OK
        assert driver.attach(20_000).code is ResponseCode.OK


class TestNewerDialect:
    def ask(self, driver: DriverBench, **fields: object) -> NewerShmAttachResponse:
        request = NewerShmAttachRequest(
            correlation_id=5,
            stream_id=10_000,
            client_id=7,
            role=Role.PRODUCER,
            publish_mode=PublishMode.EXISTING_OR_CREATE,
            **fields,  # type: ignore[arg-type]
        )
        return only(NewerShmAttachResponse, driver.say(request))

    def test_is_answered_in_kind(self, driver: DriverBench) -> None:
        response = self.ask(driver)
        assert (response.correlation_id, response.code, response.stream_id) == (5, ResponseCode.OK, 10_000)
        assert response.payload_pools[0].stride_bytes == 4096

    def test_a_refusal_too(self, driver: DriverBench) -> None:
        driver.attach(client_id=8)
        response = self.ask(driver)
        assert response.code is ResponseCode.REJECTED
        assert "has a producer: client 8" in response.error_message

    @pytest.mark.parametrize(
        ("policy", "code"),
        [
            (HugepagesPolicy.UNSPECIFIED, ResponseCode.OK),
            (HugepagesPolicy.STANDARD, ResponseCode.OK),
            (HugepagesPolicy.HUGEPAGES, ResponseCode.REJECTED),
        ],
    )
    def test_huge_pages(self, driver: DriverBench, policy: HugepagesPolicy, code: ResponseCode) -> None:
        assert self.ask(driver, require_hugepages=policy).code is code


class TestRefused:
    @pytest.mark.req("DRV-4.2-12", "DRV-4.2-13", "DRV-4.2-15", "DRV-4.6-1")
    def test_nothing_but_the_reason_is_in_the_answer(self, driver: DriverBench) -> None:
        response = driver.attach(max_dims=200)
        assert response.correlation_id == 1
        assert response.error_message
        assert {
            response.lease_id,
            response.lease_expiry_timestamp_ns,
            response.stream_id,
            response.epoch,
            response.layout_version,
            response.header_nslots,
            response.header_slot_bytes,
            response.max_dims,
        } == {None}
        assert (response.payload_pools, response.header_region_uri) == ((), "")
        assert driver.epochs == {}

    @pytest.mark.req("DRV-4.3-1", "DRV-4.6-4")
    def test_another_layout_version(self, driver: DriverBench) -> None:
        response = driver.attach(expected_layout_version=99)
        assert response.code is ResponseCode.REJECTED
        assert "layout version 99 is expected; the driver has 1" in response.error_message

    @pytest.mark.req("DRV-4.3-3", "DRV-4.6-3")
    @pytest.mark.parametrize("max_dims", [9, 200])
    def test_more_dimensions_than_there_are(self, driver: DriverBench, max_dims: int) -> None:
        response = driver.attach(max_dims=max_dims)
        assert response.code is ResponseCode.INVALID_PARAMS
        assert f"maxDims {max_dims}" in response.error_message

    @pytest.mark.req("DRV-4.2-8")
    @pytest.mark.parametrize("mode", [PublishMode.REQUIRE_EXISTING, None])
    @pytest.mark.parametrize("role", list(Role))
    def test_a_stream_that_does_not_exist(
        self, driver: DriverBench, mode: PublishMode | None, role: Role
    ) -> None:
        response = driver.attach(mode=mode, role=role)
        assert response.code is ResponseCode.REJECTED
        assert "stream 10000 does not exist; attach with EXISTING_OR_CREATE" in response.error_message
        assert driver.attach(0, mode=mode, role=role).code is ResponseCode.REJECTED

    def test_a_name_alone_does_not_make_a_stream_exist(self, driver: DriverBench) -> None:
        stream_id = driver.resolve("camera", role=Role.CONSUMER).stream_id
        assert stream_id is not None
        response = driver.attach(stream_id, mode=PublishMode.REQUIRE_EXISTING, role=Role.CONSUMER)
        assert response.code is ResponseCode.REJECTED

    @pytest.mark.parametrize("mode", [PublishMode.REQUIRE_EXISTING, None])
    def test_one_that_exists_needs_no_creating(self, driver: DriverBench, mode: PublishMode | None) -> None:
        driver.attach()
        assert driver.attach(client_id=8, role=Role.CONSUMER, mode=mode).code is ResponseCode.OK

    @pytest.mark.req("DRV-4.3-5", "DRV-9-4")
    @pytest.mark.parametrize("role", list(Role))
    def test_huge_pages_that_are_not_there(self, driver: DriverBench, role: Role) -> None:
        response = driver.attach(require_hugepages=True, role=role)
        assert response.code is ResponseCode.REJECTED
        assert "not on hugetlbfs" in response.error_message
        assert driver.epochs == {}
        assert driver.attach().code is ResponseCode.OK

    @pytest.mark.req("DRV-4.8-5")
    def test_a_second_lease_of_one_client_id(self, driver: DriverBench) -> None:
        first = driver.attach(client_id=7)
        second = driver.attach(10_001, client_id=7)
        assert second.code is ResponseCode.REJECTED
        assert f"client id 7 holds lease {first.lease_id} of stream 10000" in second.error_message
        assert driver.agent._leases.get(first.lease_id or 0) is not None

    @pytest.mark.req("DRV-5-1", "DRV-5-2", "WIRE-15.14-3")
    def test_a_second_producer(self, driver: DriverBench) -> None:
        requests = [
            ShmAttachRequest(n, 10_000, n, Role.PRODUCER, publish_mode=PublishMode.EXISTING_OR_CREATE)
            for n in range(1, 11)
        ]
        responses = all_of(ShmAttachResponse, driver.say(*requests))
        assert [r.code for r in responses].count(ResponseCode.OK) == 1
        assert {r.code for r in responses[1:]} == {ResponseCode.REJECTED}
        assert all("stream 10000 has a producer: client 1" in r.error_message for r in responses[1:])

    def test_client_id_0(self, driver: DriverBench) -> None:
        response = driver.attach(client_id=0)
        assert (response.code, driver.epochs) == (ResponseCode.INVALID_PARAMS, {})

    @pytest.mark.parametrize("stream_id", [1, 9_999, 11_000, 31_000, 49_999, 60_000, 2**32 - 2])
    def test_ids_that_nobody_may_create(self, driver: DriverBench, stream_id: int) -> None:
        response = driver.attach(stream_id)
        assert response.code is ResponseCode.INVALID_PARAMS
        assert "driver.creatable_ranges are 10000-10999, 20000-29999, 50000-59999" in response.error_message

    @pytest.mark.parametrize("stream_id", [10_000, 10_999, 20_000, 29_999, 50_000, 59_999])
    def test_ids_that_anybody_may_create(self, driver: DriverBench, stream_id: int) -> None:
        assert driver.attach(stream_id).stream_id == stream_id

    @pytest.mark.parametrize("stream_id_range", ["", "20000-20000"])
    def test_no_id_is_left(self, start: StartDriver, stream_id_range: str) -> None:
        driver = start(stream_id_range=stream_id_range)
        driver.attach(0, client_id=1)
        response = driver.attach(0, client_id=2)
        assert response.code is ResponseCode.INVALID_PARAMS
        assert "driver.stream_id_range" in response.error_message

    @pytest.mark.req("DRV-4.6-5")
    def test_a_base_directory_that_became_a_file(self, start: StartDriver, base: Path) -> None:
        driver = start()
        stream = Path(driver.agent.directory) / "10000"
        stream.write_text("in the way")
        response = driver.attach()
        assert response.code is ResponseCode.INTERNAL_ERROR
        assert "the regions can't be made" in response.error_message
        assert len(response.error_message.encode()) <= 1024
        stream.unlink()
        assert driver.attach().code is ResponseCode.OK


class TestBroken:
    """Requests that can't be decoded are answered all the same."""

    def answer(self, driver: DriverBench, data: bytes) -> ShmAttachResponse:
        return only(ShmAttachResponse, driver.say(data))

    @pytest.mark.req("DRV-4.6-3")
    @pytest.mark.parametrize("role", [0, 3, 9, 255])
    def test_a_role_that_is_none(self, driver: DriverBench, role: int) -> None:
        data = bytearray(encode(REQUEST))
        data[8 + 16] = role
        response = self.answer(driver, bytes(data))
        assert (response.correlation_id, response.code) == (77, ResponseCode.INVALID_PARAMS)
        assert response.error_message

    @pytest.mark.req("DRV-4.6-2")
    @pytest.mark.parametrize("mode", [0, 3, 254])
    def test_a_publish_mode_of_a_later_time(self, driver: DriverBench, mode: int) -> None:
        data = bytearray(encode(REQUEST))
        data[8 + 22] = mode
        response = self.answer(driver, bytes(data))
        assert (response.correlation_id, response.code) == (77, ResponseCode.UNSUPPORTED)

    @pytest.mark.req("DRV-4.6-2")
    @pytest.mark.parametrize("version", [0, 2, 65_535])
    def test_another_version(self, driver: DriverBench, version: int) -> None:
        data = bytearray(encode(REQUEST))
        struct.pack_into("<H", data, 6, version)
        response = self.answer(driver, bytes(data))
        assert (response.correlation_id, response.code) == (77, ResponseCode.UNSUPPORTED)
        assert f"version {version} of schema 901" in response.error_message

    @pytest.mark.parametrize("block_length", [0, 23, 25, 26, 28, 65_535])
    def test_another_block_length(self, driver: DriverBench, block_length: int) -> None:
        data = bytearray(encode(REQUEST) + bytes(8))
        struct.pack_into("<H", data, 0, block_length)
        assert self.answer(driver, bytes(data)).code is ResponseCode.INVALID_PARAMS

    def test_the_newer_dialect(self, driver: DriverBench) -> None:
        request = NewerShmAttachRequest(78, 10_000, 7, Role.PRODUCER)
        data = bytearray(encode(request))
        data[8 + 16] = 9
        response = only(NewerShmAttachResponse, driver.say(bytes(data)))
        assert (response.correlation_id, response.code) == (78, ResponseCode.INVALID_PARAMS)

    @pytest.mark.parametrize("length", [0, 7, 8, 15])
    def test_too_short_to_have_an_id(self, driver: DriverBench, length: int) -> None:
        assert driver.say(encode(REQUEST)[:length]) == []
        assert driver.attach().code is ResponseCode.OK

    def test_a_flood_of_them_is_not_answered(self, start: StartDriver) -> None:
        driver = start(max_attaches_per_second=2)
        data = bytearray(encode(REQUEST))
        data[8 + 16] = 9
        assert len(driver.say(*[bytes(data)] * 10)) == 2
        assert driver.agent.counters.snapshot()["malformed messages"] == 10


class TestRepeated:
    """A request that comes twice is done once (decision L11)."""

    def test_the_same_lease_is_told_again(self, driver: DriverBench) -> None:
        first = driver.attach(correlation_id=5)
        again = driver.attach(correlation_id=5)
        assert again == first
        assert len(driver.agent._leases) == 1
        assert len(announces(driver.said)) == 1

    def test_after_its_end_it_is_refused(self, driver: DriverBench) -> None:
        first = driver.attach(correlation_id=5)
        driver.detach(first, 7, Role.PRODUCER)
        again = driver.attach(correlation_id=5)
        assert again.code is ResponseCode.REJECTED
        assert "ask again with a new correlation id" in again.error_message
        assert driver.attach(correlation_id=6).code is ResponseCode.OK

    def test_a_refusal_may_become_a_grant(self, driver: DriverBench) -> None:
        other = driver.attach(client_id=8, correlation_id=5)
        assert driver.attach(client_id=7, correlation_id=5).code is ResponseCode.REJECTED
        driver.detach(other, 8, Role.PRODUCER)
        assert driver.attach(client_id=7, correlation_id=5).code is ResponseCode.OK

    def test_a_consumer_is_told_the_present_epoch(self, driver: DriverBench) -> None:
        before = driver.attach(client_id=8, role=Role.CONSUMER, correlation_id=5)
        producer = driver.attach(client_id=7)
        again = driver.attach(client_id=8, role=Role.CONSUMER, correlation_id=5)
        assert again.lease_id == before.lease_id
        assert again.epoch == producer.epoch != before.epoch

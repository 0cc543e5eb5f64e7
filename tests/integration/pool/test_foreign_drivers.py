"""Clients against a driver that is not ours, that is wrong, or that means harm."""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from foreign_driver import ForeignDriver
from pool_hosts import LAYOUTS, LEASE_S, Ear, mapped_regions, quick_host
from tensor_pool import _native, wire
from tensor_pool.errors import RegionError
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import (
    LeaseRevokeReason,
    ResponseCode,
    Role,
    ShmAttachResponse,
    ShmDriverShutdown,
    ShmLeaseKeepalive,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    ShutdownReason,
)


@pytest.fixture(params=list(LAYOUTS))
def bare_host(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with quick_host(request.param, driver=False) as cluster:
        yield cluster


@pytest.fixture
def driver(bare_host: Cluster) -> Iterator[ForeignDriver]:
    with ForeignDriver(bare_host) as foreign:
        yield foreign


@pytest.fixture
def pool(bare_host: Cluster) -> Iterator[Pool]:
    with bare_host.connect(driver=False) as connected:
        yield connected


def frame(value: int) -> np.ndarray:
    return np.full(4, value, "uint32")


@pytest.mark.quiet
@pytest.mark.req("DRV-4.4-2")
def test_an_answer_without_expiry_is_a_lease(driver: ForeignDriver, pool: Pool) -> None:
    """Pitfall 19: what is missing has not expired; and the client's own deadline moves on."""
    out = pool.producer(10_000)
    assert driver.granted[-1][1].lease_expiry_timestamp_ns is None
    ends = time.monotonic() + 3 * LEASE_S
    while time.monotonic() < ends:
        out.publish(frame(1))
        time.sleep(0.05)
    assert out.stats.lease_losses == 0
    keepalives = driver.ear.all_of(ShmLeaseKeepalive, stream_id=10_000)
    assert {k.lease_id for k in keepalives} == {driver.granted[-1][1].lease_id}
    gaps = np.diff([k.client_timestamp_ns for k in keepalives])
    assert len(keepalives) >= 6
    assert np.median(gaps) < 400e6


def test_answers_to_others_and_of_earlier_runs_are_not_taken(driver: ForeignDriver, pool: Pool) -> None:
    """Pitfall 19: the stream is shared, and its log may replay; only the correlation id tells."""

    def change(answer: ShmAttachResponse) -> list[wire.Message]:
        refused = ShmAttachResponse(correlation_id=1, code=ResponseCode.REJECTED, error_message="not you")
        others = msgspec.structs.replace(answer, correlation_id=answer.correlation_id - 1, lease_id=1)
        return [refused, others, answer, msgspec.structs.replace(answer, lease_id=2)]

    driver.change = change
    out = pool.producer(10_000)
    out.publish(frame(1))
    lease_id = driver.granted[-1][1].lease_id
    wait_until(lambda: len(driver.ear.all_of(ShmLeaseKeepalive)) >= 3)
    assert {k.lease_id for k in driver.ear.all_of(ShmLeaseKeepalive)} == {lease_id}


@pytest.mark.req("DRV-9-5")
@pytest.mark.parametrize("role", list(Role))
def test_regions_outside_of_the_base_directory_are_refused(
    driver: ForeignDriver, pool: Pool, role: Role
) -> None:
    """The driver is believed in everything but where files may lie."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        driver.new_epoch(2, elsewhere)
        with pytest.raises(RegionError, match="allowed"):
            pool.producer(10_000) if role is Role.PRODUCER else pool.consumer(10_000)


@pytest.mark.req("DRV-3-6")
def test_regions_that_the_driver_moves_are_found_again(driver: ForeignDriver, pool: Pool) -> None:
    inp = pool.consumer(10_000, wait_s=5)
    driver.new_epoch(2, "quite-another-place")
    driver.revoke_last()
    wait_until(lambda: inp.stats.epoch == 2, what="the new place is mapped")
    assert "quite-another-place" in inp.session.reader.address.header_uri


@pytest.mark.req("DRV-4.9-6", "DRV-4.9-7", "DRV-4.7-6")
@pytest.mark.parametrize("reason", list(LeaseRevokeReason))
def test_after_the_end_of_a_lease_nothing_is_used(
    bare_host: Cluster, driver: ForeignDriver, pool: Pool, reason: LeaseRevokeReason
) -> None:
    """Frames in hand answer no, queued ones are not delivered, and nothing stays mapped."""
    mapped_before = mapped_regions(os.getpid(), bare_host)  # by the driver, which is in this process
    out = pool.producer(10_000)
    producer = driver.granted[-1]
    inp = pool.consumer(10_000, wait_s=5)
    for value in range(4):
        out.publish(frame(value))
    held = inp.poll(timeout=5)
    assert held.still_valid()
    driver.announced = None
    driver.change = lambda _answer: []  # no new lease
    driver.revoke_last(reason)
    wait_until(lambda: not inp.mapped, what="the consumer let go")
    assert not held.still_valid()
    assert inp.poll() is None
    driver.granted.append(producer)
    driver.revoke_last(reason)
    wait_until(lambda: out.epoch is None, what="the producer let go")
    wait_until(lambda: out.stats.lease_losses == 1, what="the loss is counted")
    del held
    wait_until(lambda: mapped_regions(os.getpid(), bare_host) == mapped_before, what="all is unmapped")


@pytest.mark.req("DRV-4.9-11")
def test_a_notice_with_an_unknown_reason_is_ignored(driver: ForeignDriver, pool: Pool) -> None:
    out = pool.producer(10_000)
    request, answer = driver.granted[-1]
    notice = ShmLeaseRevoked(
        timestamp_ns=time.monotonic_ns(),
        lease_id=answer.lease_id or 0,
        stream_id=10_000,
        client_id=request.client_id,
        role=Role.PRODUCER,
        reason=LeaseRevokeReason.REVOKED,
    )
    data = bytearray(wire.encode(notice))
    layout = wire.compiled_layout("ShmLeaseRevoked")
    (reason,) = (field for field in layout.fields if field.name == "reason")
    struct.pack_into("<B", data, wire.HEADER_BYTES + reason.offset, 9)
    driver.ear.say(bytes(data))
    for value in range(20):
        out.publish(frame(value))
        time.sleep(0.02)
    assert (out.epoch, out.stats.lease_losses) == (1, 0)


@pytest.mark.req("DRV-4.12-6")
def test_after_a_shutdown_nothing_is_used(bare_host: Cluster, driver: ForeignDriver, pool: Pool) -> None:
    mapped_before = mapped_regions(os.getpid(), bare_host)
    out = pool.producer(10_000)
    inp = pool.consumer(10_000, wait_s=5)
    out.publish(frame(1))
    held = inp.poll(timeout=5)
    driver.announced = None
    driver.change = lambda _answer: []
    driver.ear.say(ShmDriverShutdown(timestamp_ns=time.monotonic_ns(), reason=ShutdownReason.NORMAL))
    wait_until(lambda: not inp.mapped and out.epoch is None, what="both let go")
    assert not held.still_valid()
    assert inp.poll() is None
    del held
    wait_until(lambda: mapped_regions(os.getpid(), bare_host) == mapped_before, what="all is unmapped")


def _changed(announce: ShmPoolAnnounce, **changes: object) -> ShmPoolAnnounce:
    return msgspec.structs.replace(announce, **changes)


def _pools(announce: ShmPoolAnnounce, **changes: object) -> ShmPoolAnnounce:
    (pool,) = announce.payload_pools
    return _changed(announce, payload_pools=(msgspec.structs.replace(pool, **changes),))


MALICIOUS = {
    "no slots": lambda a: _changed(_pools(a, pool_nslots=0), header_nslots=0),
    "three slots": lambda a: _changed(_pools(a, pool_nslots=3), header_nslots=3),
    "two billion slots": lambda a: _changed(_pools(a, pool_nslots=2**31), header_nslots=2**31),
    "stride 0": lambda a: _pools(a, stride_bytes=0),
    "stride 63": lambda a: _pools(a, stride_bytes=63),
    "stride of 2 GiB": lambda a: _pools(a, stride_bytes=2**31),
    "slots of a pool differ": lambda a: _pools(a, pool_nslots=4),
    "thousands of pools": lambda a: _changed(a, payload_pools=a.payload_pools * 2_000),
    "pool ids twice": lambda a: _changed(a, payload_pools=a.payload_pools * 2),
    "no pool": lambda a: _changed(a, payload_pools=()),
    "region smaller than announced": lambda a: _changed(_pools(a, pool_nslots=16), header_nslots=16),
    "another layout": lambda a: _changed(a, layout_version=2),
    "another slot size": lambda a: _changed(a, header_slot_bytes=512),
    "another epoch than its files": lambda a: _changed(a, epoch=a.epoch + 7),
    "no header": lambda a: _changed(a, header_region_uri=""),
    "a pool without place": lambda a: _pools(a, region_uri=""),
    "another scheme": lambda a: _changed(a, header_region_uri="http://example.com/header.ring"),
    "a path outside": lambda a: _changed(a, header_region_uri="shm:file?path=/etc/passwd"),
    "a path that climbs": lambda a: _changed(
        a, header_region_uri=a.header_region_uri.replace("epoch-2", "epoch-2/../../../../etc")
    ),
    "a directory": lambda a: _changed(a, header_region_uri=a.header_region_uri.rpartition("/")[0]),
    "an old time": lambda a: _changed(a, announce_timestamp_ns=1),
    "a time to come": lambda a: _changed(a, announce_timestamp_ns=2**62),
    "the last epoch of all": lambda a: _changed(a, epoch=2**64 - 1),
}


@pytest.mark.req("WIRE-15.21a.4-2", "WIRE-10.1.1-5", "WIRE-15.14-4")
def test_malicious_announces_change_nothing(bare_host: Cluster, driver: ForeignDriver, pool: Pool) -> None:
    """Reliability 12: each is refused, what is mapped stays, and the next good announce works."""
    inp = pool.consumer(10_000, wait_s=5)
    writer = _native.RingWriter(driver.address, base_dirs=[driver.base])
    reader, files = inp.session.reader, set(mapped_regions(os.getpid(), bare_host))
    second = driver.prepare_epoch(2)
    for number, (what, change) in enumerate(MALICIOUS.items()):
        driver.ear.say(change(_changed(second, announce_timestamp_ns=time.monotonic_ns())), "announce")
        writer.publish(frame(number))
        assert inp.poll(timeout=5).copy()[0] == number, what
    refused = wait_until(lambda: sum(inp.stats.announces_ignored.values()) >= len(MALICIOUS) and inp.stats)
    assert (refused.epoch, refused.remaps, refused.reconnects) == (1, 0, 0)
    assert refused.delivered == len(MALICIOUS)
    assert inp.session.reader is reader
    assert {path for path in mapped_regions(os.getpid(), bare_host) if "epoch-1" in path} <= files
    time.sleep(1.0)  # a ring that was refused is not tried again sooner
    driver.announced = second
    wait_until(lambda: inp.stats.epoch == 2, what="the next good announce is followed")
    writer.close()


@pytest.mark.req("WIRE-15.21a.4-2")
def test_announces_of_a_stranger_are_counted(bare_host: Cluster, driver: ForeignDriver, pool: Pool) -> None:
    """A good ring, a higher epoch, the right stream: but not said by whoever announced the lease."""
    inp = pool.consumer(10_000, wait_s=5)
    reader, theirs = inp.session.reader, driver.prepare_epoch(2)
    with Ear(bare_host, ["control"]) as stranger:

        def are_counted() -> bool:  # the first ones may come before the consumer hears this publication
            stranger.say(_changed(theirs, announce_timestamp_ns=time.monotonic_ns()), "announce")
            return inp.stats.announces_ignored.get("of another driver", 0) >= 3

        wait_until(are_counted)
    assert (inp.stats.epoch, inp.stats.remaps, inp.stats.reconnects) == (1, 0, 0)
    assert inp.session.reader is reader

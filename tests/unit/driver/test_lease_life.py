"""Leases from attach to their end, and the epochs that follow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driver_bench import DriverBench, all_of, announces, only
from tensor_pool import _native
from tensor_pool.config import StreamsSection
from tensor_pool.wire import Message
from tensor_pool.wire.messages import (
    LeaseRevokeReason,
    LeaseRevokeResult,
    ResponseCode,
    RevokeLease,
    Role,
    ShmAttachResponse,
    ShmDetachResponse,
    ShmLeaseKeepalive,
    ShmLeaseRevoked,
)
from tensor_pool.wire.shm import decode_superblock

StartDriver = Callable[..., DriverBench]


def revoke(driver: DriverBench, lease: ShmAttachResponse, *, token: str = "") -> list[Message]:
    assert lease.lease_id is not None
    assert lease.stream_id is not None
    request = RevokeLease(
        correlation_id=900, client_id=99, stream_id=lease.stream_id, lease_id=lease.lease_id, token=token
    )
    return driver.say(request)


def end(
    driver: DriverBench, how: LeaseRevokeReason, lease: ShmAttachResponse, client_id: int, role: Role
) -> list[Message]:
    if how is LeaseRevokeReason.DETACHED:
        return driver.detach(lease, client_id, role)
    if how is LeaseRevokeReason.REVOKED:
        return revoke(driver, lease)
    return driver.pass_time(ms=3_100)


class TestKeepalive:
    @pytest.mark.req("DRV-4.4-1", "DRV-4.4-4", "DRV-4.4-6", "DRV-4.7-4", "DRV-4.1-5", "DRV-7-1", "DRV-7-2")
    def test_without_any_a_lease_expires_after_three_seconds(self, driver: DriverBench) -> None:
        lease = driver.attach()
        assert all_of(ShmLeaseRevoked, driver.pass_time(ms=2_900)) == []
        notice = only(ShmLeaseRevoked, driver.pass_time(ms=200))
        assert (notice.lease_id, notice.client_id, notice.role) == (lease.lease_id, 7, Role.PRODUCER)
        assert notice.reason is LeaseRevokeReason.EXPIRED
        late = only(ShmLeaseRevoked, driver.keep_alive(lease, 7, Role.PRODUCER))
        assert (late.lease_id, late.reason) == (lease.lease_id, LeaseRevokeReason.EXPIRED)
        answer = only(ShmDetachResponse, driver.detach(lease, 7, Role.PRODUCER))
        assert answer.code is ResponseCode.REJECTED

    @pytest.mark.req("DRV-4.2-6", "DRV-4.4-3", "DRV-4.7-1", "DRV-4.7-2")
    def test_with_them_it_lasts(self, driver: DriverBench) -> None:
        lease = driver.attach()
        assert driver.agent._leases.get(lease.lease_id or 0) is not None
        for _ in range(60):
            said = driver.pass_time(ms=1_000, step_ms=500) + driver.keep_alive(lease, 7, Role.PRODUCER)
            assert all_of(ShmLeaseRevoked, said) == []
        assert {announce.producer_id for announce in announces(said)} == {7}

    @pytest.mark.req("DRV-4.1-4")
    def test_the_answer_says_when_it_expires(self, driver: DriverBench) -> None:
        assert driver.attach().lease_expiry_timestamp_ns == driver.clock.monotonic_ns() + 3_000_000_000

    @pytest.mark.parametrize(
        ("interval_ms", "grace", "expires_ms"), [(1_000, 3, 3_000), (200, 2, 400), (2_000, 5, 10_000)]
    )
    def test_interval_and_grace_are_configured(
        self, start: StartDriver, interval_ms: int, grace: int, expires_ms: int
    ) -> None:
        driver = start(keepalive_interval_ms=interval_ms, expiry_grace_intervals=grace)
        driver.attach()
        assert all_of(ShmLeaseRevoked, driver.pass_time(ms=expires_ms - 100)) == []
        assert len(all_of(ShmLeaseRevoked, driver.pass_time(ms=200))) == 1

    @pytest.mark.req("DRV-4.1-1", "DRV-4.1-2")
    @pytest.mark.parametrize("field", ["stream_id", "client_id", "role"])
    def test_all_of_it_must_belong_together(self, driver: DriverBench, field: str) -> None:
        lease = driver.attach()
        driver.attach(10_001, client_id=8)
        wrong = {"stream_id": 10_001, "client_id": 8, "role": Role.CONSUMER}
        fields = {"lease_id": lease.lease_id, "stream_id": 10_000, "client_id": 7, "role": Role.PRODUCER}
        driver.pass_time(ms=2_000)
        message = ShmLeaseKeepalive(client_timestamp_ns=1, **(fields | {field: wrong[field]}))  # type: ignore[arg-type]
        # Its holder must not hear that it lost a lease that it has.
        assert all_of(ShmLeaseRevoked, driver.say(message)) == []
        assert driver.agent.counters.snapshot()["unknown keepalives"] == 1
        notices = all_of(ShmLeaseRevoked, driver.pass_time(ms=1_100))
        assert lease.lease_id in {notice.lease_id for notice in notices}

    def test_a_lease_that_nobody_knows_is_revoked_again(self, driver: DriverBench) -> None:
        message = ShmLeaseKeepalive(
            lease_id=4, stream_id=10_000, client_id=7, role=Role.CONSUMER, client_timestamp_ns=1
        )
        for _ in range(2):
            notice = only(ShmLeaseRevoked, driver.say(message))
            assert (notice.lease_id, notice.stream_id, notice.client_id) == (4, 10_000, 7)
            assert "no such lease" in notice.error_message

    def test_a_flood_of_unknown_ones_is_not_answered(self, driver: DriverBench) -> None:
        message = ShmLeaseKeepalive(4, 10_000, 7, Role.CONSUMER, 1)
        said = []
        for _ in range(40):
            said += driver.say(*[message] * 50)
        assert len(all_of(ShmLeaseRevoked, said)) == 1_000

    def test_those_that_wait_count_before_anything_expires(self, driver: DriverBench) -> None:
        """A driver that had no time to look must not blame its clients."""
        leases = [driver.attach(10_000 + n, client_id=n) for n in range(1, 201)]
        driver.clock.advance(ms=900)
        messages = [
            ShmLeaseKeepalive(lease.lease_id or 0, lease.stream_id or 0, n, Role.PRODUCER, 1)
            for n, lease in enumerate(leases, start=1)
        ]
        driver.work()
        for _ in range(3):
            driver.clock.advance(ms=900)
            if _ == 2:  # all of them come in the very cycle in which the leases would end
                from tensor_pool.wire import encode

                for message in messages:
                    driver.control.offer(encode(message))
            said = driver.work()
        assert all_of(ShmLeaseRevoked, said) == []
        assert len(driver.agent._leases) == 200

    def test_a_driver_that_was_stopped_gives_everybody_another_term(self, driver: DriverBench) -> None:
        driver.attach()
        driver.clock.advance(s=60)
        assert all_of(ShmLeaseRevoked, driver.work()) == []
        assert driver.agent.counters.snapshot()["stalls"] == 1
        assert all_of(ShmLeaseRevoked, driver.pass_time(ms=2_900)) == []
        assert len(all_of(ShmLeaseRevoked, driver.pass_time(ms=200))) == 1

    def test_real_time_has_no_say(self, driver: DriverBench) -> None:
        driver.attach()
        driver.clock.step_realtime(10**15)
        assert all_of(ShmLeaseRevoked, driver.work()) == []


class TestDetach:
    @pytest.mark.req("DRV-4.7-3", "DRV-4.9-1", "DRV-4.9-2", "DRV-4.9-3")
    def test_ends_the_lease_once(self, driver: DriverBench) -> None:
        lease = driver.attach()
        said = driver.detach(lease, 7, Role.PRODUCER)
        assert only(ShmDetachResponse, said).code is ResponseCode.OK
        assert only(ShmLeaseRevoked, said).reason is LeaseRevokeReason.DETACHED
        again = driver.detach(lease, 7, Role.PRODUCER)
        assert only(ShmDetachResponse, again).code is ResponseCode.REJECTED
        assert f"no active lease {lease.lease_id}" in only(ShmDetachResponse, again).error_message
        assert all_of(ShmLeaseRevoked, again) == []

    @pytest.mark.req("DRV-4.9-2", "DRV-4.1-1", "DRV-4.1-2")
    @pytest.mark.parametrize(
        "change", [{"lease_id": 1}, {"stream_id": 10_001}, {"client_id": 8}, {"role": Role.CONSUMER}], ids=str
    )
    def test_everything_must_match(self, driver: DriverBench, change: dict[str, int]) -> None:
        lease = driver.attach()
        said = driver.detach(lease, 7, Role.PRODUCER, **change)
        assert only(ShmDetachResponse, said).code is ResponseCode.REJECTED
        assert driver.agent._leases.get(lease.lease_id or 0) is not None


@pytest.mark.parametrize("how", list(LeaseRevokeReason))
@pytest.mark.parametrize("role", list(Role))
class TestEnd:
    @pytest.mark.req("DRV-4.9-4", "DRV-4.9-10", "DRV-4.7-3", "DRV-4.7-4", "DRV-4.7-5")
    def test_is_told_with_its_reason(self, driver: DriverBench, how: LeaseRevokeReason, role: Role) -> None:
        lease = driver.attach(role=role)
        notice = only(ShmLeaseRevoked, end(driver, how, lease, 7, role))
        assert (notice.lease_id, notice.stream_id, notice.client_id) == (lease.lease_id, 10_000, 7)
        assert (notice.role, notice.reason) == (role, how)

    @pytest.mark.req("DRV-6-2", "DRV-6-3", "DRV-6-4", "DRV-4.7-8", "DRV-4.9-5", "DRV-8-4")
    @pytest.mark.req("DRV-3-4", "DRV-3-9", "WIRE-15.2-1")
    def test_of_a_producer_raises_the_epoch_and_of_a_consumer_does_not(
        self, start: StartDriver, how: LeaseRevokeReason, role: Role
    ) -> None:
        driver = start(streams=StreamsSection(announce_stream_id=1000))  # one stream shows the order
        lease = driver.attach(role=role)
        assert lease.epoch is not None
        said = end(driver, how, lease, 7, role)
        if role is Role.CONSUMER:
            assert {announce.epoch for announce in announces(said)} <= {lease.epoch}
            return
        notice = said.index(only(ShmLeaseRevoked, said))
        fresh = [announce for announce in announces(said) if announce.epoch > lease.epoch]
        assert fresh[0].producer_id == 0
        assert said.index(fresh[0]) == notice + 1  # the notice first (decision D5), and at once
        path, _ = _native.parse_region_uri(fresh[0].header_region_uri)
        assert decode_superblock(Path(path).read_bytes()).epoch == fresh[0].epoch

    @pytest.mark.req("DRV-7-3", "DRV-10-4")
    def test_then_somebody_else_may_come(
        self, driver: DriverBench, how: LeaseRevokeReason, role: Role
    ) -> None:
        before = driver.attach(role=role)
        end(driver, how, before, 7, role)
        after = driver.attach(client_id=8, role=Role.PRODUCER)
        assert after.code is ResponseCode.OK
        assert after.epoch is not None
        assert before.epoch is not None
        assert after.epoch > before.epoch


class TestEpochs:
    @pytest.mark.req("DRV-6-1", "WIRE-15.2-1", "WIRE-10.1.1-2")
    def test_grow_when_a_producer_comes(self, driver: DriverBench) -> None:
        consumer = driver.attach(client_id=8, role=Role.CONSUMER)
        producer = driver.attach(client_id=7)
        assert producer.epoch is not None
        assert consumer.epoch is not None
        assert producer.epoch > consumer.epoch
        assert only(type(announces(driver.said)[0]), announces(driver.said)).epoch == producer.epoch

    @pytest.mark.req("DRV-4.3-7", "DRV-6-5", "DRV-6-6", "WIRE-15.2-2")
    @pytest.mark.parametrize("strides", [(4096,), (8192,), (64, 4096)])
    @pytest.mark.parametrize("nslots", [8, 16])
    def test_grow_with_every_change_of_layout(
        self, driver: DriverBench, strides: tuple[int, ...], nslots: int
    ) -> None:
        before = driver.attach()
        driver.detach(before, 7, Role.PRODUCER)
        driver.describe(10_000, strides=strides, nslots=nslots)
        after = driver.attach()
        assert (after.header_nslots, tuple(p.stride_bytes for p in after.payload_pools)) == (nslots, strides)
        assert {p.pool_nslots for p in after.payload_pools} == {nslots}
        assert (after.epoch or 0) > (before.epoch or 0)

    def test_come_from_the_clock(self, driver: DriverBench) -> None:
        assert driver.attach().epoch == driver.clock.realtime_ns() // 1_000

    def test_grow_though_the_clock_is_set_back(self, driver: DriverBench) -> None:
        epochs = []
        for _ in range(5):
            lease = driver.attach()
            epochs.append(lease.epoch)
            driver.detach(lease, 7, Role.PRODUCER)
            driver.clock.step_realtime(-(10**17))
        assert epochs == sorted(set(epochs))

    def test_a_consumer_that_comes_first_costs_no_memory(self, driver: DriverBench) -> None:
        response = driver.attach(role=Role.CONSUMER)
        assert response.code is ResponseCode.OK
        directory = Path(driver.agent.directory) / "10000" / str(response.epoch)
        # A page for each superblock, nothing for the slots.
        assert sum(path.stat().st_blocks for path in directory.iterdir()) * 512 <= 2 * 4096
        assert driver.agent.status().region_bytes == 0

    def test_the_producer_that_follows_replaces_its_epoch(self, driver: DriverBench) -> None:
        first = driver.attach(client_id=8, role=Role.CONSUMER)
        second = driver.attach(client_id=7)
        assert driver.epochs == {10_000: [second.epoch]}
        assert first.epoch != second.epoch
        directory = Path(driver.agent.directory) / "10000" / str(second.epoch)
        need = 8 * (256 + 4096)
        assert sum(path.stat().st_blocks for path in directory.iterdir()) * 512 >= need

    def test_leases_of_those_who_stay_follow(self, driver: DriverBench) -> None:
        driver.attach(client_id=8, role=Role.CONSUMER)
        producer = driver.attach(client_id=7)
        assert {lease.epoch for lease in driver.agent._leases} == {producer.epoch}


class TestLeaseIds:
    @pytest.mark.req("DRV-4.8-1", "DRV-4.8-2", "DRV-4.1-3")
    def test_are_never_used_twice(self, start: StartDriver) -> None:
        driver = start(max_attaches_per_second=1_000_000)
        driver.attach(client_id=1)
        seen = []
        for _ in range(200):
            lease = driver.attach(client_id=8, role=Role.CONSUMER)
            seen.append(lease.lease_id)
            driver.detach(lease, 8, Role.CONSUMER)
        assert len(set(seen)) == 200
        assert None not in seen

    def test_start_elsewhere_in_each_driver(self, start: StartDriver) -> None:
        first, second = start(instance_id="a").attach(), start(instance_id="b").attach()
        assert first.lease_id != second.lease_id


class TestRevoke:
    def test_needs_the_token_where_there_is_one(self, start: StartDriver) -> None:
        driver = start(shutdown_token="secret")
        lease = driver.attach()
        refused = only(LeaseRevokeResult, revoke(driver, lease, token="Secret"))
        assert refused.code is ResponseCode.REJECTED
        assert driver.agent._leases.get(lease.lease_id or 0) is not None
        said = revoke(driver, lease, token="secret")
        assert only(LeaseRevokeResult, said).code is ResponseCode.OK
        assert only(ShmLeaseRevoked, said).reason is LeaseRevokeReason.REVOKED

    def test_stream_and_lease_must_belong_together(self, driver: DriverBench) -> None:
        lease = driver.attach()
        wrong = RevokeLease(correlation_id=1, client_id=9, stream_id=10_001, lease_id=lease.lease_id or 0)
        answer = only(LeaseRevokeResult, driver.say(wrong))
        assert answer.code is ResponseCode.INVALID_PARAMS
        assert "stream 10001 has no active lease" in answer.error_message

    def test_twice_is_answered_twice_and_done_once(self, driver: DriverBench) -> None:
        lease = driver.attach()
        first, second = revoke(driver, lease), revoke(driver, lease)
        assert only(LeaseRevokeResult, first) == only(LeaseRevokeResult, second)
        assert all_of(ShmLeaseRevoked, second) == []

    def test_the_holder_hears_the_reason(self, driver: DriverBench) -> None:
        lease = driver.attach()
        said = driver.say(
            RevokeLease(1, 9, stream_id=10_000, lease_id=lease.lease_id or 0, reason="maintenance at noon")
        )
        assert only(ShmLeaseRevoked, said).error_message == "maintenance at noon"

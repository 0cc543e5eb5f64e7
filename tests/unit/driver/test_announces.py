"""Announces: what they say, how often, and that what they name is alive."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from driver_bench import DriverBench, all_of, announces, only
from tensor_pool import _native
from tensor_pool.config import StreamsSection
from tensor_pool.driver.announce import Announcer
from tensor_pool.driver.answers import Moment
from tensor_pool.driver.config import DriverSection
from tensor_pool.driver.leases import LeaseBook
from tensor_pool.driver.registry import Stream
from tensor_pool.errors import ConfigError
from tensor_pool.runtime import CounterSet, CounterType, LocalCounters
from tensor_pool.wire.messages import ClockDomain, Role, ShmPoolAnnounce
from tensor_pool.wire.shm import decode_superblock

StartDriver = Callable[..., DriverBench]


def activity(announce: ShmPoolAnnounce) -> set[int]:
    uris = [announce.header_region_uri, *(pool.region_uri for pool in announce.payload_pools)]
    paths = [Path(_native.parse_region_uri(uri)[0]) for uri in uris]
    return {decode_superblock(path.read_bytes()).activity_timestamp_ns for path in paths}


class TestContents:
    @pytest.mark.req("DRV-8-3", "DRV-8-4")
    def test_the_producer_while_there_is_one(self, driver: DriverBench) -> None:
        driver.attach(client_id=8, role=Role.CONSUMER)
        assert only(ShmPoolAnnounce, driver.said).producer_id == 0
        lease = driver.attach(client_id=42)
        assert only(ShmPoolAnnounce, driver.said).producer_id == 42
        assert only(ShmPoolAnnounce, driver.detach(lease, 42, Role.PRODUCER)).producer_id == 0

    def test_monotonic_time_by_default(self, driver: DriverBench) -> None:
        driver.attach()
        announce = only(ShmPoolAnnounce, driver.said)
        assert announce.announce_clock_domain is ClockDomain.MONOTONIC
        assert announce.announce_timestamp_ns == driver.clock.monotonic_ns()

    @pytest.mark.req("WIRE-10.1.1-14")
    def test_synchronised_real_time_where_that_is_configured(self, start: StartDriver) -> None:
        driver = start(announce_clock_domain="realtime_synced", clock_error_budget_ms=1.0)
        driver.attach()
        announce = only(ShmPoolAnnounce, driver.said)
        assert announce.announce_clock_domain is ClockDomain.REALTIME_SYNCED
        assert announce.announce_timestamp_ns == driver.clock.realtime_ns()

    @pytest.mark.req("WIRE-10.1.1-14", "WIRE-10.1.1-15")
    def test_an_undisciplined_clock_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="without clock_error_budget_ms"):
            DriverSection(announce_clock_domain="realtime_synced")


class TestRhythm:
    @pytest.mark.req("WIRE-10.1.1-1", "WIRE-15.11-2", "WIRE-10.1-10", "DRV-8-1")
    def test_once_a_second(self, driver: DriverBench) -> None:
        driver.attach(client_id=8, role=Role.CONSUMER)
        said = []
        for _ in range(10):
            said += driver.pass_time(ms=1_000)
            driver.keep_alive(only_lease(driver), 8, Role.CONSUMER)
        assert len(announces(said)) == 10

    def test_as_often_as_configured(self, start: StartDriver) -> None:
        driver = start(announce_interval_ms=200)
        driver.attach()
        assert len(announces(driver.pass_time(ms=2_000, step_ms=50))) == 10

    def test_missed_ones_are_skipped(self, driver: DriverBench) -> None:
        driver.attach()
        driver.clock.advance(s=30)
        assert len(announces(driver.work(3))) == 1

    def test_streams_take_turns(self) -> None:
        book = LeaseBook(lease_ns=1)
        counters = CounterSet(LocalCounters(), "x", [CounterType.DRIVER_ANNOUNCES])
        announcer = Announcer(leases=book, period_ns=1_000, domain=ClockDomain.MONOTONIC, counters=counters)
        profile = DriverSection().default_profile
        for n in range(500):
            announcer.schedule(Stream(stream_id=20_000 + n, name="", profile=profile), Moment(7, 7))
        tenths = Counter(due_ns // 100 for due_ns in range(7, 1_008) for _ in announcer.take_due(due_ns))
        assert sum(tenths.values()) == 500
        assert max(tenths.values()) <= 80

    def test_each_tells_its_own_time_and_who_produces_now(self, driver: DriverBench) -> None:
        """Bytes are kept from one to the next; what has changed must not be."""
        lease = driver.attach()
        said = announces(driver.pass_time(ms=2_000))
        driver.attach(client_id=8, role=Role.CONSUMER)
        driver.detach(lease, 7, Role.PRODUCER)
        after = announces(driver.pass_time(ms=2_000))
        stamps = [announce.announce_timestamp_ns for announce in said + after]
        assert len(set(stamps)) == len(stamps) >= 4
        assert stamps == sorted(stamps)
        assert {announce.producer_id for announce in said} == {7}
        assert {announce.producer_id for announce in after} == {0}
        assert after[0].epoch > said[-1].epoch

    def test_every_attach_is_followed_by_one(self, driver: DriverBench) -> None:
        driver.attach()
        for n in range(3):
            driver.attach(client_id=100 + n, role=Role.CONSUMER)
            assert len(announces(driver.said)) == 1


class TestActivity:
    @pytest.mark.req("WIRE-15.11-5", "DRV-3-8")
    @pytest.mark.parametrize("role", list(Role))
    def test_is_raised_with_each_announce(self, driver: DriverBench, role: Role) -> None:
        """Whether or not there is a producer (decision L8)."""
        driver.attach(role=role)
        announce = only(ShmPoolAnnounce, driver.said)
        stamps = [max(activity(announce))]
        for _ in range(3):
            driver.pass_time(ms=1_000)
            driver.keep_alive(only_lease(driver), 7, role)
            stamps.append(max(activity(announce)))
        assert stamps == sorted(set(stamps))

    def test_ends_with_the_epoch(self, driver: DriverBench) -> None:
        lease = driver.attach()
        old = only(ShmPoolAnnounce, driver.said)
        driver.detach(lease, 7, Role.PRODUCER)
        before = activity(old)
        driver.pass_time(ms=3_000)
        assert activity(old) == before


class TestOneStreamForEverything:
    def test_announces_and_answers_share_it(self, start: StartDriver) -> None:
        names = [name for name in StreamsSection.__struct_fields__ if name.endswith("_stream_id")]
        driver = start(streams=StreamsSection(**dict.fromkeys(names, 1000)))
        driver.attach()
        assert [type(message).__name__ for message in driver.said] == ["ShmAttachResponse", "ShmPoolAnnounce"]
        assert len(all_of(ShmPoolAnnounce, driver.pass_time(ms=1_000))) == 1


def only_lease(driver: DriverBench):
    from tensor_pool.wire.messages import ResponseCode, ShmAttachResponse

    (lease,) = driver.agent._leases
    return ShmAttachResponse(1, ResponseCode.OK, lease_id=lease.lease_id, stream_id=lease.stream_id)


def test_a_flood_does_not_silence_the_driver(driver: DriverBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a lease expires everything is read that has come; that may take seconds."""
    driver.attach()
    driver.pass_time(ms=2_900)
    driver.clock.advance(ms=200)
    batches = iter(range(40))

    def read_a_batch() -> int:
        driver.clock.advance(ms=100)
        return 0 if next(batches, None) is None else 64

    monkeypatch.setattr(driver.agent, "_poll", read_a_batch)
    stamps = sorted(announce.announce_timestamp_ns for announce in announces(driver.work()))
    assert stamps[-1] - stamps[0] >= 3_000_000_000, "the flood took that long"
    assert max(b - a for a, b in itertools.pairwise(stamps)) <= 1_100_000_000

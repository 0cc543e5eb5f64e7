"""Which epochs are removed, and which never."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from driver_bench import DriverBench
from tensor_pool import _native
from tensor_pool.driver.files import FoundEpoch
from tensor_pool.driver.garbage import EndedEpochs
from tensor_pool.wire.messages import Role

StartDriver = Callable[..., DriverBench]

FIRST, SECOND, THIRD = (FoundEpoch(10_000, number) for number in (1, 2, 3))


def unchanged(_found: FoundEpoch) -> int:
    return 1


class TestDecision:
    def test_not_before_its_age(self) -> None:
        ended = EndedEpochs(keep_count=1, min_age_ns=100, stale_ns=10)
        ended.add(FIRST, activity=1, now_ns=0)
        assert ended.collectable(unchanged, now_ns=99) == []
        assert ended.collectable(unchanged, now_ns=100) == [FIRST]
        assert len(ended) == 0

    def test_not_while_somebody_writes(self) -> None:
        ended = EndedEpochs(keep_count=1, min_age_ns=100, stale_ns=50)
        ended.add(FIRST, activity=1, now_ns=0)
        for now in range(100, 1_000, 49):
            assert ended.collectable(lambda _found, now=now: now, now_ns=now) == []
        last = now
        assert ended.collectable(lambda _found: last, now_ns=last + 49) == []
        assert ended.collectable(lambda _found: last, now_ns=last + 50) == [FIRST]

    @pytest.mark.parametrize("activity", [0, 10**18, 2**64 - 1])
    def test_stamps_of_other_clocks_are_only_compared(self, activity: int) -> None:
        """From before a reboot, or of a process in another time namespace."""
        ended = EndedEpochs(keep_count=1, min_age_ns=100, stale_ns=50)
        ended.add(FIRST, activity=activity, now_ns=0)
        assert ended.collectable(lambda _found: activity + 1, now_ns=100) == []
        assert ended.collectable(lambda _found: activity + 1, now_ns=150) == [FIRST]

    @pytest.mark.parametrize(
        ("activity", "collected_ns"),
        [(0, 1_050), (940, 1_050), (990, 1_090), (1_000, 1_100), (10**18, 1_100), (None, 1_100)],
    )
    def test_one_that_was_found_is_as_old_as_its_last_sign_of_life(
        self, activity: int | None, collected_ns: int
    ) -> None:
        """But nothing goes before it was watched for long enough, whatever its stamp says."""
        ended = EndedEpochs(keep_count=1, min_age_ns=100, stale_ns=50)
        ended.add_found(FIRST, activity=activity, now_ns=1_000)
        assert ended.collectable(lambda _found: activity, now_ns=collected_ns - 1) == []
        assert ended.collectable(lambda _found: activity, now_ns=collected_ns) == [FIRST]

    def test_one_that_was_found_in_use_stays(self) -> None:
        ended = EndedEpochs(keep_count=1, min_age_ns=100, stale_ns=50)
        ended.add_found(FIRST, activity=1, now_ns=1_000)
        for now in range(1_010, 2_000, 49):
            assert ended.collectable(lambda _found, now=now: now, now_ns=now) == []

    @pytest.mark.parametrize("keep_count", [1, 2, 3, 4])
    def test_the_newest_are_kept(self, keep_count: int) -> None:
        ended = EndedEpochs(keep_count=keep_count, min_age_ns=1, stale_ns=1)
        for epoch in (SECOND, THIRD, FIRST):
            ended.add(epoch, activity=1, now_ns=0)
        expected = [FIRST, SECOND, THIRD][: max(0, 4 - keep_count)]
        assert ended.collectable(unchanged, now_ns=10) == expected

    def test_each_stream_for_itself(self) -> None:
        ended = EndedEpochs(keep_count=2, min_age_ns=1, stale_ns=1)
        other = FoundEpoch(10_001, 1)
        ended.add(FIRST, activity=1, now_ns=0)
        ended.add(other, activity=1, now_ns=0)
        assert ended.collectable(unchanged, now_ns=10) == []

    def test_what_can_not_be_read_goes_by_its_age(self) -> None:
        ended = EndedEpochs(keep_count=1, min_age_ns=100, stale_ns=50)
        ended.add(FIRST, activity=None, now_ns=0)
        assert ended.collectable(lambda _found: None, now_ns=100) == [FIRST]


class TestDriver:
    @pytest.mark.req("WIRE-15.21a.7-2")
    @pytest.mark.parametrize("keep_count", [1, 3])
    def test_twenty_attaches_leave_few_directories(self, start: StartDriver, keep_count: int) -> None:
        driver = start(epoch_keep_count=keep_count, epoch_min_age_ms=2_000)
        for _ in range(20):
            driver.detach(driver.attach(), 7, Role.PRODUCER)
            driver.pass_time(ms=100)
        lease = driver.attach()
        for _ in range(8):
            driver.pass_time(ms=1_000)
            driver.keep_alive(lease, 7, Role.PRODUCER)
        assert len(driver.epochs[10_000]) == keep_count
        assert lease.epoch in driver.epochs[10_000]
        assert driver.agent.counters.snapshot()["epochs collected"] == 21 - keep_count

    def test_a_fresh_one_is_never_removed(self, start: StartDriver, base) -> None:
        """A producer whose lease is gone still writes: its memory stays."""
        driver = start(epoch_min_age_ms=1)
        lease = driver.attach()
        address = driver.agent._streams.get(10_000).epoch.address
        with _native.RingWriter(address, base_dirs=[base]) as writer:
            driver.detach(lease, 7, Role.PRODUCER)
            for _ in range(10):
                driver.pass_time(ms=1_000)
                writer.refresh_activity()
            assert lease.epoch in driver.epochs[10_000]
        driver.pass_time(ms=5_000)
        assert lease.epoch not in driver.epochs[10_000]

    def test_the_current_one_is_never_removed(self, start: StartDriver) -> None:
        driver = start(epoch_min_age_ms=1)
        lease = driver.attach()
        for _ in range(10):
            driver.pass_time(ms=1_000)
            driver.keep_alive(lease, 7, Role.PRODUCER)
        assert driver.epochs == {10_000: [lease.epoch]}

    def test_a_stream_that_nobody_uses_ends_and_its_name_stays(self, start: StartDriver) -> None:
        driver = start(idle_stream_timeout_ms=5_000, epoch_min_age_ms=1_000)
        stream_id = driver.resolve("camera").stream_id
        assert stream_id is not None
        driver.detach(driver.attach(stream_id), 7, Role.PRODUCER)
        driver.detach(driver.attach(10_000), 7, Role.PRODUCER)
        driver.pass_time(ms=15_000, step_ms=500)
        assert driver.epochs == {}
        assert driver.agent.status().stream_count == 1
        assert driver.resolve("camera").stream_id == stream_id
        assert driver.agent.status().region_bytes == 0

    def test_one_with_a_consumer_stays(self, start: StartDriver) -> None:
        driver = start(idle_stream_timeout_ms=5_000)
        lease = driver.attach(role=Role.CONSUMER)
        for _ in range(10):
            driver.pass_time(ms=1_000)
            driver.keep_alive(lease, 7, Role.CONSUMER)
        assert driver.epochs == {10_000: [lease.epoch]}

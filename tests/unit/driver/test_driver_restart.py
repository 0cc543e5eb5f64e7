"""What a driver finds of the one before it, and what it leaves to the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from driver_bench import DriverBench, announces, only
from tensor_pool.driver.config import StaticStream
from tensor_pool.driver.files import EpochFiles, FoundEpoch
from tensor_pool.driver.state import RememberedStream, StateFile, StateRecord
from tensor_pool.errors import RegionError
from tensor_pool.wire.messages import Role, ShmDriverShutdown, ShmLeaseRevoked, ShutdownReason

StartDriver = Callable[..., DriverBench]


def crash(driver: DriverBench) -> None:
    """Ends a driver as `kill -9` does: nothing is said, nothing is cleaned up."""
    driver.agent._lock.close()  # type: ignore[union-attr]
    driver.invoker._is_closed = True


class TestEpochs:
    @pytest.mark.req("DRV-10-4", "WIRE-15.2-1")
    @pytest.mark.parametrize("is_clean", [True, False])
    @pytest.mark.parametrize("step_back_s", [0, 10**6])
    def test_never_go_back(self, start: StartDriver, is_clean: bool, step_back_s: int) -> None:
        first = start()
        before = first.attach()
        first.invoker.close() if is_clean else crash(first)
        second = start(clock=first.clock, bus=first.bus)
        second.clock.step_realtime(-step_back_s * 10**9)
        assert (second.attach().epoch or 0) > (before.epoch or 0)

    def test_are_found_in_the_directories_when_the_state_file_is_gone(self, start: StartDriver) -> None:
        first = start()
        before = first.attach()
        crash(first)
        (Path(first.agent.directory) / "driver-state.json").unlink()
        second = start(clock=first.clock)
        second.clock.step_realtime(-(10**15))
        assert (second.attach(10_005).epoch or 0) > (before.epoch or 0)

    def test_are_remembered_when_the_directories_are_gone(self, start: StartDriver) -> None:
        first = start()
        before = first.attach()
        first.invoker.close()
        assert first.epochs == {}
        second = start(clock=first.clock)
        second.clock.step_realtime(-(10**15))
        assert second.attach().epoch == (before.epoch or 0) + 1


class TestFiles:
    def test_what_a_dead_driver_left_is_removed_when_it_is_stale(self, start: StartDriver) -> None:
        first = start()
        before = first.attach()
        crash(first)
        second = start(clock=first.clock)
        assert second.epochs == {10_000: [before.epoch]}
        second.pass_time(ms=9_000)
        assert second.epochs == {10_000: [before.epoch]}
        second.pass_time(ms=5_000)
        assert second.epochs == {}

    def test_drivers_that_are_killed_again_and_again_leave_no_heap(
        self, start: StartDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver = start()
        clocks_apart_ns = driver.clock.realtime_ns() - driver.clock.monotonic_ns()

        def made_ns(_files: EpochFiles, found: FoundEpoch) -> int:
            return found.epoch * 1_000 - clocks_apart_ns  # nobody has used it since

        monkeypatch.setattr(EpochFiles, "activity", made_ns)
        for _ in range(20):
            driver.attach()
            driver.pass_time(ms=4_000)
            crash(driver)
            driver = start(clock=driver.clock)
        assert len(driver.epochs[10_000]) <= 8, "two epochs in each of the last four lives"

    @pytest.mark.req("DRV-13-1", "DRV-13-2")
    def test_or_at_once_where_that_is_configured(self, start: StartDriver) -> None:
        first = start()
        before = first.attach()
        crash(first)
        second = start(clock=first.clock, recreate_on_start=True)
        assert second.epochs == {}
        assert (second.attach().epoch or 0) > (before.epoch or 0)

    def test_half_made_directories_are_removed(self, start: StartDriver) -> None:
        first = start()
        first.attach()
        making = Path(first.agent.directory) / "10000" / ".99.making"
        making.mkdir()
        (making / "header.ring").write_bytes(bytes(64 + 8 * 256))
        crash(first)
        start(clock=first.clock)
        assert not making.exists()

    @pytest.mark.req("WIRE-15.14-6", "WIRE-15.21a.7-1")
    def test_a_clean_end_removes_what_was_made(self, start: StartDriver) -> None:
        driver = start()
        driver.detach(driver.attach(10_000), 7, Role.PRODUCER)
        driver.attach(10_001)
        driver.invoker.close()
        assert sorted(path.name for path in Path(driver.agent.directory).iterdir()) == [
            "driver-state.json",
            "driver.lock",
        ]

    @pytest.mark.parametrize("cleanup_on_exit", [True, False])
    def test_no_empty_directory_is_left(self, start: StartDriver, *, cleanup_on_exit: bool) -> None:
        driver = start(cleanup_on_exit=cleanup_on_exit)
        (Path(driver.agent.directory) / "10005").mkdir()  # of a stream that could not be made, or not removed
        driver.invoker.close()
        assert not (Path(driver.agent.directory) / "10005").exists()

    def test_or_not(self, start: StartDriver) -> None:
        driver = start(cleanup_on_exit=False)
        lease = driver.attach()
        driver.invoker.close()
        assert driver.epochs == {10_000: [lease.epoch]}

    def test_what_others_left_is_not_removed_at_the_end(self, start: StartDriver) -> None:
        first = start()
        before = first.attach()
        crash(first)
        second = start(clock=first.clock)
        second.invoker.close()
        assert second.epochs == {10_000: [before.epoch]}


class TestNames:
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_keep_their_ids(self, start: StartDriver, is_clean: bool) -> None:
        first = start()
        ids = [first.resolve(name, client_id=n).stream_id for n, name in enumerate(("b", "a", "c"), start=1)]
        first.invoker.close() if is_clean else crash(first)
        second = start(clock=first.clock)
        assert [second.resolve(name, client_id=9).stream_id for name in ("b", "a", "c")] == ids
        assert second.resolve("d", client_id=9).stream_id == 20_003

    def test_static_streams_come_first(self, start: StartDriver) -> None:
        first = start()
        first.resolve("camera")
        first.invoker.close()
        second = start(clock=first.clock, static=(StaticStream(id=20_000, name="other"),))
        assert second.resolve("other").stream_id == 20_000
        assert second.resolve("camera", client_id=9).stream_id == 20_001

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b'{"version": 2}', b"\xff", b'{"streams": [{"id": 0, "name": "x"}]}']
    )
    def test_a_damaged_state_file_is_replaced(self, start: StartDriver, base: Path, content: bytes) -> None:
        first = start()
        first.invoker.close()
        path = Path(first.agent.directory) / "driver-state.json"
        path.write_bytes(content)
        second = start(clock=first.clock)
        assert second.resolve("camera").stream_id == 20_000
        unclaimed = {"id": 20_000, "name": "camera", "is_claimed": False}
        assert json.loads(path.read_bytes())["streams"] == [unclaimed]
        second.attach(20_000)
        assert json.loads(path.read_bytes())["streams"] == [{"id": 20_000, "name": "camera"}]


def _no_space(*_args: object) -> None:
    raise OSError(28, "No space left on device")


class TestStateFile:
    def test_is_whole_whatever_happens_while_it_is_written(
        self, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = StateFile(base)
        first = StateRecord(highest_epoch=1, streams=(RememberedStream(20_000, "camera"),))
        file.save(first)

        def fail(*_args: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="No space left"):
            file.save(StateRecord(highest_epoch=2))
        assert file.load() == first
        assert [path.name for path in base.iterdir()] == ["driver-state.json"]

    def test_a_driver_goes_on_without_it(self, driver: DriverBench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(StateFile, "save", _no_space)
        assert driver.attach().lease_id is not None

    def test_what_could_not_be_saved_is_saved_as_soon_as_it_can(self, driver: DriverBench) -> None:
        """A file system that was full for a moment must not cost a name its id."""
        state = StateFile(Path(driver.agent.directory))
        with pytest.MonkeyPatch.context() as full:
            full.setattr(StateFile, "save", _no_space)
            driver.resolve("camera")
            driver.pass_time(ms=2_000)
        assert state.load().streams == ()
        driver.pass_time(ms=2_000)
        assert [stream.name for stream in state.load().streams] == ["camera"]


class TestStatic:
    def test_streams_exist_from_the_start(self, start: StartDriver) -> None:
        from tensor_pool.driver.config import StreamProfile
        from tensor_pool.wire.messages import PublishMode, ResponseCode

        driver = start(
            static=(StaticStream(id=15, name="a"), StaticStream(id=16, profile="big")),
            profiles={"big": StreamProfile(nslots=4, pools=(64, "8k"))},
        )
        said = driver.heard()
        assert [announce.producer_id for announce in announces(said, 15) + announces(said, 16)] == [0, 0]
        lease = driver.attach(16, mode=PublishMode.REQUIRE_EXISTING)
        assert lease.code is ResponseCode.OK
        assert [(p.pool_nslots, p.stride_bytes) for p in lease.payload_pools] == [(4, 64), (4, 8192)]


class TestSecondDriver:
    @pytest.mark.req("DRV-2.1-2")
    def test_is_told_who_the_first_is(self, start: StartDriver, base: Path) -> None:
        import os

        first = start()
        lease = first.attach()
        with pytest.raises(RegionError, match=f"another SHM driver, process {os.getpid()}, serves") as caught:
            start()
        assert "driver.instance_id" in (caught.value.hint or "")
        assert first.epochs == {10_000: [lease.epoch]}  # the loser touched nothing
        first.keep_alive(lease, 7, Role.PRODUCER)

    @pytest.mark.req("DRV-14-2")
    def test_of_another_instance_may_stand_beside(self, start: StartDriver) -> None:
        first, second = start(instance_id="a"), start(instance_id="b")
        one, two = first.attach(), second.attach()
        assert one.header_region_uri != two.header_region_uri

    def test_may_follow_when_the_first_has_ended(self, start: StartDriver) -> None:
        start().invoker.close()
        start()


class TestEnd:
    @pytest.mark.req("DRV-4.12-4")
    def test_is_told_to_everybody(self, driver: DriverBench) -> None:
        driver.attach()
        driver.invoker.close()
        notice = only(ShmDriverShutdown, driver.heard())
        assert notice.reason is ShutdownReason.NORMAL
        assert notice.timestamp_ns == driver.clock.monotonic_ns()

    def test_old_keepalives_meet_a_new_driver(self, start: StartDriver) -> None:
        first = start()
        lease = first.attach()
        crash(first)
        second = start(clock=first.clock)
        assert only(ShmLeaseRevoked, second.keep_alive(lease, 7, Role.PRODUCER)).lease_id == lease.lease_id

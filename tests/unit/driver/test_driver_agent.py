"""The agent: what it does with messages that are not for it, with a stuck peer, and when it is to end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from driver_bench import DriverBench, all_of, announces, only
from golden_messages import GOLDEN
from tensor_pool.config import ShmSection, StreamsSection
from tensor_pool.driver.agent import DriverAgent
from tensor_pool.driver.config import DriverSection
from tensor_pool.driver.lock import BaseDirLock
from tensor_pool.errors import ConfigError, NoMediaDriverError, RegionError
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire import encode
from tensor_pool.wire.messages import (
    ConsumerConfig,
    ConsumerHello,
    ControlResponse,
    DriverState,
    Mode,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDriverShutdown,
    ShmDriverShutdownRequest,
    ShmLeaseRevoked,
    ShutdownReason,
)

StartDriver = Callable[..., DriverBench]


class TestOtherMessages:
    @pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\xff" * 64, bytes(8), os.urandom(100)], ids=len)
    def test_nonsense_is_ignored(self, driver: DriverBench, data: bytes) -> None:
        driver.say(data)
        assert driver.attach().code is ResponseCode.OK

    def test_every_message_there_is_may_come(self, driver: DriverBench) -> None:
        """Template ids collide across schemas; what is not the driver's is ignored, not taken for another."""
        for case in GOLDEN:
            driver.say(encode(case.values[0]))
        assert driver.attach(10_000, client_id=4_000_000).code is ResponseCode.OK

    def test_its_own_answers_and_those_to_others(self, driver: DriverBench) -> None:
        response = driver.attach()
        assert driver.say(response) == []
        assert driver.say(*announces(driver.said)) == []


class TestHurry:
    def test_requests_are_told_of_and_signs_of_life_are_not(self, driver: DriverBench) -> None:
        """Whoever asks once asks again soon; the driver's transport may look more often meanwhile."""
        stream = driver.resolve("camera-1")
        assert driver.requests == 1
        assert stream.stream_id is not None
        lease = driver.attach(stream.stream_id)
        assert driver.requests == 2
        driver.keep_alive(lease, 7, Role.PRODUCER)
        driver.work(10)
        assert driver.requests == 2


class TestShutdownRequest:
    def ask(self, driver: DriverBench, token: str, correlation_id: int = 5) -> ControlResponse:
        request = ShmDriverShutdownRequest(
            correlation_id=correlation_id, reason=ShutdownReason.ADMIN, token=token, error_message="upgrade"
        )
        self.said = driver.say(request)
        return only(ControlResponse, self.said)

    @pytest.mark.req("DRV-4.12-2", "DRV-4.12-3")
    @pytest.mark.parametrize("token", ["", "x", "secret"])
    def test_is_off_without_a_token(self, driver: DriverBench, token: str) -> None:
        answer = self.ask(driver, token)
        assert (answer.correlation_id, answer.code) == (5, ResponseCode.UNSUPPORTED)
        driver.pass_time(ms=2_000)
        assert driver.invoker.is_running

    @pytest.mark.req("DRV-4.12-3")
    @pytest.mark.parametrize("token", ["", "Secret", "secre", "secret ", "secrets"])
    def test_needs_the_right_one(self, start: StartDriver, token: str) -> None:
        driver = start(shutdown_token="secret")
        assert self.ask(driver, token).code is ResponseCode.REJECTED
        driver.pass_time(ms=2_000)
        assert driver.invoker.is_running
        assert driver.attach().code is ResponseCode.OK

    @pytest.mark.req("DRV-4.12-1", "DRV-4.12-4")
    def test_drains_and_ends(self, start: StartDriver) -> None:
        driver = start(shutdown_token="secret", shutdown_drain_ms=500)
        lease = driver.attach()
        assert self.ask(driver, "secret").code is ResponseCode.OK
        assert len(announces(self.said)) == 1  # the final one
        refused = driver.attach(10_001, client_id=8)
        assert refused.code is ResponseCode.REJECTED
        assert "shutting down" in refused.error_message
        assert driver.agent.status().state is DriverState.DRAINING
        assert all_of(ShmLeaseRevoked, driver.keep_alive(lease, 7, Role.PRODUCER)) == []
        driver.clock.advance(ms=400)
        assert all_of(ShmDriverShutdown, driver.work()) == []
        driver.clock.advance(ms=100)
        notice = only(ShmDriverShutdown, driver.work())
        assert (notice.reason, notice.error_message) == (ShutdownReason.ADMIN, "upgrade")
        assert not driver.invoker.is_running

    def test_does_not_end_the_next_driver_too(self, start: StartDriver) -> None:
        """A media driver replays the last messages of a client that is gone (decision L11)."""
        first = start(shutdown_token="secret", shutdown_drain_ms=1)
        self.ask(first, "secret", correlation_id=77)
        first.clock.advance(ms=1)
        first.work()
        second = start(shutdown_token="secret", shutdown_drain_ms=1, clock=first.clock)
        request = ShmDriverShutdownRequest(correlation_id=77, reason=ShutdownReason.ADMIN, token="secret")
        assert second.say(request) == []
        second.pass_time(ms=1_000)
        assert second.invoker.is_running
        assert self.ask(second, "secret", correlation_id=78).code is ResponseCode.OK


class TestHello:
    HELLO = ConsumerHello(
        stream_id=10_000,
        consumer_id=7,
        supports_shm=True,
        supports_progress=False,
        mode=Mode.STREAM,
        descriptor_stream_id=31_005,
        descriptor_channel="aeron:ipc",
    )

    @pytest.mark.parametrize("authority", ["producer", "supervisor"])
    def test_others_answer(self, start: StartDriver, authority: str) -> None:
        driver = start(hello_authority=authority)
        driver.attach()
        assert driver.say(self.HELLO) == []

    def test_the_driver_answers_where_it_is_the_authority(self, start: StartDriver) -> None:
        driver = start(hello_authority="driver")
        driver.attach()
        config = only(ConsumerConfig, driver.say(self.HELLO))
        assert (config.stream_id, config.consumer_id, config.use_shm) == (10_000, 7, True)
        assert (config.descriptor_channel, config.descriptor_stream_id) == ("", 0)  # declined

    @pytest.mark.parametrize("change", [{"supports_shm": False}, {"expected_layout_version": 9}], ids=str)
    def test_shared_memory_only_for_who_can_read_it(self, start: StartDriver, change: dict[str, int]) -> None:
        driver = start(hello_authority="driver")
        driver.attach()
        config = only(ConsumerConfig, driver.say(msgspec.structs.replace(self.HELLO, **change)))
        assert not config.use_shm

    def test_streams_of_others_are_left_to_them(self, start: StartDriver) -> None:
        assert start(hello_authority="driver").say(self.HELLO) == []


class TestBackPressure:
    def test_answers_wait_until_they_can_be_sent(self, driver: DriverBench) -> None:
        request = ShmAttachRequest(1, 10_000, 7, Role.CONSUMER)
        driver.control.offer(encode(request))
        driver.bus.hold_back("aeron:ipc", 1000)
        driver.invoker.invoke()
        driver.invoker.invoke()
        driver.bus.hold_back("aeron:ipc", 1000, on=False)
        assert len(all_of(ShmAttachResponse, driver.work(but=[encode(request)]))) == 1

    def test_nobody_who_listens_is_no_trouble(self, driver: DriverBench) -> None:
        driver.bus.disconnect("aeron:ipc", 1001)
        assert driver.attach().code is ResponseCode.OK
        assert driver.agent.counters.snapshot()["unsent messages"] == 0

    def test_a_message_too_long_for_the_channel_is_counted(self, start: StartDriver) -> None:
        driver = start(
            streams=StreamsSection(announce_channel="aeron:ipc?term-length=64k"),
            default_pools=tuple(64 << n for n in range(20)),
            default_nslots=1,
            shm={"namespace": "n" * 64},
        )
        response = driver.attach(role=Role.CONSUMER)
        assert response.code is ResponseCode.OK
        counted = driver.agent.counters.snapshot()["unsent messages"]
        assert counted == (0 if announces(driver.said) else 1)


class TestStart:
    def test_ranges_that_collide_with_the_streams_are_refused(self, base: Path) -> None:
        with pytest.raises(ConfigError, match=r"contains 31000, streams\.qos_stream_id"):
            DriverAgent(
                MemoryBus().client(), DriverSection(), StreamsSection(qos_stream_id=31_000), ShmSection()
            )

    def test_a_media_driver_that_is_gone_is_an_error(self, start: StartDriver) -> None:
        driver = start()
        driver.attach()
        driver.bus.kill()
        with pytest.raises(NoMediaDriverError):
            driver.invoker.invoke()
        driver.invoker.close()  # says so in the log, and cleans up
        assert driver.epochs == {}

    def test_a_start_that_fails_lets_go_of_the_directory(self, start: StartDriver, base: Path) -> None:
        bus = MemoryBus()
        bench = DriverBench(base, bus=bus)
        bus.dead = True
        with pytest.raises(NoMediaDriverError):
            bench.invoker.start()
        start()


class TestLock:
    def test_a_forked_child_does_not_keep_it(self, base: Path) -> None:
        import warnings

        lock = BaseDirLock(base)
        read_fd, write_fd = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # pytest may have threads
            child = os.fork()
        if child == 0:
            os.close(write_fd)
            os.read(read_fd, 1)  # lives until the parent says so
            os._exit(0 if not lock.held else 1)
        os.close(read_fd)
        try:
            lock.close()
            BaseDirLock(base).close()
        finally:
            os.close(write_fd)
            _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    def test_a_held_lock_survives_a_fork(self, base: Path) -> None:
        import subprocess
        import sys

        with BaseDirLock(base):
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            with pytest.raises(RegionError, match="another SHM driver"):
                BaseDirLock(base)

    def test_may_be_closed_twice(self, base: Path) -> None:
        lock = BaseDirLock(base)
        lock.close()
        lock.close()
        assert not lock.held

"""Limits: refused with the code, and with words that say which limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from driver_bench import DriverBench
from tensor_pool.driver.config import StaticStream
from tensor_pool.driver.limits import FairBucket, TokenBucket
from tensor_pool.transport.backpressure import OfferResult
from tensor_pool.wire import encode
from tensor_pool.wire.messages import ResponseCode, Role, ShmAttachRequest

StartDriver = Callable[..., DriverBench]

REGION_BYTES = 8 * (256 + 4096) + 128


def refused(
    driver: DriverBench, words: str, stream_id: int = 10_000, client_id: int = 99, role: Role = Role.PRODUCER
) -> None:
    before = driver.epochs
    response = driver.attach(stream_id, client_id=client_id, role=role)
    assert response.code is ResponseCode.REJECTED
    assert words in response.error_message
    assert driver.epochs == before


def test_leases(start: StartDriver) -> None:
    driver = start(max_leases=2)
    lease = driver.attach(10_000, client_id=1)
    driver.attach(10_001, client_id=2)
    refused(driver, "2 leases are active, the limit driver.max_leases is 2", 10_002)
    driver.detach(lease, 1, Role.PRODUCER)
    assert driver.attach(10_002, client_id=3).code is ResponseCode.OK


def test_leases_of_a_stream(start: StartDriver) -> None:
    driver = start(max_leases_per_stream=1)
    driver.attach(client_id=1)
    refused(
        driver, "stream 10000 has 1 leases, the limit driver.max_leases_per_stream is 1", role=Role.CONSUMER
    )
    assert driver.attach(10_001, client_id=2).code is ResponseCode.OK


def test_streams(start: StartDriver) -> None:
    driver = start(max_streams=2)
    driver.attach(10_000, client_id=1)
    driver.resolve("reserved", client_id=2)
    refused(driver, "the driver serves 2 streams, the limit driver.max_streams is 2", 10_002)
    refused(driver, "driver.max_streams", 0)
    answer = driver.resolve("one more", client_id=3)
    assert (answer.code, answer.stream_id) == (ResponseCode.REJECTED, None)
    assert "driver.max_streams" in answer.error_message


def test_names_that_nobody_asks_for_any_more_make_room(start: StartDriver) -> None:
    driver = start(max_streams=2)
    driver.resolve("first", client_id=1)
    driver.pass_time(ms=1_000)
    driver.resolve("second", client_id=2)
    driver.pass_time(ms=61_000, step_ms=500)
    driver.resolve("first", client_id=3, role=Role.CONSUMER)
    assert driver.resolve("third", client_id=4).code is ResponseCode.OK
    assert driver.resolve("first", client_id=5).created is False
    assert driver.resolve("second", client_id=6).code is ResponseCode.REJECTED


class TestEndlessNames:
    """Asking for a name costs nothing and needs no lease: a client that runs away must not fill the table."""

    def test_in_a_second(self, start: StartDriver) -> None:
        driver = start(max_new_streams_per_second=10)
        answers = [driver.resolve(f"name-{n}", client_id=n + 1) for n in range(20)]
        assert [answer.code for answer in answers] == [ResponseCode.OK] * 10 + [ResponseCode.REJECTED] * 10
        assert "driver.max_new_streams_per_second = 10" in answers[-1].error_message
        assert driver.agent.counters.snapshot()["refused: rejected"] == 10
        # Whoever asks for what is there pays nothing for it.
        assert driver.resolve("name-3", client_id=30, role=Role.CONSUMER).code is ResponseCode.OK
        driver.pass_time(ms=1_000)
        assert driver.resolve("name-11", client_id=31).code is ResponseCode.OK

    @pytest.mark.parametrize("by_id", [False, True])
    def test_at_one_time(self, start: StartDriver, *, by_id: bool) -> None:
        driver = start(max_unclaimed_streams=3)
        for n in range(50):
            name, stream_id = ("", 10_000 + n) if by_id else (f"name-{n}", None)
            answer = driver.resolve(name, client_id=n + 1, stream_id=stream_id)
            assert answer.code is (ResponseCode.OK if n < 3 else ResponseCode.REJECTED)
        words = (
            "3 streams were asked for that nobody attached to, the limit driver.max_unclaimed_streams is 3"
        )
        assert words in answer.error_message
        assert driver.agent.status().stream_count == 3

    def test_streams_in_use_do_not_count(self, start: StartDriver) -> None:
        driver = start(max_unclaimed_streams=1, static=(StaticStream(id=10_001, name="lab"),))
        for n in range(5):
            stream_id = driver.resolve(f"camera-{n}", client_id=n + 1).stream_id
            assert driver.attach(stream_id or 0, client_id=n + 1).code is ResponseCode.OK

    def test_nobody_who_attaches_is_in_their_way(self, start: StartDriver) -> None:
        """An attach by id is limited as attaches are."""
        driver = start(max_unclaimed_streams=1)
        driver.resolve("only asked for")
        assert driver.attach(10_000, client_id=8).code is ResponseCode.OK

    def test_they_are_forgotten(self, start: StartDriver) -> None:
        driver = start(max_unclaimed_streams=2, max_new_streams_per_second=1_000)
        used = driver.resolve("used", client_id=1)
        lease = driver.attach(used.stream_id or 0, client_id=1)
        driver.detach(lease, 1, Role.PRODUCER)
        driver.resolve("unused", client_id=2)
        driver.resolve("waited-for", client_id=3, role=Role.CONSUMER)
        for _ in range(4):
            assert driver.resolve("refused", client_id=4).code is ResponseCode.REJECTED
            driver.pass_time(ms=15_000, step_ms=500)
            assert driver.resolve("waited-for", client_id=3, role=Role.CONSUMER).created is False
        # The name that was used keeps its id.
        assert driver.resolve("used", client_id=5).stream_id == used.stream_id
        assert driver.resolve("unused", client_id=6).created is True

    def test_a_slow_attach_finds_its_name(self, start: StartDriver) -> None:
        """However short streams without lease live by configuration."""
        driver = start(idle_stream_timeout_ms=1_000)
        stream_id = driver.resolve("camera").stream_id
        driver.pass_time(ms=30_000, step_ms=500)
        assert driver.attach(stream_id or 0).code is ResponseCode.OK
        assert driver.resolve("camera", client_id=8).stream_id == stream_id

    def test_a_restart_does_not_make_them_precious(self, start: StartDriver) -> None:
        first = start()
        stream_id = first.resolve("used", client_id=1).stream_id
        first.attach(stream_id or 0, client_id=1)
        first.resolve("unused", client_id=2)
        first.invoker.close()
        second = start(max_unclaimed_streams=1)
        assert second.agent.status().stream_count == 2
        assert second.resolve("one more", client_id=3).code is ResponseCode.REJECTED
        second.pass_time(ms=61_000, step_ms=500)
        assert second.agent.status().stream_count == 1
        assert second.resolve("used", client_id=4).stream_id == stream_id


def test_bytes_of_a_stream(start: StartDriver) -> None:
    driver = start(max_stream_bytes=REGION_BYTES)
    assert driver.attach(client_id=1).code is ResponseCode.OK
    driver.describe(10_001, client_id=99, strides=(8192,))
    refused(driver, "the limit driver.max_stream_bytes is", 10_001)


def test_bytes_of_all_streams(start: StartDriver) -> None:
    driver = start(max_total_bytes=2 * REGION_BYTES, epoch_min_age_ms=1_000)
    lease = driver.attach(10_000, client_id=1)
    other = driver.attach(10_001, client_id=2)
    refused(driver, f"beside {2 * REGION_BYTES} in use, the limit driver.max_total_bytes is", 10_002)
    # A consumer's sparse epoch takes nothing.
    assert driver.attach(10_002, client_id=3, role=Role.CONSUMER).code is ResponseCode.OK
    # An ended epoch counts until it is removed; whoever meets it is told that waiting helps.
    driver.detach(lease, 1, Role.PRODUCER)
    refused(
        driver, f"in use ({REGION_BYTES} of them by epochs that have ended and go soon), the limit", 10_000
    )
    for _ in range(5):
        driver.pass_time(ms=1_000)
        driver.keep_alive(other, 2, Role.PRODUCER)
    assert driver.attach(10_000, client_id=4).code is ResponseCode.OK


def test_many_who_ask_once_are_not_remembered_for_ever() -> None:
    bucket = FairBucket(per_second=10)
    for who in range(100_000):
        bucket.take(who, now_ns=0)
    assert len(bucket._own) <= 1_024


def test_a_client_that_runs_away_keeps_nobody_else_out(start: StartDriver) -> None:
    driver = start(max_attaches_per_second=100)
    runaway = driver.bus.client().add_publication("aeron:ipc", 1000)
    for number in range(5):
        for attempt in range(200):
            request = ShmAttachRequest(number * 200 + attempt, 10_000, 999, Role.CONSUMER)
            assert runaway.offer(encode(request)) is OfferResult.SENT
        driver.work(cycles=20)
        assert driver.attach(10_000 + number, client_id=number + 1).code is ResponseCode.OK


def test_attaches_in_a_second(start: StartDriver) -> None:
    driver = start(max_attaches_per_second=10)
    codes = [driver.attach(10_000 + n, client_id=n + 1).code for n in range(20)]
    assert codes == [ResponseCode.OK] * 10 + [ResponseCode.REJECTED] * 10
    refused(driver, "driver.max_attaches_per_second = 10", 10_030)
    driver.pass_time(ms=1_000)
    assert driver.attach(10_030, client_id=30).code is ResponseCode.OK


def test_a_refused_attach_leaves_no_stream(start: StartDriver) -> None:
    driver = start(max_leases=1)
    driver.attach(10_000, client_id=1)
    for n in range(50):
        refused(driver, "max_leases", 10_001 + n)
        refused(driver, "max_leases", 0)
    assert driver.agent.status().stream_count == 1


def test_refusals_are_counted_by_code(start: StartDriver) -> None:
    driver = start(max_leases=1)
    driver.attach(client_id=1)
    driver.attach(client_id=2)
    driver.attach(1, client_id=2)
    counted = driver.agent.counters.snapshot()
    assert (counted["attaches"], counted["refused: rejected"], counted["refused: invalid params"]) == (
        1,
        1,
        1,
    )
    assert counted["leases"] == 1


@pytest.mark.parametrize("per_second", [1, 7, 1_000])
def test_a_bucket_lets_no_more_through_than_it_says(per_second: int) -> None:
    bucket = TokenBucket(per_second)
    first = sum(bucket.take(0) for _ in range(3 * per_second))
    later = sum(bucket.take(ns) for ns in range(0, 10_000_000_000, 10_000_000_000 // (30 * per_second)))
    assert first == per_second
    assert 6 * per_second <= later <= 10 * per_second

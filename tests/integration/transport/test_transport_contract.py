"""One suite for all transports: whatever agents rely on holds for Aeron, drained or not, and in memory."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tensor_pool.closing import Closing
from tensor_pool.errors import (
    BackPressureError,
    ChannelError,
    ClosedError,
    NoMediaDriverError,
    TransportError,
)
from tensor_pool.transport import (
    RAISE,
    AeronClient,
    Client,
    Drain,
    EmbeddedMediaDriver,
    Header,
    OfferResult,
    Publication,
    Subscription,
    read_counters,
    retry_for,
)
from tensor_pool.transport.memory import MemoryBus

IPC = "aeron:ipc?term-length=64k"
BIG = "aeron:ipc?term-length=16m"
WAIT_MS = 20_000
Eventually = Callable[[Callable[[], object]], None]


@dataclass
class Transport:
    """A transport under test: how to get a client, how to end it, how to see its counters."""

    client: Callable[[], Client]
    kill: Callable[[], None]
    counters: Callable[[], list[Any]]


@pytest.fixture(params=["aeron", "drained", "memory"])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    if request.param == "memory":
        bus = MemoryBus()
        yield Transport(bus.client, bus.kill, bus.counters)
        return
    driver: EmbeddedMediaDriver = request.getfixturevalue("media_driver")
    opened: list[Closing] = []

    def connect() -> Client:
        client = AeronClient.connect(driver.aeron_dir, keepalive_interval_ms=50)
        opened.append(client)
        if request.param == "aeron":
            return client
        drain = Drain(client)
        opened.append(drain)
        return drain.client

    yield Transport(connect, driver.close, lambda: list(read_counters(driver.aeron_dir)))
    for handle in opened:
        handle.close()


polled_by_agents = pytest.mark.parametrize("transport", ["aeron", "memory"], indirect=True)
"""Decorates tests of back-pressure, which a drain is there to prevent."""


@pytest.fixture
def client(transport: Transport) -> Client:
    return transport.client()


def pair(client: Client, channel: str = IPC, **options: Any) -> tuple[Publication, Subscription]:
    """Both ends of a stream that have found each other."""
    subscription = client.add_subscription(channel, 7)
    publication = client.add_publication(channel, 7, **options)
    assert publication.wait_connected(WAIT_MS)
    assert subscription.wait_connected(WAIT_MS)
    return publication, subscription


def receive(subscription: Subscription, count: int) -> list[bytes]:
    """Exactly this many messages."""
    messages: list[bytes] = []
    deadline = time.monotonic() + WAIT_MS / 1e3
    while len(messages) < count and time.monotonic() < deadline:
        messages += subscription.receive()
    assert len(messages) == count
    return messages


def fill(publication: Publication) -> OfferResult:
    """Offers until the stream takes no more."""
    for _ in range(100_000):
        result = publication.offer(bytes(1024))
        if not result:
            return result
    pytest.fail("no back-pressure")


class TestMessages:
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
    def test_arrive_in_order_whatever_holds_them(self, client: Client, kind: Callable[[bytes], Any]) -> None:
        publication, subscription = pair(client)
        sent = [b"", b"a", bytes(range(256)), b"z" * 1000]
        assert [publication.offer(kind(message)) for message in sent] == [OfferResult.SENT] * 4
        assert receive(subscription, 4) == sent

    def test_longer_than_one_fragment_arrive_whole(self, client: Client) -> None:
        publication, subscription = pair(client, BIG)
        large = bytes(i % 251 for i in range(1 << 20))
        assert publication.max_payload_bytes < len(large) <= publication.max_message_bytes
        assert publication.offer(large)
        assert publication.offer(b"next")
        assert receive(subscription, 2) == [large, b"next"]
        assert subscription.abandoned_messages == 0

    def test_too_long_is_an_error_with_both_lengths(self, client: Client) -> None:
        publication, _ = pair(client)
        too_long = publication.max_message_bytes + 1
        with pytest.raises(TransportError, match=f"{too_long} bytes.*at most {too_long - 1}") as offered:
            publication.offer(bytes(too_long))
        assert "term-length" in offered.value.hint
        with pytest.raises(TransportError) as claimed:
            publication.try_claim(bytes(publication.max_payload_bytes + 1))
        assert "offer()" in claimed.value.hint
        assert publication.counts.failed == 2

    def test_claims_carry_short_messages(self, client: Client) -> None:
        publication, subscription = pair(client)
        longest = bytes(publication.max_payload_bytes)
        assert publication.try_claim(b"short")
        assert publication.try_claim(longest)
        assert receive(subscription, 2) == [b"short", longest]

    def test_reach_every_subscription(self, transport: Transport, client: Client) -> None:
        publication, near = pair(client)
        far = transport.client().add_subscription(IPC, 7)
        assert far.wait_connected(WAIT_MS)
        publication.offer(b"to all")
        assert receive(near, 1) == receive(far, 1) == [b"to all"]

    def test_of_other_streams_are_not_heard(self, client: Client) -> None:
        publication, _ = pair(client)
        other = client.add_subscription(IPC, 8)
        publication.offer(b"x")
        assert other.receive() == []
        assert not other.connected


class TestPolling:
    def test_headers_tell_session_and_growing_position(self, client: Client) -> None:
        publication, subscription = pair(client)
        for i in range(3):
            publication.offer(bytes([i]))
        seen: list[tuple[bytes, Header]] = []
        while len(seen) < 3:
            subscription.poll(lambda message, header: seen.append((message, header)))
        assert [message for message, _ in seen] == [b"\0", b"\1", b"\2"]
        assert {header[:2] for _, header in seen} == {(publication.session_id, 7)}
        assert seen[-1][1].position == publication.position
        assert sorted({header.position for _, header in seen}) == [header.position for _, header in seen]

    def test_the_limit_bounds_one_turn(self, client: Client) -> None:
        publication, subscription = pair(client)
        for i in range(20):
            publication.offer(bytes([i]))
        assert len(subscription.receive(limit=5)) == 5
        assert subscription.poll(lambda _message, _header: None, limit=3) == 3
        assert len(receive(subscription, 12)) == 12

    def test_a_failing_handler_loses_only_the_message_it_failed_with(self, client: Client) -> None:
        publication, subscription = pair(client)
        for i in range(4):
            publication.offer(bytes([i]))
        seen: list[bytes] = []

        def handler(message: bytes, _header: Header) -> None:
            if message == b"\1":
                raise RuntimeError("on purpose")
            seen.append(message)

        failures = 0
        deadline = time.monotonic() + WAIT_MS / 1e3
        while len(seen) < 3 and time.monotonic() < deadline:
            try:
                subscription.poll(handler)
            except RuntimeError:
                failures += 1
        assert failures == 1
        assert seen == [b"\0", b"\2", b"\3"]

    def test_a_handler_may_use_and_close_everything(self, client: Client) -> None:
        publication, subscription = pair(client)
        publication.offer(b"end")
        publication.offer(b"never seen")
        ended = []

        def handler(message: bytes, _header: Header) -> None:
            assert message == b"end"
            subscription.receive()
            subscription.close()
            client.close()
            ended.append(message)

        while not ended:
            subscription.poll(handler, limit=1)
        with pytest.raises(ClosedError):
            subscription.poll(handler)


class TestBackPressure:
    def test_nobody_listening_is_a_result(self, client: Client) -> None:
        publication = client.add_publication(IPC, 7, policy=RAISE)
        assert publication.offer(b"x") is OfferResult.NOT_CONNECTED
        assert publication.try_claim(b"x") is OfferResult.NOT_CONNECTED
        assert not publication.connected
        assert publication.counts.not_connected == 2

    @polled_by_agents
    def test_a_reader_that_does_not_read_is_a_result_and_later_room(
        self, client: Client, eventually: Eventually
    ) -> None:
        publication, subscription = pair(client)
        assert fill(publication) is OfferResult.BACK_PRESSURED
        counts = publication.counts
        assert counts.sent >= 16
        assert counts.sent_bytes == 1024 * counts.sent
        assert (counts.back_pressured, counts.dropped, counts.raised) == (1, 1, 0)
        eventually(lambda: subscription.receive(100) is not None and publication.offer(b"room"))

    @polled_by_agents
    def test_a_policy_may_raise(self, client: Client) -> None:
        publication, _ = pair(client, policy=RAISE)
        with pytest.raises(BackPressureError, match="stream 7"):
            fill(publication)
        assert (publication.counts.dropped, publication.counts.raised) == (0, 1)

    def test_a_policy_may_wait_for_room(self, client: Client) -> None:
        publication, subscription = pair(client, policy=retry_for(WAIT_MS))
        count = 300
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.extend(receive(subscription, count)))
        reader.start()
        try:
            results = {publication.offer(i.to_bytes(4, "little") * 256) for i in range(count)}
        finally:
            reader.join()
        assert results == {OfferResult.SENT}
        assert [int.from_bytes(message[:4], "little") for message in received] == list(range(count))


class TestImages:
    @pytest.mark.req("WIRE-10.1.1-11")
    def test_tell_when_a_publication_became_available(self, client: Client, eventually: Eventually) -> None:
        subscription = client.add_subscription(IPC, 7)
        before_ns = time.monotonic_ns()
        publication = client.add_publication(IPC, 7)
        eventually(subscription.images)
        (image,) = subscription.images()
        assert image.session_id == publication.session_id
        assert before_ns <= image.join_time_ns <= time.monotonic_ns()
        assert subscription.join_time_ns(publication.session_id) == image.join_time_ns
        assert subscription.join_time_ns(publication.session_id + 1) is None

    def test_come_and_go_as_events(self, client: Client, eventually: Eventually) -> None:
        publication, subscription = pair(client)
        publication.close()
        eventually(lambda: subscription.receive() == [] and not subscription.connected)
        eventually(lambda: subscription.images() == [])
        events = subscription.take_image_events()
        assert [(event.available, event.image.session_id) for event in events] == [
            (True, publication.session_id),
            (False, publication.session_id),
        ]
        assert subscription.take_image_events() == []


class TestCounters:
    def test_count_and_are_seen_by_others(self, transport: Transport, client: Client) -> None:
        cell = client.add_counter(4321, "frames of camera-1", b"stream 7")
        cell.set(40)
        assert (cell.add(5), cell.add(-3), cell.get()) == (45, 42, 42)
        (reading,) = (reading for reading in transport.counters() if reading.type_id == 4321)
        assert (reading.value, reading.label, reading.owner_id) == (
            42,
            "frames of camera-1",
            client.client_id,
        )
        assert reading.key == b"stream 7".ljust(112, b"\0")

    def test_are_gone_after_close(self, transport: Transport, client: Client, eventually: Eventually) -> None:
        cell = client.add_counter(4321, "short-lived")
        cell.close()
        cell.close()
        for use in (cell.get, lambda: cell.set(1), lambda: cell.add(1)):
            with pytest.raises(ClosedError):
                use()
        eventually(lambda: all(reading.type_id != 4321 for reading in transport.counters()))

    def test_refuse_what_does_not_fit(self, client: Client) -> None:
        for label, key in (("x" * 381, b""), ("é" * 191, b""), ("x", bytes(113))):
            with pytest.raises(TransportError):
                client.add_counter(4321, label, key)


class TestEnds:
    def test_use_after_close_is_an_error_everywhere(self, client: Client) -> None:
        publication, subscription = pair(client)
        for end in (publication, subscription):
            end.close()
            end.close()
            assert end.closed
        uses: list[Callable[[], object]] = [
            lambda: publication.offer(b"x"),
            lambda: publication.try_claim(b"x"),
            lambda: publication.connected,
            lambda: publication.position,
            lambda: publication.wait_connected(1),
            lambda: subscription.poll(lambda _message, _header: None),
            subscription.receive,
            subscription.images,
            subscription.take_image_events,
            lambda: subscription.join_time_ns(1),
            lambda: subscription.connected,
        ]
        for use in uses:
            with pytest.raises(ClosedError):
                use()
        client.close()
        client.close()
        assert client.closed
        for use in (
            client.check,
            lambda: client.add_publication(IPC, 1),
            lambda: client.add_counter(4000, "x"),
        ):
            with pytest.raises(ClosedError):
                use()

    def test_a_client_closes_what_it_made(self, client: Client) -> None:
        publication, subscription = pair(client)
        cell = client.add_counter(4000, "x")
        client.close()
        for use in (lambda: publication.offer(b"x"), subscription.receive, cell.get):
            with pytest.raises(ClosedError):
                use()
        publication.close()
        subscription.close()
        cell.close()

    def test_contexts_close(self, client: Client) -> None:
        with (
            client,
            client.add_publication(IPC, 7) as publication,
            client.add_subscription(IPC, 7) as subscription,
        ):
            assert not publication.closed
        assert publication.closed
        assert subscription.closed
        assert client.closed

    def test_ends_outlive_the_name_of_their_client(self, transport: Transport) -> None:
        publication, subscription = pair(transport.client())
        gc.collect()
        publication.offer(b"still here")
        assert receive(subscription, 1) == [b"still here"]

    def test_closing_in_another_thread_ends_a_polling_and_an_offering_one(self, client: Client) -> None:
        publication, subscription = pair(client)
        errors: list[BaseException] = []

        def work(turn: Callable[[], object]) -> None:
            try:
                while True:
                    turn()
            except ClosedError as error:
                errors.append(error)

        threads = [
            threading.Thread(target=work, args=(turn,))
            for turn in (subscription.receive, lambda: publication.offer(b"x" * 100), client.check)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        client.close()
        for thread in threads:
            thread.join(timeout=20)
        assert len(errors) == 3

    def test_the_media_drivers_end_is_an_error_everywhere(
        self, transport: Transport, eventually: Eventually
    ) -> None:
        client = transport.client()
        publication, subscription = pair(client)
        transport.kill()
        eventually(lambda: client.closed)
        uses: list[Callable[[], object]] = [
            client.check,
            lambda: publication.offer(b"x"),
            subscription.receive,
            lambda: client.add_subscription(IPC, 1),
            lambda: client.add_counter(4000, "x"),
        ]
        for use in uses:
            with pytest.raises(NoMediaDriverError):
                use()
        client.close()
        with pytest.raises(ClosedError):
            client.check()

    @pytest.mark.parametrize("channel", ["nonsense", "aeron:udp", "aeron:ipc?term-lenght=64k"])
    def test_bad_channels_are_refused(self, client: Client, channel: str) -> None:
        for add in (client.add_publication, client.add_subscription):
            with pytest.raises(ChannelError):
                add(channel, 1)
        with pytest.raises(ChannelError):
            client.add_publication(IPC, 2**31)

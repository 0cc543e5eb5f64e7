"""The provider over streams in memory: who is heard, who is answered, what is counted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from discoveries import LAB, SECOND, announce, described, meta, request
from tensor_pool.channels import Endpoint
from tensor_pool.discovery.agent import DiscoveryAgent
from tensor_pool.discovery.authority import Authority
from tensor_pool.discovery.config import DiscoverySection
from tensor_pool.discovery.feed import RegistryFeed
from tensor_pool.discovery.hearing import DriverEar
from tensor_pool.discovery.places import HeardDriver
from tensor_pool.errors import ChannelError
from tensor_pool.runtime import AgentInvoker, FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire import Router, decode, encode
from tensor_pool.wire.messages import (
    DiscoveryResponse,
    DiscoveryStatus,
    DriverAnnounce,
    ShmDriverShutdown,
    ShutdownReason,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import DiscoveryRequest

CONTROL = Endpoint("aeron:ipc", 1000)
ANNOUNCES = Endpoint("aeron:ipc", 1001)
METADATA = Endpoint("aeron:ipc", 1300)
FEED = Endpoint("aeron:ipc", 7001)
ANSWERS = Endpoint("aeron:ipc?term-length=4m", 7004)


class Provider:
    """A provider that a test drives."""

    def __init__(
        self, bus: MemoryBus, *drivers: HeardDriver, section: DiscoverySection | None = None
    ) -> None:
        self.bus = bus
        self.clock = FakeClock()
        self.agent = DiscoveryAgent(
            bus.client(),
            section or DiscoverySection(),
            requests=CONTROL,
            drivers=drivers,
            expiry_ns=3 * SECOND,
            clock=self.clock,
        )
        self.invoker = AgentInvoker(self.agent)
        self.invoker.start()
        self.answers = bus.client().add_subscription(*ANSWERS)

    def say(self, where: Endpoint, *messages: Message | bytes) -> None:
        """Sends messages as one publication, and lets the provider work."""
        with self.bus.client().add_publication(*where) as publication:
            for message in messages:
                publication.offer(message if isinstance(message, bytes) else encode(message))
            self.invoker.invoke()

    def ask(self, asked: DiscoveryRequest | None = None) -> list[DiscoveryResponse]:
        """What comes back."""
        self.say(CONTROL, asked or request())
        given = [decode(data) for data in self.answers.receive()]
        assert all(isinstance(each, DiscoveryResponse) for each in given)
        return [each for each in given if isinstance(each, DiscoveryResponse)]

    def streams(self) -> list[tuple[str, int]]:
        """Drivers and ids of all streams that it tells of."""
        (answer,) = self.ask()
        return [(result.driver_instance_id, result.stream_id) for result in answer.results]

    @property
    def counts(self) -> dict[str, int]:
        """What it counted."""
        return self.agent.counters.snapshot()


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
def provider(bus: MemoryBus) -> Iterator[Provider]:
    provider = Provider(bus, HeardDriver(ANNOUNCES, METADATA, LAB))
    yield provider
    provider.invoker.close()


@pytest.mark.req("DSC-2.1-1", "DSC-4.3-2", "DSC-5.2-1")
def test_a_query_is_answered_where_it_says(provider: Provider) -> None:
    provider.say(ANNOUNCES, announce())
    provider.say(METADATA, described(), meta(tags="left"))
    (answer,) = provider.ask(request("left"))
    assert (answer.request_id, answer.status) == (0x1122334455667788, DiscoveryStatus.OK)
    assert [result.data_source_name for result in answer.results] == ["camera"]


@pytest.mark.req("DSC-4.3-3")
def test_nothing_is_answered_where_it_was_asked(bus: MemoryBus, provider: Provider) -> None:
    listener = bus.client().add_subscription(*CONTROL)
    provider.say(CONTROL, request())
    assert [type(decode(data)).__name__ for data in listener.receive()] == ["DiscoveryRequest"]


@pytest.mark.req("DSC-4.2-3", "DSC-10-6", "DSC-8-2")
def test_other_messages_on_the_same_stream_are_none_of_its_business(provider: Provider) -> None:
    other_schema, other_version = (bytearray(encode(request())) for _ in range(2))
    struct.pack_into("<H", other_schema, 4, 900)
    struct.pack_into("<H", other_version, 6, 99)
    provider.say(CONTROL, announce(), bytes(other_schema), bytes(other_version), b"", b"\xff" * 40)
    assert provider.answers.receive() == []
    assert provider.counts["queries dropped (unsupported_version)"] == 1


@pytest.mark.req("DSC-5.1-5", "DSC-5.1-6")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"response_channel": ""}, "no_response_channel"),
        ({"response_stream_id": 0}, "no_response_stream"),
        ({"response_channel": "aeron:udp?endpoint=registry.lab:4000"}, "response_host_name"),
        ({"response_channel": "nonsense"}, "bad_response_channel"),
    ],
)
def test_requests_without_a_way_back_are_dropped_and_counted(
    provider: Provider, changes: dict[str, object], reason: str
) -> None:
    assert provider.ask(request(**changes)) == []
    assert provider.counts[f"queries dropped ({reason})"] == 1
    assert len(provider.ask()) == 1


def test_a_query_cut_short_is_dropped_and_counted(provider: Provider) -> None:
    provider.say(CONTROL, encode(request("left"))[:-6])
    assert provider.answers.receive() == []
    assert provider.counts["queries dropped (malformed)"] == 1


@pytest.mark.parametrize(("count", "reason"), [(65_534, "too_long"), (4_000, "too_many_tags")])
def test_endless_tags_are_dropped_unread(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, count: int, reason: str
) -> None:
    """Reading 65,534 empty tags takes as long as thousands of queries."""
    read: list[bytes] = []
    monkeypatch.setattr(Router, "dispatch", lambda _router, data: read.append(data))
    assert provider.ask(request(*[""] * count)) == []
    assert read == []
    assert provider.counts == {**provider.counts, f"queries dropped ({reason})": 1}
    monkeypatch.undo()
    assert len(provider.ask()) == 1


@pytest.mark.req("DSC-5.2-15", "DSC-5.2-22")
def test_who_asks_for_too_many_tags_is_told_so(provider: Provider) -> None:
    (answer,) = provider.ask(request(*map(str, range(66))))
    assert (answer.status, answer.results) == (DiscoveryStatus.ERROR, ())
    assert "more than 65 tags" in answer.error_message
    assert provider.counts["queries dropped (too_many_tags)"] == 1


def test_only_queries_are_dropped_for_their_length(provider: Provider) -> None:
    provider.say(CONTROL, encode(meta(tags="x" * 100_000)))
    assert not [name for name in provider.counts if "dropped" in name]


@pytest.mark.req("DSC-6.2-3")
def test_a_stream_that_is_silent_is_gone(provider: Provider) -> None:
    provider.say(ANNOUNCES, announce())
    provider.clock.advance(s=2)
    assert provider.streams() == [("lab", 10_000)]
    provider.clock.advance(s=1)
    assert provider.streams() == []
    provider.invoker.invoke()
    assert provider.counts["streams known"] == 0


def test_a_driver_that_says_goodbye_has_no_streams(provider: Provider) -> None:
    provider.say(ANNOUNCES, announce())
    provider.say(ANNOUNCES, ShmDriverShutdown(timestamp_ns=1, reason=ShutdownReason.NORMAL))
    assert provider.streams() == []


def test_answers_wait_until_somebody_listens(bus: MemoryBus, provider: Provider) -> None:
    late = request(response_stream_id=7777)
    provider.say(CONTROL, late)
    listener = bus.client().add_subscription("aeron:ipc?term-length=4m", 7777)
    provider.invoker.invoke()
    assert len(listener.receive()) == 1


def test_answers_that_nobody_takes_are_given_up(provider: Provider) -> None:
    for request_id in range(10):
        provider.say(CONTROL, request(response_stream_id=7777, request_id=request_id))
    assert provider.counts["queries dropped (too_many_waiting)"] == 2
    provider.clock.advance(s=2)
    provider.invoker.invoke()
    assert provider.counts["answers unsent"] == 8


def test_a_question_that_is_repeated_waits_once(bus: MemoryBus, provider: Provider) -> None:
    for _ in range(10):
        provider.say(CONTROL, request(response_stream_id=7777))
    listener = bus.client().add_subscription("aeron:ipc?term-length=4m", 7777)
    assert provider.invoker.invoke() == 1
    assert len(listener.receive()) == 1
    assert "queries dropped (too_many_waiting)" not in provider.counts


def test_an_answer_that_waits_is_no_work(provider: Provider) -> None:
    """An agent that calls waiting work would spin for whoever never listens."""
    provider.say(CONTROL, request(response_stream_id=7777))
    assert provider.invoker.invoke() == 0


def test_a_flood_of_endpoints_keeps_few_open(provider: Provider) -> None:
    for stream_id in range(8_000, 8_300):
        provider.say(CONTROL, request(response_stream_id=stream_id))
    assert provider.agent.open_ports <= 64
    assert len(provider.ask()) == 1
    provider.clock.advance(s=60)
    provider.invoker.invoke()
    assert provider.agent.open_ports == 0


def test_who_names_ever_new_endpoints_is_not_followed(provider: Provider) -> None:
    flood = [request(response_stream_id=stream_id) for stream_id in range(8_000, 8_300)]
    provider.say(CONTROL, *flood)
    while provider.invoker.invoke():
        pass
    assert provider.agent.open_ports == 8
    assert provider.counts["queries dropped (too_many_endpoints)"] == 300 - 8
    somebody_else = provider.bus.client().add_subscription("aeron:ipc?term-length=4m", 7777)
    provider.ask(request(response_stream_id=7777))
    assert len(somebody_else.receive()) == 1
    provider.clock.advance(s=2)
    provider.say(CONTROL, request(response_stream_id=8_400))
    assert provider.agent.open_ports <= 3, "those that nobody listens to are closed"


@pytest.mark.req("DSC-2.2-1", "DSC-6.1-1")
def test_a_registry_hears_of_drivers_that_say_who_they_are(bus: MemoryBus) -> None:
    registry = Provider(bus, HeardDriver(FEED, FEED, None))
    registry.say(FEED, announce())
    assert registry.counts["announces refused (unknown_driver)"] == 1
    feeds = []
    for number in (1, 2):
        driver = Authority(f"driver-{number}", "aeron:ipc", 1000, f"host-{number}")
        announces, names = (
            Endpoint("aeron:ipc", 1001 + number * 100),
            Endpoint("aeron:ipc", 1300 + number * 100),
        )
        feed = RegistryFeed(
            bus.client(),
            HeardDriver(announces, names, driver),
            [FEED],
            period_ns=SECOND,
            clock=registry.clock,
        )
        feeds.append(AgentInvoker(feed))
        feeds[-1].start()
        feeds[-1].invoke()
        for where, message in ((announces, announce()), (names, described(f"camera-{number}"))):
            with bus.client().add_publication(*where) as publication:
                publication.offer(encode(message))
        feeds[-1].invoke()
        registry.invoker.invoke()
    (answer,) = registry.ask()
    assert [(each.driver_instance_id, each.data_source_name) for each in answer.results] == [
        ("driver-1", "camera-1"),
        ("driver-2", "camera-2"),
    ]
    assert [each.tags[0].tag for each in answer.results] == ["host:host-1", "host:host-2"]
    for end in (*feeds, registry.invoker):
        end.close()


def test_a_registry_is_told_at_once_that_a_driver_ends(bus: MemoryBus) -> None:
    registry = Provider(bus, HeardDriver(FEED, FEED, None))
    feed = RegistryFeed(
        bus.client(), HeardDriver(ANNOUNCES, METADATA, LAB), [FEED], period_ns=SECOND, clock=registry.clock
    )
    with AgentInvoker(feed) as telling, bus.client().add_publication(*ANNOUNCES) as driver:
        telling.invoke()
        driver.offer(encode(announce()))
        telling.invoke()
        assert registry.streams() == [("lab", 10_000)]
    assert registry.streams() == []
    registry.invoker.close()


def test_a_feed_that_can_not_begin_ends_quietly(bus: MemoryBus) -> None:
    nowhere = Endpoint("aeron:udp?endpoint=nobody", 7001)
    feed = RegistryFeed(bus.client(), HeardDriver(ANNOUNCES, METADATA, LAB), [nowhere], period_ns=SECOND)
    with pytest.raises(ChannelError):
        feed.on_start()
    feed.on_close()


def test_a_registry_notices_two_drivers_of_one_name(bus: MemoryBus, caplog: pytest.LogCaptureFixture) -> None:
    registry = Provider(bus, HeardDriver(FEED, FEED, None))
    who = DriverAnnounce(
        timestamp_ns=1,
        control_stream_id=1000,
        announce_interval_ms=1_000,
        instance_id="twin",
        control_channel="aeron:ipc",
        host="vm",
    )
    clash = "announces refused (same_name)"
    with bus.client().add_publication(*FEED) as one, bus.client().add_publication(*FEED) as other:
        for line in (one, one, other, other):  # one driver that starts again
            line.offer(encode(who))
        registry.invoker.invoke()
        assert clash not in registry.counts
        for line in (one, other, one):
            line.offer(encode(who))
        registry.invoker.invoke()
    assert registry.counts[clash] == 3
    assert [record.message for record in caplog.records if "two drivers are called twin" in record.message]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    registry.invoker.close()


def test_another_driver_on_the_same_stream_is_not_taken_for_this_one(bus: MemoryBus) -> None:
    with bus.client().add_publication(*ANNOUNCES) as own:
        provider = Provider(
            bus, HeardDriver(ANNOUNCES, METADATA, LAB, lambda session: session == own.session_id)
        )
        provider.say(ANNOUNCES, announce(stream_id=20_000))
        own.offer(encode(announce(stream_id=10_000)))
        assert provider.streams() == [("lab", 10_000)]
        provider.say(ANNOUNCES, ShmDriverShutdown(timestamp_ns=1, reason=ShutdownReason.NORMAL))
        assert provider.streams() == [("lab", 10_000)]
        provider.invoker.close()


def test_who_asks_does_not_wait_until_everything_was_heard(bus: MemoryBus, provider: Provider) -> None:
    with bus.client().add_publication(*ANNOUNCES) as publication:
        for stream_id in range(1, 1_001):
            publication.offer(encode(announce(stream_id=stream_id)))
        (answer,) = provider.ask()
        heard = len(answer.results)
        assert 0 < heard <= 100, "some of what came before, not all of it"
        while len(provider.streams()) < 1_000:
            assert len(provider.streams()) > heard, "and it goes on hearing"


def test_announces_that_came_too_fast_are_counted(bus: MemoryBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DriverEar, "overflowed", 7)
    provider = Provider(bus, HeardDriver(ANNOUNCES, METADATA, LAB))
    provider.clock.advance(s=1)
    provider.invoker.invoke()
    assert provider.agent.counters.snapshot()["announces refused (overflowed)"] == 7

"""A service over streams in memory: what it hears, echoes, tells and counts."""

from __future__ import annotations

import msgspec
import pytest

from discoveries import announce
from tensor_pool.config import load_config
from tensor_pool.control.access import Commanders, CommandRule, is_local
from tensor_pool.control.client import EventClient
from tensor_pool.control.declared import Command, Property
from tensor_pool.control.desk import ServiceDesk
from tensor_pool.control.events import Event, EventForm, event_message
from tensor_pool.control.service import ENDED, INFO, REFUSED, ServiceAgent, ServiceInfo
from tensor_pool.errors import CommandRefusedError, ConfigError, NoServiceError
from tensor_pool.runtime import AgentInvoker, FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire import encode

CONTROL, STATUS = ("aeron:ipc", 1400), ("aeron:ipc", 1401)


@pytest.fixture(autouse=True)
def everybody_may_command(monkeypatch):
    """Streams in memory have no address."""
    monkeypatch.setattr(Commanders, "allow", lambda *_: True)


class Lamp:
    """A service that a test drives."""

    def __init__(self, bus: MemoryBus, tag: str = "service:lamp", **settings) -> None:
        self.clock = FakeClock()
        self.blinks: list = []
        self.agent = ServiceAgent(
            bus.client(),
            load_config(environ={}, search=False, overrides=settings),
            tag,
            ServiceDesk(
                {"on": Property(bool, default=False), "blink": Command(self.blinks.append, kind=int)}
            ),
            clock=self.clock,
        )
        self.heard = bus.client().add_subscription(*STATUS)
        self.commands = bus.client().add_publication(*CONTROL)
        self.invoker = AgentInvoker(self.agent)
        self.invoker.start()
        self.work()

    def tell(self, key, value=None, *, tag="service:lamp", correlation_id=42) -> list[Event]:
        message = event_message(tag, key, value, correlation_id=correlation_id)
        self.commands.offer(EventForm().encode(message))
        return self.work()

    def work(self) -> list[Event]:
        self.invoker.invoke()
        return [Event.of(EventForm().decode(data)) for data in self.heard.receive(1_000)]


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
def lamp(bus):
    lamp = Lamp(bus)
    yield lamp
    lamp.invoker.close()


@pytest.mark.req("SVC-4-1", "SVC-4-2", "SVC-6-1", "SVC-5.2-6")
def test_an_accepted_command_is_echoed_as_it_came(lamp):
    (echo,) = lamp.tell("on", value=True)
    assert (echo.tag, echo.key, echo.value, echo.correlation_id) == ("service:lamp", "on", True, 42)
    (echo,) = lamp.tell("blink", 3, correlation_id=-7)
    assert (echo.key, echo.value, echo.correlation_id) == ("blink", 3, -7)
    assert (lamp.agent.desk["on"], lamp.blinks) == (True, [3])
    assert lamp.agent.counters.snapshot()["commands accepted"] == 2


@pytest.mark.req("SVC-6-2")
def test_replaying_the_status_gives_what_was_accepted(lamp):
    events = [
        *lamp.tell("on", value=True, correlation_id=1),
        *lamp.tell("on", "yes", correlation_id=2),
        *lamp.tell("nothing", correlation_id=3),
        *lamp.tell("on", value=False, correlation_id=4),
    ]
    assert [(e.correlation_id, e.value) for e in events if e.correlation_id] == [(1, True), (4, False)]
    refused = [msgspec.json.decode(event.value) for event in events if event.key == REFUSED]
    assert [(each["correlation_id"], each["reason"]) for each in refused] == [
        (2, "wrong_value"),
        (3, "unknown_key"),
    ]


@pytest.mark.req("SVC-5-3")
def test_only_its_own_tag_counts(bus, lamp):
    other = Lamp(bus, "service:lamp:2")
    lamp.work()
    assert lamp.tell("on", value=True, tag="service:lamp:2") == []
    for tag in ("service:LAMP", "service:lam", "lamp", "", "service:*"):
        assert lamp.tell("on", value=True, tag=tag) == []
    other.invoker.invoke()
    assert (lamp.agent.desk["on"], other.agent.desk["on"]) == (False, True)
    assert "commands refused (unknown_key)" not in lamp.agent.counters.snapshot()


class TestCommandsFromBefore:
    """Aeron may give a new subscriber what was said to another one."""

    @pytest.fixture(autouse=True)
    def from_this_host(self, monkeypatch):
        monkeypatch.setattr("tensor_pool.control.service.is_ipc", lambda _: True)

    @pytest.mark.parametrize(
        ("said_before_ns", "is_carried_out"),
        [(1, False), (60_000_000_000, False), (0, True), (-1, True), (10**18, True)],
        ids=["just before", "a minute ago", "at the start", "afterwards", "by another clock"],
    )
    @pytest.mark.parametrize("step_ns", [0, -(10**13), 10**13])
    def test_are_left_out_and_counted(self, lamp, said_before_ns, is_carried_out, step_ns):
        lamp.clock.step_realtime(step_ns)  # an operator sets the clock; commands are stamped with it
        said_ns = lamp.clock.realtime_ns() - said_before_ns
        lamp.clock.advance(s=5)
        message = event_message("service:lamp", "blink", 3, timestamp_ns=said_ns)
        lamp.commands.offer(EventForm().encode(message))
        told = lamp.work()
        assert lamp.blinks == ([3] if is_carried_out else [])
        assert ("blink" in {event.key for event in told}) is is_carried_out
        counts = lamp.agent.counters.snapshot()
        assert counts.get("commands refused (stale)", 0) == (0 if is_carried_out else 1)


def test_what_is_no_event_is_passed_over_or_counted(lamp):
    lamp.commands.offer(encode(announce(stream_id=10_000)))
    data = EventForm().encode(event_message("service:lamp", "on", value=True))
    for broken in (data[:30], data[:-1], data + b"x"):
        lamp.commands.offer(broken)
    assert lamp.work() == []
    assert lamp.agent.counters.snapshot()["commands refused (malformed)"] == 3
    assert lamp.tell("on", value=True)


def test_refusals_are_all_counted_and_some_are_told(lamp):
    told = [event for _ in range(100) for event in lamp.tell("nothing")]
    assert {event.key for event in told} == {REFUSED}
    assert 1 <= len(told) <= 32
    assert lamp.agent.counters.snapshot()["commands refused (unknown_key)"] == 100
    lamp.clock.advance(s=1)
    lamp.work()
    assert lamp.tell("nothing")


@pytest.mark.req("SVC-4-4")
def test_late_comers_hear_what_it_is_within_a_period(lamp):
    lamp.tell("on", value=True)
    assert lamp.work() == []
    lamp.clock.advance(s=1)
    info, state = lamp.work()
    assert (info.key, state.key, state.value) == (INFO, "on", True)
    said = msgspec.json.decode(info.value, type=ServiceInfo)
    assert [each.key for each in (*said.properties, *said.commands)] == ["on", "blink"]
    assert {info.tag, state.tag} == {"service:lamp"}


def test_what_changes_by_itself_is_told_at_once(lamp):
    lamp.agent.desk.set("on", value=True)
    lamp.agent.desk.post("burnt", "out", correlation_id=5)
    posted, change = lamp.work()
    assert (posted.key, posted.value, posted.correlation_id) == ("burnt", "out", 5)
    assert (change.key, change.value) == ("on", True)


def test_it_says_goodbye(bus, lamp):
    heard = bus.client().add_subscription(*STATUS)
    lamp.agent.desk.post("burnt", "out")
    lamp.invoker.close()
    assert [EventForm().decode(data).key for data in heard.receive()] == ["burnt", ENDED]


def test_an_echo_waits_for_who_is_slow(bus, lamp):
    bus.hold_back(*STATUS)
    assert lamp.tell("on", value=True) == []
    bus.hold_back(*STATUS, on=False)
    assert [event.key for event in lamp.work()] == ["on"]


def test_one_stream_for_commands_and_status_is_refused(bus):
    with pytest.raises(ConfigError, match="each echo would be a command again"):
        Lamp(bus, **{"streams.service_status_stream_id": 1400})


def test_a_local_name_is_local():
    assert is_local("aeron:udp?endpoint=localhost:20300")
    assert not is_local("aeron:udp?endpoint=localhost.example.org:20300")


class TestClient:
    """Who commands."""

    @pytest.fixture
    def client(self, bus, lamp):
        config = load_config(environ={}, search=False)
        client = EventClient(bus.client(), config, wait=lambda _s: lamp.invoker.invoke())
        yield client
        client.close()

    def test_it_gets_the_echo(self, client, lamp):
        assert client.send("lamp", "on", value=True).value is True
        assert client.send("service:lamp", "blink", 4, correlation_id=77).correlation_id == 77
        assert (lamp.agent.desk["on"], lamp.blinks) == (True, [4])

    def test_a_refusal_says_why(self, client):
        with pytest.raises(CommandRefusedError, match="'yes' is not true or false"):
            client.send("lamp", "on", "yes")

    def test_who_hears_only_some_can_not_command_others(self, bus):
        config = load_config(environ={}, search=False)
        with (
            EventClient(bus.client(), config, tags="stove") as client,
            pytest.raises(ValueError, match="service:lamp would not be heard"),
        ):
            client.send("lamp", "on", value=True)

    def test_nobody_is_said(self, client):
        with pytest.raises(NoServiceError, match="no echo of on within"):
            client.send("stove", "on", value=True, timeout_s=0.05)

    @pytest.mark.parametrize(("service", "key"), [("a b", "on"), ("lamp", "o n")])
    def test_names_that_can_not_be_are_said(self, client, service, key):
        with pytest.raises(ValueError, match=r"is no key|names no service"):
            client.send(service, key)

    def test_services_that_lie_about_themselves_are_left_out(self, bus, client, lamp):
        liar = bus.client().add_publication(*STATUS)
        form = EventForm()
        for value in ("{", '{"tag":"service:lamp"}', '{"tag":"service:x","host":"h","pid":1}', 5, None):
            liar.offer(form.encode(event_message("service:liar", INFO, value)))
        lamp.clock.advance(s=1)
        found = client.services(timeout_s=0.05)
        assert [(known.info.tag, known.values) for known in found] == [("service:lamp", {"on": False})]


@pytest.mark.parametrize(
    ("rule", "tag", "source", "allowed"),
    [
        (None, "service:a", "aeron:ipc", True),
        (None, "service:a", "127.0.0.1:40123", True),
        (None, "service:a", "[::1]:40123", True),
        (None, "service:a", "10.7.0.2:40123", False),
        (None, "service:a", "unknown", False),
        (CommandRule(("10.7.0.0/24",)), "service:a", "10.7.0.2:1", True),
        (CommandRule(("10.7.0.0/24",)), "service:a", "10.7.1.2:1", False),
        (CommandRule(("10.7.0.0/24",)), "service:a", "aeron:ipc", False),
        (CommandRule(("ipc",), ("a", "b:*")), "service:b:2", "aeron:ipc", True),
        (CommandRule(("ipc",), ("a", "b:*")), "service:b", "aeron:ipc", False),
    ],
)
def test_who_may_command(monkeypatch, rule, *, tag, source, allowed):
    monkeypatch.undo()
    assert Commanders([rule] if rule else []).allow(tag, source) is allowed


@pytest.mark.parametrize("source", ["10.7.0.0/33", "lab-3", "", "10.7.0.1/24"])
def test_sources_that_can_not_be_are_said(source):
    with pytest.raises(ConfigError, match="is no source of commands"):
        CommandRule((source,))


def test_ears_for_other_hosts_need_a_rule(bus):
    link = {
        "role": "serve",
        "channel": "aeron:udp?endpoint=10.7.0.2:20300",
        "status_channel": "aeron:udp?endpoint=10.7.0.1:20301",
    }
    with pytest.raises(ConfigError, match="nobody beyond this host may command"):
        Lamp(bus, **{"control.links": [link]})
    Lamp(bus, **{"control.links": [link], "control.access": [{"sources": ["10.7.0.1"]}]})

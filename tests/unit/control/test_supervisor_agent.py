"""The supervisor over streams in memory: what it hears, what it sends, what it counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervised import SECOND, STREAM, announce, hello, report, setting
from tensor_pool import _native
from tensor_pool.control.supervisor.agent import SupervisorAgent
from tensor_pool.control.supervisor.liveness import read_activity
from tensor_pool.runtime import AgentInvoker, FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire import Message, decode, encode
from tensor_pool.wire.messages import ConsumerConfig, Mode, QosProducer

CONTROL, ANNOUNCE, QOS = 1000, 1001, 1200


class Watched:
    """A supervisor that a test drives."""

    def __init__(self, **keys: object) -> None:
        self.bus = MemoryBus()
        self.clock = FakeClock()
        self.agent = SupervisorAgent(self.bus.client(), setting(**keys), clock=self.clock)
        self.invoker = AgentInvoker(self.agent).start()
        self.told = self.bus.client().add_subscription("aeron:ipc", CONTROL)
        self._lines = {
            stream_id: self.bus.client().add_publication("aeron:ipc", stream_id)
            for stream_id in (CONTROL, ANNOUNCE, QOS)
        }

    def say(self, stream_id: int, *messages: Message | bytes) -> list[ConsumerConfig]:
        """What consumers are told after these messages."""
        for message in messages:
            self._lines[stream_id].offer(message if isinstance(message, bytes) else encode(message))
        self.invoker.invoke()
        heard = (decode(data) for data in self.told.receive())
        return [message for message in heard if isinstance(message, ConsumerConfig)]

    @property
    def counts(self) -> dict[str, int]:
        """What it counted."""
        return self.agent.counters.snapshot()


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.invoker.close()


def test_a_hello_is_answered(watched: Watched) -> None:
    watched.say(ANNOUNCE, announce())
    (config,) = watched.say(CONTROL, hello())
    assert (config.stream_id, config.consumer_id, config.mode) == (STREAM, 7, Mode.STREAM)
    watched.invoker.invoke()  # hears itself, and takes no notice
    assert watched.counts["consumers told"] == 1
    assert not any("refused" in name for name in watched.counts)


def test_a_slow_consumer_is_told(watched: Watched) -> None:
    told = []
    for second in range(12):
        watched.clock.advance(s=1)
        told += watched.say(ANNOUNCE, announce())
        told += watched.say(QOS, QosProducer(STREAM, 3, 5, 100 * second))
        told += watched.say(QOS, report(last_seq_seen=100 * second, drops_late=50 * second))
    (config,) = told
    assert config.mode is Mode.RATE_LIMITED
    (consumer,) = watched.agent.view().consumers
    assert (consumer.condition, consumer.remedy) == ("slow", "rate_limited")
    assert (watched.counts["decisions"], watched.counts["consumers told"]) == (1, 1)
    assert [entry.kind for entry in watched.agent.journal.entries()] == ["moved"]


def test_a_dry_run_may_begin_while_it_runs(watched: Watched) -> None:
    watched.agent.dry_run = True
    watched.invoker.invoke()
    watched.clock.advance(s=1)
    watched.invoker.invoke()
    assert watched.agent.view().dry_run
    (entry,) = watched.agent.journal.entries()
    assert (entry.kind, entry.seen) == ("dry_run", "on")
    assert abs(entry.at_ns - watched.clock.realtime_ns()) <= SECOND, "the time of day"


def test_garbage_is_counted(watched: Watched) -> None:
    data = encode(report())
    watched.say(QOS, data[:12], b"", b"\xff" * 64, report())
    refused = {name: count for name, count in watched.counts.items() if name.startswith("messages refused")}
    assert refused["messages refused (malformed)"] >= 1
    assert refused["messages refused (unknown_stream)"] == 1


def test_who_is_no_authority_publishes_nothing() -> None:
    watched = Watched(is_authority=False)
    watched.say(ANNOUNCE, announce())
    assert watched.say(CONTROL, hello()) == []
    assert not watched.agent.view().is_authority
    watched.invoker.close()


class TestActivity:
    @pytest.fixture
    def ring(self, tmp_path: Path) -> _native.RingAddress:
        (tmp_path / "ring").mkdir()
        return _native.create_ring(tmp_path / "ring", stream_id=1, epoch=5, nslots=8, pools=[(1, 4096)])

    def test_is_read_from_the_file(self, ring: _native.RingAddress, tmp_path: Path) -> None:
        activity_ns = read_activity(ring.header_uri, 5, [str(tmp_path)])
        assert activity_ns is not None
        assert activity_ns > 0

    def test_of_another_epoch_does_not_count(self, ring: _native.RingAddress, tmp_path: Path) -> None:
        assert read_activity(ring.header_uri, 6, [str(tmp_path)]) is None

    def test_outside_of_the_base_directories_is_not_looked_at(
        self, ring: _native.RingAddress, tmp_path: Path
    ) -> None:
        (tmp_path / "base").mkdir()
        (tmp_path / "base" / "link").symlink_to(tmp_path / "ring")
        through_link = _native.format_region_uri(f"{tmp_path}/base/link/header.ring")
        for uri in (ring.header_uri, through_link):
            assert read_activity(uri, 5, [f"{tmp_path}/base"]) is None

    @pytest.mark.parametrize("content", [None, b"", b"\0" * 64, b"\xff" * 200])
    def test_what_is_no_region_tells_nothing(self, tmp_path: Path, content: bytes | None) -> None:
        if content is not None:
            (tmp_path / "header.ring").write_bytes(content)
        uri = _native.format_region_uri(f"{tmp_path}/header.ring")
        assert read_activity(uri, 5, [str(tmp_path)]) is None
        assert read_activity("nonsense", 5, [str(tmp_path)]) is None

"""What tests of the supervisor share: streams, consumers, reports, and a supervisor that a test drives."""

from __future__ import annotations

from typing import Any

import msgspec

from discoveries import SECOND, announce
from tensor_pool.control.supervisor.config import Setting, SupervisorSection
from tensor_pool.control.supervisor.overseer import Overseer
from tensor_pool.control.supervisor.view import ConsumerHealth, StreamHealth
from tensor_pool.wire import Message
from tensor_pool.wire.messages import ConsumerConfig, ConsumerHello, Mode, QosConsumer, QosProducer

__all__ = ["FALLBACK", "SECOND", "STREAM", "Scene", "announce", "hello", "report", "setting"]

STREAM = 10_000
SLOTS = 1_000
FALLBACK = "aeron:udp?endpoint=127.0.0.1:20121|stream-id=3000"
_HELLO = ConsumerHello(
    stream_id=STREAM, consumer_id=7, supports_shm=True, supports_progress=False, mode=Mode.STREAM
)


def setting(*, is_authority: bool = True, fallback_uri: str = FALLBACK, **keys: Any) -> Setting:
    """A host with one authority: the supervisor."""
    return Setting(
        section=SupervisorSection(**{"slow_for_ms": 5_000, "window_ms": 3_000, **keys}),
        is_authority=is_authority,
        descriptor_stream_ids=range(31_000, 32_000),
        control_stream_ids=range(32_000, 33_000),
        fallback_uri=fallback_uri,
    )


def hello(**changes: Any) -> ConsumerHello:
    """Consumer 7 says that it reads everything."""
    return msgspec.structs.replace(_HELLO, **changes)


def report(**changes: Any) -> QosConsumer:
    """Consumer 7 says how it is doing."""
    return msgspec.structs.replace(QosConsumer(STREAM, 7, 5, 0, 0, 0, Mode.STREAM), **changes)


class Scene:
    """A stream of 100 frames a second, and what a supervisor makes of it second by second.

    Args:
        using: What is configured.
        slots: How many slots its ring has.
    """

    def __init__(self, using: Setting | None = None, *, slots: int = SLOTS) -> None:
        self._slots = slots
        self.overseer = Overseer(setting() if using is None else using)
        self.now_ns = SECOND
        self.sent: list[ConsumerConfig] = []
        self.seq = 1_000
        self.drops = 0
        self.gaps = 0

    def say(self, *messages: Message, session_id: int = 1) -> list[ConsumerConfig]:
        """What is sent for these messages."""
        sent = [
            config
            for message in messages
            for config in self.overseer.on_message(message, session_id=session_id, now_ns=self.now_ns)
        ]
        self.sent += sent
        return sent

    def look(self) -> list[ConsumerConfig]:
        """What is sent after a look at everybody."""
        sent = self.overseer.look(self.now_ns, realtime_ns=self.now_ns)
        self.sent += sent
        return sent

    def second(
        self, *, lag: int = 0, drops: int = 0, gaps: int = 0, consumers: bool = True, **changes: Any
    ) -> None:
        """A second passes: everybody says how it is doing, and the supervisor looks.

        Args:
            lag: Frames that the consumer is behind.
            drops: Frames that it was too late for.
            gaps: Numbers that it never found.
            consumers: Whether it says anything.
            changes: What its report says otherwise.
        """
        self.now_ns += SECOND
        self.seq += 100
        self.drops += drops
        self.gaps += gaps
        self.say(announce(header_nslots=self._slots, payload_pools=()))
        self.say(QosProducer(STREAM, 3, 5, self.seq), session_id=2)
        if consumers:
            lost = {"drops_late": self.drops, "drops_gap": self.gaps}
            said = {"last_seq_seen": self.seq - lag, **lost, **changes}
            self.say(hello(), report(**said))
        self.look()

    def seconds(self, count: int, **of_each: Any) -> None:
        """The same, several times."""
        for _ in range(count):
            self.second(**of_each)

    @property
    def consumer(self) -> ConsumerHealth:
        """Consumer 7 as it is shown."""
        (found,) = [each for each in self.overseer.view(self.now_ns).consumers if each.consumer_id == 7]
        return found

    @property
    def stream(self) -> StreamHealth:
        """The stream as it is shown."""
        (found,) = self.overseer.view(self.now_ns).streams
        return found

    @property
    def moves(self) -> list[tuple[str, str, str]]:
        """What was decided."""
        entries = self.overseer.journal.entries()
        return [(entry.before, entry.after, entry.outcome) for entry in entries if entry.kind == "moved"]

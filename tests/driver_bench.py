"""A driver on a bench: messages in memory, a clock that only the test moves, real files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Self, TypeVar

from tensor_pool.config import ShmSection, StreamsSection
from tensor_pool.driver.agent import DriverAgent
from tensor_pool.driver.config import DriverSection, StaticStream
from tensor_pool.runtime import AgentInvoker, FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire import Message, decode, encode
from tensor_pool.wire.messages import (
    PublishMode,
    ResolveStream,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDetachRequest,
    ShmLeaseKeepalive,
    ShmPoolAnnounce,
    StreamPool,
    StreamResolved,
)

MessageT = TypeVar("MessageT")

SMALL = {"default_nslots": 8, "default_pools": (4096,)}
"""A geometry that takes no time to make."""


class DriverBench:
    """One driver and somebody who talks to it.

    Args:
        base: Where regions go.
        streams: Channels and ids.
        shm: Fields of the section `shm`.
        bus: Another bench's, to stand beside it.
        clock: Another bench's.
        static: Streams that exist from the start.
        section: Fields of the section `driver`.
    """

    def __init__(
        self,
        base: Path,
        *,
        streams: StreamsSection | None = None,
        shm: dict[str, Any] | None = None,
        bus: MemoryBus | None = None,
        clock: FakeClock | None = None,
        static: tuple[StaticStream, ...] = (),
        **section: Any,
    ) -> None:
        self.bus = MemoryBus() if bus is None else bus
        self.clock = FakeClock() if clock is None else clock
        self.streams = StreamsSection() if streams is None else streams
        self.section = DriverSection(**(SMALL | section), streams=static)
        self.base = base
        client = self.bus.client()
        self.control = client.add_publication(self.streams.control_channel, self.streams.control_stream_id)
        self.qos = client.add_publication(self.streams.qos_channel, self.streams.qos_stream_id)
        control = (self.streams.control_channel, self.streams.control_stream_id)
        announce = (self.streams.announce_channel, self.streams.announce_stream_id)
        self._ears = [client.add_subscription(*where) for where in dict.fromkeys([control, announce])]
        self.agent = DriverAgent(
            self.bus.client(),
            self.section,
            self.streams,
            ShmSection(shm_base_dir=str(base), **(shm or {})),
            clock=self.clock,
            on_request=self._count_request,
        )
        self.requests = 0
        self.invoker = AgentInvoker(self.agent)
        self._correlation_ids = itertools.count(1)

    def _count_request(self) -> None:
        self.requests += 1

    def __enter__(self) -> Self:
        self.invoker.start()
        return self

    def __exit__(self, *_args: object) -> None:
        self.invoker.close()

    # --- talking ---

    def say(self, *messages: Message | bytes) -> list[Message]:
        """Sends messages, lets the driver work, and returns what it said but for what we said."""
        sent = [message if isinstance(message, bytes) else encode(message) for message in messages]
        for data in sent:
            assert self.control.offer(data)
        return self.work(but=sent)

    def work(self, cycles: int = 1, *, but: list[bytes] | None = None) -> list[Message]:
        """Lets the driver work and returns what it said."""
        for _ in range(cycles):
            self.invoker.invoke()
        return self.heard(but=but)

    def heard(self, *, but: list[bytes] | None = None) -> list[Message]:
        """What was said since the last time."""
        left = list(but or ())
        heard = []
        for ear in self._ears:
            while taken := ear.receive(1_000):
                for data in taken:
                    if data in left:
                        left.remove(data)
                    else:
                        heard.append(decode(data))
        return heard

    def pass_time(self, *, ms: int, step_ms: int = 100) -> list[Message]:
        """Lets time pass while the driver works; returns what it said."""
        said: list[Message] = []
        for _ in range(0, ms, step_ms):
            self.clock.advance(ms=step_ms)
            said += self.work()
        return said

    # --- requests ---

    def attach(
        self,
        stream_id: int = 10_000,
        client_id: int = 7,
        role: Role = Role.PRODUCER,
        *,
        mode: PublishMode | None = PublishMode.EXISTING_OR_CREATE,
        correlation_id: int | None = None,
        **fields: Any,
    ) -> ShmAttachResponse:
        """Attaches and returns the answer; `said` has everything that the driver said."""
        request = ShmAttachRequest(
            correlation_id=next(self._correlation_ids) if correlation_id is None else correlation_id,
            stream_id=stream_id,
            client_id=client_id,
            role=role,
            publish_mode=mode,
            **fields,
        )
        self.said = self.say(request)
        return only(ShmAttachResponse, self.said)

    def keep_alive(self, lease: ShmAttachResponse, client_id: int, role: Role) -> list[Message]:
        assert lease.lease_id is not None
        assert lease.stream_id is not None
        return self.say(
            ShmLeaseKeepalive(lease.lease_id, lease.stream_id, client_id, role, self.clock.monotonic_ns())
        )

    def detach(
        self, lease: ShmAttachResponse, client_id: int, role: Role, /, **changes: Any
    ) -> list[Message]:
        fields: dict[str, Any] = {
            "correlation_id": next(self._correlation_ids),
            "lease_id": lease.lease_id,
            "stream_id": lease.stream_id,
            "client_id": client_id,
            "role": role,
        }
        return self.say(ShmDetachRequest(**(fields | changes)))

    def resolve(
        self, name: str = "", client_id: int = 7, role: Role = Role.PRODUCER, **fields: Any
    ) -> StreamResolved:
        request = ResolveStream(
            correlation_id=next(self._correlation_ids), client_id=client_id, role=role, name=name, **fields
        )
        return only(StreamResolved, self.say(request))

    def describe(
        self, stream_id: int, client_id: int = 7, *, nslots: int = 8, strides: tuple[int, ...]
    ) -> None:
        """Says what a producer's stream should look like."""
        pools = tuple(StreamPool(stride) for stride in strides)
        self.resolve(client_id=client_id, stream_id=stream_id, nslots=nslots, pools=pools)

    @property
    def epochs(self) -> dict[int, list[int]]:
        """The epochs that have a directory, by stream."""
        found: dict[int, list[int]] = {}
        for path in Path(self.agent.directory).glob("[0-9]*/[0-9]*"):
            found.setdefault(int(path.parent.name), []).append(int(path.name))
        return {stream: sorted(epochs) for stream, epochs in sorted(found.items())}


def only(kind: type[MessageT], messages: list[Message]) -> MessageT:
    """The one message of a kind."""
    found = all_of(kind, messages)
    assert len(found) == 1, messages
    return found[0]


def all_of(kind: type[MessageT], messages: list[Message]) -> list[MessageT]:
    return [message for message in messages if isinstance(message, kind)]


def announces(messages: list[Message], stream_id: int = 10_000) -> list[ShmPoolAnnounce]:
    return [message for message in all_of(ShmPoolAnnounce, messages) if message.stream_id == stream_id]


__all__ = ["DriverBench", "all_of", "announces", "only"]

"""The same transport in memory, for tests of logic: no process, no shared memory, no waiting.

A `MemoryBus` stands for the media driver, and its clients behave like `AeronClient`'s: the same results,
errors and limits, checked by one suite that runs against both. What a test can't easily provoke with the real
one, it switches on here: back-pressure, streams that lose their other end, the death of the media driver.

Example:
    >>> bus = MemoryBus()
    >>> subscription = bus.client().add_subscription("aeron:ipc", 1100)
    >>> publication = bus.client().add_publication("aeron:ipc", 1100)
    >>> publication.offer(b"hello"), subscription.receive()
    (<OfferResult.SENT: 'sent'>, [b'hello'])
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Final

from tensor_pool.channels import Channel, check_stream_id, for_publication, for_subscription
from tensor_pool.errors import NoMediaDriverError, TransportError
from tensor_pool.transport.backpressure import DROP, BackPressurePolicy
from tensor_pool.transport.memory_endpoints import (
    MAX_KEY_BYTES,
    MAX_LABEL_BYTES,
    MemoryCounter,
    MemoryHandle,
    MemoryPublication,
    MemorySubscription,
    StreamKey,
    stream_key,
)

if TYPE_CHECKING:
    from tensor_pool.transport.counters import CounterReading

__all__ = ["MemoryBus", "MemoryClient", "MemoryCounter", "MemoryPublication", "MemorySubscription"]


class MemoryBus:
    """Streams in memory, in the place of a media driver.

    Args:
        window_bytes: A publication is back-pressured once a subscription has this much unread; half a term
            when not given, as with Aeron.

    Example:
        >>> bus = MemoryBus()
        >>> client = bus.client()
        >>> _ = client.add_subscription("aeron:ipc", 1)
        >>> publication = client.add_publication("aeron:ipc", 1)
        >>> bus.hold_back("aeron:ipc", 1)
        >>> publication.offer(b"x")
        <OfferResult.BACK_PRESSURED: 'back_pressured'>
    """

    def __init__(self, *, window_bytes: int | None = None) -> None:
        self.lock: Final = threading.RLock()
        self.window_bytes: Final = window_bytes
        self.dead = False
        self._ids = itertools.count(1)
        self._publications: dict[StreamKey, list[MemoryPublication]] = {}
        self._subscriptions: dict[StreamKey, list[MemorySubscription]] = {}
        self._held_back: set[StreamKey] = set()
        self._disconnected: set[StreamKey] = set()
        self._counters: dict[int, MemoryCounter] = {}

    def client(self) -> MemoryClient:
        """A new client.

        Raises:
            NoMediaDriverError: The bus was killed.
        """
        with self.lock:
            self.check()
            return MemoryClient(self, self.next_id())

    def hold_back(self, channel: str | Channel, stream_id: int, *, on: bool = True) -> None:
        """Lets every offer on a stream meet back-pressure, or ends that."""
        with self.lock:
            _switch(self._held_back, stream_key(channel, stream_id), on)

    def disconnect(self, channel: str | Channel, stream_id: int, *, on: bool = True) -> None:
        """Lets both ends of a stream lose each other, or find each other again."""
        key = stream_key(channel, stream_id)
        with self.lock:
            if on == (key in self._disconnected):
                return
            _switch(self._disconnected, key, on)
            for subscription in self._subscriptions.get(key, []):
                for publication in self._publications.get(key, []):
                    subscription.on_image(publication, available=not on)

    def kill(self) -> None:
        """Dies like a media driver: from now on every call of every client raises `NoMediaDriverError`."""
        with self.lock:
            self.dead = True

    def counters(self) -> list[CounterReading]:
        """What `read_counters` reads of a media driver."""
        with self.lock:
            return [counter.reading() for counter in self._counters.values()]

    # --- for the classes below, which hold the lock ---

    def check(self) -> None:
        """Raises when the bus was killed."""
        if self.dead:
            raise NoMediaDriverError("no media driver serves the memory bus: it was killed")

    def next_id(self) -> int:
        """A number that was not used yet."""
        return next(self._ids)

    def join(self, end: MemoryPublication | MemorySubscription) -> None:
        """Adds an end to its stream."""
        if isinstance(end, MemoryPublication):
            self._publications.setdefault(end.key, []).append(end)
            for subscription in self.listeners(end.key):
                subscription.on_image(end, available=True)
        else:
            self._subscriptions.setdefault(end.key, []).append(end)
            for publication in self.talkers(end.key):
                end.on_image(publication, available=True)

    def leave(self, end: MemoryPublication | MemorySubscription) -> None:
        """Removes an end from its stream."""
        if isinstance(end, MemorySubscription):
            self._subscriptions[end.key].remove(end)
            return
        self._publications[end.key].remove(end)
        for subscription in self._subscriptions.get(end.key, []):
            subscription.on_image(end, available=False)

    def add_counter(self, counter: MemoryCounter) -> None:
        """Makes a counter readable."""
        self._counters[counter.counter_id] = counter

    def remove_counter(self, counter: MemoryCounter) -> None:
        """Forgets a counter."""
        self._counters.pop(counter.counter_id, None)

    def listeners(self, key: StreamKey) -> list[MemorySubscription]:
        """The subscriptions that hear a stream."""
        return [] if key in self._disconnected else self._subscriptions.get(key, [])

    def talkers(self, key: StreamKey) -> list[MemoryPublication]:
        """The publications that are heard on a stream."""
        return [] if key in self._disconnected else self._publications.get(key, [])

    def is_held_back(self, key: StreamKey) -> bool:
        """Whether offers are to meet back-pressure."""
        return key in self._held_back


def _switch(keys: set[StreamKey], key: StreamKey, on: bool) -> None:
    if on:
        keys.add(key)
    else:
        keys.discard(key)


class MemoryClient(MemoryHandle):
    """A client of a `MemoryBus`; see `tensor_pool.transport.protocol.Client`.

    Example:
        >>> with MemoryBus().client() as client:
        ...     client.add_publication("aeron:ipc", 1).offer(b"nobody listens")
        <OfferResult.NOT_CONNECTED: 'not_connected'>
    """

    _what = "Aeron client"

    def __init__(self, bus: MemoryBus, client_id: int) -> None:
        super().__init__(bus)
        self.client_id: Final = client_id
        self._children: list[MemoryHandle] = []

    @property
    def closed(self) -> bool:
        """Whether it was closed, or lost its bus."""
        return self._closed or self._bus.dead

    def add_publication(
        self, channel: str | Channel, stream_id: int, *, policy: BackPressurePolicy = DROP
    ) -> MemoryPublication:
        """A publication that nobody else writes to."""
        with self._bus.lock:
            self._check()
            publication = MemoryPublication(
                self._bus, for_publication(channel), check_stream_id(stream_id), policy
            )
            self._bus.join(publication)
            self._children.append(publication)
            return publication

    def add_subscription(self, channel: str | Channel, stream_id: int) -> MemorySubscription:
        """A subscription to everything that is published there."""
        with self._bus.lock:
            self._check()
            subscription = MemorySubscription(
                self._bus, for_subscription(channel), check_stream_id(stream_id)
            )
            self._bus.join(subscription)
            self._children.append(subscription)
            return subscription

    def add_counter(self, type_id: int, label: str, key: bytes = b"") -> MemoryCounter:
        """A counter that `MemoryBus.counters` shows."""
        if len(key) > MAX_KEY_BYTES or len(label.encode()) > MAX_LABEL_BYTES:
            raise TransportError(
                f"a counter's key has at most {MAX_KEY_BYTES} bytes, its label {MAX_LABEL_BYTES}"
            )
        with self._bus.lock:
            self._check()
            counter = MemoryCounter(self._bus, self.client_id, type_id, label, key)
            self._bus.add_counter(counter)
            self._children.append(counter)
            return counter

    def check(self) -> None:
        """Raises why the client can't be used any more, if so."""
        with self._bus.lock:
            self._check()

    def _on_close(self) -> None:
        for child in self._children:
            child.close()

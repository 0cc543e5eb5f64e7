"""The ends of streams in memory, and counters; made by `tensor_pool.transport.memory.MemoryClient`."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from tensor_pool.channels import Channel, check_stream_id, parse_size
from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError, TransportError
from tensor_pool.transport.backpressure import BackPressurePolicy, OfferCounts, OfferResult, Refusals
from tensor_pool.transport.counters import CounterReading
from tensor_pool.transport.endpoints import DEFAULT_FRAGMENT_LIMIT, wait_until
from tensor_pool.transport.protocol import Header, Image, ImageEvent, Message, MessageHandler

if TYPE_CHECKING:
    from tensor_pool.ids import AeronStreamId
    from tensor_pool.transport.memory import MemoryBus

__all__ = [
    "MemoryCounter",
    "MemoryHandle",
    "MemoryPublication",
    "MemorySubscription",
    "StreamKey",
    "stream_key",
]

MAX_KEY_BYTES: Final = 112
MAX_LABEL_BYTES: Final = 380
_HEADER_BYTES: Final = 32
_DEFAULT_MTU: Final = "1408"
_MAX_MESSAGE_BYTES: Final = 16 << 20
_NOT_CONNECTED: Final = -1
_BACK_PRESSURED: Final = -2

StreamKey: TypeAlias = tuple[str, int]


def stream_key(channel: str | Channel, stream_id: int) -> StreamKey:
    """Who meets: the medium and the address count, the other parameters do not."""
    parsed = Channel.parse(channel) if isinstance(channel, str) else channel
    address = parsed.params.get("endpoint") or parsed.params.get("control", "")
    return f"{parsed.media}:{address}", check_stream_id(stream_id)


class MemoryHandle(Closing):
    """What can be closed, alone or by its client."""

    _what: str

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"the {self._what} is closed")
        self._bus.check()

    def _on_close(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Closes it; may be called again."""
        with self._bus.lock:
            if not self._closed:
                self._closed = True
                self._on_close()


class MemoryCounter(MemoryHandle):
    """A counter of a `MemoryBus`."""

    _what = "counter"

    def __init__(self, bus: MemoryBus, owner_id: int, type_id: int, label: str, key: bytes) -> None:
        super().__init__(bus)
        self.counter_id: Final = bus.next_id()
        self._value = 0
        self._constants = (owner_id, key.ljust(MAX_KEY_BYTES, b"\0"), label)
        self._type_id = type_id

    def add(self, amount: int) -> int:
        """Adds to the value and gives the new one."""
        with self._bus.lock:
            self._check_open()
            self._value += amount
            return self._value

    def set(self, value: int) -> None:
        """Sets the value."""
        with self._bus.lock:
            self._check_open()
            self._value = value

    def get(self) -> int:
        """The value."""
        with self._bus.lock:
            self._check_open()
            return self._value

    def reading(self) -> CounterReading:
        """As others see it."""
        return CounterReading(self.counter_id, self._type_id, self._value, self.counter_id, *self._constants)

    def _check_open(self) -> None:
        # Like Aeron's, a counter outlives the media driver: only nobody else sees it then.
        if self._closed:
            raise ClosedError("the counter is closed")

    def _on_close(self) -> None:
        self._bus.remove_counter(self)


class MemoryPublication(MemoryHandle):
    """A publication of a `MemoryBus`; see `tensor_pool.transport.protocol.Publication`."""

    _what = "publication"

    def __init__(
        self, bus: MemoryBus, channel: str, stream_id: AeronStreamId, policy: BackPressurePolicy
    ) -> None:
        super().__init__(bus)
        parsed = Channel.parse(channel)
        self.channel: Final = channel
        self.stream_id: Final = stream_id
        self.key: Final = stream_key(parsed, stream_id)
        self.session_id: Final = bus.next_id()
        self.max_message_bytes: Final = min(parsed.term_length_bytes // 8, _MAX_MESSAGE_BYTES)
        self.max_payload_bytes: Final = parse_size(parsed.params.get("mtu", _DEFAULT_MTU)) - _HEADER_BYTES
        self._window_bytes = bus.window_bytes or parsed.term_length_bytes // 2
        self._refusals = Refusals(policy)
        self._counts = dict.fromkeys(OfferCounts._fields, 0)
        self.end_position = 0

    @property
    def connected(self) -> bool:
        """Whether anybody subscribes."""
        with self._bus.lock:
            self._check()
            return bool(self._bus.listeners(self.key))

    @property
    def position(self) -> int:
        """The stream's position behind the last message."""
        with self._bus.lock:
            self._check()
            return self.end_position

    @property
    def counts(self) -> OfferCounts:
        """How offers ended so far."""
        counted = self._counts | {"dropped": self._refusals.dropped, "raised": self._refusals.raised}
        return OfferCounts(**counted)

    def offer(self, message: Message) -> OfferResult:
        """Sends a message of any length up to `max_message_bytes`, under the publication's policy."""
        return self._send(message, self.max_message_bytes)

    def try_claim(self, message: Message) -> OfferResult:
        """Like `offer` for short messages that must travel in one piece."""
        return self._send(message, self.max_payload_bytes)

    def _send(self, message: Message, max_bytes: int) -> OfferResult:
        copy = bytes(message)
        code = self._attempt(copy, max_bytes)
        if code >= 0:
            return OfferResult.SENT
        where = f"stream {self.stream_id} of {self.channel}"
        return self._refusals.handle(code, lambda: self._attempt(copy, max_bytes), where)

    def _attempt(self, message: bytes, max_bytes: int) -> int:
        with self._bus.lock:
            self._check()
            if len(message) > max_bytes:
                self._counts["failed"] += 1
                raise TransportError(
                    f"a message of {len(message)} bytes; the publication takes at most {max_bytes}",
                    hint="offer() sends longer messages, in pieces"
                    if max_bytes < self.max_message_bytes
                    else "a longer term-length of the channel allows longer messages, up to 16 MiB",
                )
            listeners = self._bus.listeners(self.key)
            if not listeners:
                self._counts["not_connected"] += 1
                return _NOT_CONNECTED
            held_back = self._bus.is_held_back(self.key)
            if held_back or any(listener.unread_bytes >= self._window_bytes for listener in listeners):
                self._counts["back_pressured"] += 1
                return _BACK_PRESSURED
            self.end_position += (len(message) + 2 * _HEADER_BYTES - 1) // _HEADER_BYTES * _HEADER_BYTES
            self._counts["sent"] += 1
            self._counts["sent_bytes"] += len(message)
            for listener in listeners:
                listener.on_message(message, Header(self.session_id, self.stream_id, self.end_position))
            return self.end_position

    def wait_connected(self, timeout_ms: float) -> bool:
        """Waits until anybody subscribes; tells whether anybody does."""
        return wait_until(lambda: self.connected, timeout_ms)

    def _on_close(self) -> None:
        self._bus.leave(self)


class MemorySubscription(MemoryHandle):
    """A subscription of a `MemoryBus`; see `tensor_pool.transport.protocol.Subscription`."""

    _what = "subscription"
    abandoned_messages: Final = 0

    def __init__(self, bus: MemoryBus, channel: str, stream_id: AeronStreamId) -> None:
        super().__init__(bus)
        self.channel: Final = channel
        self.stream_id: Final = stream_id
        self.key: Final = stream_key(channel, stream_id)
        self.unread_bytes = 0
        self._unread: deque[tuple[bytes, Header]] = deque()
        self._images: dict[int, Image] = {}
        self._events: list[ImageEvent] = []

    @property
    def connected(self) -> bool:
        """Whether any publication is heard."""
        with self._bus.lock:
            self._check()
            return bool(self._images)

    def poll(self, handler: MessageHandler, limit: int = DEFAULT_FRAGMENT_LIMIT) -> int:
        """Hands up to `limit` messages to `handler`; tells how many."""
        delivered = 0
        while delivered < limit and (taken := self._take()) is not None:
            handler(*taken)
            delivered += 1
        return delivered

    def receive(self, limit: int = DEFAULT_FRAGMENT_LIMIT) -> list[bytes]:
        """The next messages, without their headers."""
        messages: list[bytes] = []
        self.poll(lambda message, _header: messages.append(message), limit)
        return messages

    def _take(self) -> tuple[bytes, Header] | None:
        with self._bus.lock:
            self._check()
            if not self._unread:
                return None
            message, header = self._unread.popleft()
            self.unread_bytes -= len(message) + _HEADER_BYTES
            return message, header

    def images(self) -> list[Image]:
        """The publications that are heard."""
        with self._bus.lock:
            self._check()
            return list(self._images.values())

    def join_time_ns(self, session_id: int) -> int | None:
        """When the publication of this session became available; None if it is not heard."""
        with self._bus.lock:
            self._check()
            image = self._images.get(session_id)
            return None if image is None else image.join_time_ns

    def take_image_events(self) -> list[ImageEvent]:
        """Publications that came and went since the last call."""
        with self._bus.lock:
            self._check()
            events, self._events = self._events, []
            return events

    def wait_connected(self, timeout_ms: float) -> bool:
        """Waits until any publication is heard; tells whether one is."""
        return wait_until(lambda: self.connected, timeout_ms)

    def _on_close(self) -> None:
        self._bus.leave(self)

    # --- called by the bus and by publications, which hold the lock ---

    def on_message(self, message: bytes, header: Header) -> None:
        """Takes a message in."""
        self._unread.append((message, header))
        self.unread_bytes += len(message) + _HEADER_BYTES

    def on_image(self, publication: MemoryPublication, *, available: bool) -> None:
        """Notes that a publication came or went."""
        session_id = publication.session_id
        if available:
            joined_ns = time.monotonic_ns()
            image = Image(session_id, joined_ns, publication.end_position, self._bus.next_id(), "memory")
            self._images[session_id] = image
        elif (gone := self._images.pop(session_id, None)) is not None:
            image = gone
        else:
            return
        self._events.append(ImageEvent(available, image))

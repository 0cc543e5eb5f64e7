"""What a transport offers, whichever it is: Aeron between processes, or queues in memory for tests of logic.

Agents take a `Client` and never ask which one it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool import wire
    from tensor_pool.channels import Channel
    from tensor_pool.ids import AeronStreamId
    from tensor_pool.transport.backpressure import BackPressurePolicy, OfferCounts, OfferResult

__all__ = [
    "Client",
    "CounterCell",
    "Header",
    "Image",
    "ImageEvent",
    "Message",
    "MessageHandler",
    "Publication",
    "Subscribe",
    "Subscription",
]

Message: TypeAlias = bytes | bytearray | memoryview
"""What can be offered: anything contiguous with a buffer; these are the types that are always there."""


class Header(NamedTuple):
    """Where a message came from."""

    session_id: int
    """Tells the publication from others of the same stream."""
    stream_id: AeronStreamId
    position: int
    """The stream's position behind the message."""


class Image(NamedTuple):
    """A publication as a subscription sees it."""

    session_id: int
    join_time_ns: int
    """When it became available, on the clock of ``time.monotonic_ns`` [WIRE-10.1.1-11]."""
    join_position: int
    correlation_id: int
    """Identifies the image even when a session id is used again."""
    source_identity: str


class ImageEvent(NamedTuple):
    """A publication that came or went."""

    available: bool
    image: Image


MessageHandler: TypeAlias = Callable[[bytes, Header], object]
"""Called with each message; what it returns does not matter."""


class CounterCell(Protocol):
    """One number that others can watch."""

    def add(self, amount: int) -> int:
        """Adds to the value and gives the new one."""
        ...

    def set(self, value: int) -> None:
        """Sets the value."""
        ...

    def get(self) -> int:
        """The value."""
        ...

    def close(self) -> None:
        """Frees the counter; may be called again."""
        ...


class Publication(Closing, Protocol):
    """One end of a stream, to send on."""

    @property
    def channel(self) -> str:
        """The channel, with everything that was added to it."""
        ...

    @property
    def stream_id(self) -> AeronStreamId:
        """The Aeron stream."""
        ...

    @property
    def session_id(self) -> int:
        """The session id in the headers of its messages."""
        ...

    @property
    def max_message_bytes(self) -> int:
        """The longest message that `offer` takes."""
        ...

    @property
    def max_payload_bytes(self) -> int:
        """The longest message that `try_claim` takes: what travels in one piece."""
        ...

    @property
    def connected(self) -> bool:
        """Whether anybody subscribes."""
        ...

    @property
    def position(self) -> int:
        """The stream's position behind the last message."""
        ...

    @property
    def counts(self) -> OfferCounts:
        """How offers ended so far."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        ...

    def offer(self, message: Message) -> OfferResult:
        """Sends a message of any length up to `max_message_bytes`, under the publication's policy.

        Raises:
            BackPressureError: The policy says so.
            ClosedError: It was closed.
            NoMediaDriverError: The media driver died.
            TransportError: The message is too long.
        """
        ...

    def try_claim(self, message: Message) -> OfferResult:
        """Like `offer` for short messages that must travel in one piece (`max_payload_bytes`)."""
        ...

    def wait_connected(self, timeout_ms: float) -> bool:
        """Waits until anybody subscribes; tells whether anybody does."""
        ...

    def close(self) -> None:
        """Closes it; may be called again."""
        ...


class Subscription(Closing, Protocol):
    """One end of a stream, to receive from."""

    @property
    def channel(self) -> str:
        """The channel, with everything that was added to it."""
        ...

    @property
    def stream_id(self) -> AeronStreamId:
        """The Aeron stream."""
        ...

    @property
    def connected(self) -> bool:
        """Whether any publication is heard."""
        ...

    @property
    def abandoned_messages(self) -> int:
        """Messages in several pieces of which a piece was missing, or that were too long."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        ...

    def poll(self, handler: MessageHandler, limit: int = ...) -> int:
        """Hands messages to `handler`; tells how many. Takes at most `limit` fragments from the stream.

        When the handler raises, the messages behind the one it failed with wait for the next call.
        """
        ...

    def receive(self, limit: int = ...) -> list[bytes]:
        """The next messages, without their headers."""
        ...

    def images(self) -> list[Image]:
        """The publications that are heard."""
        ...

    def join_time_ns(self, session_id: int) -> int | None:
        """When the publication of this session became available; None if it is not heard."""
        ...

    def take_image_events(self) -> list[ImageEvent]:
        """Publications that came and went since the last call."""
        ...

    def wait_connected(self, timeout_ms: float) -> bool:
        """Waits until any publication is heard; tells whether one is."""
        ...

    def close(self) -> None:
        """Closes it; may be called again."""
        ...


Subscribe: TypeAlias = "Callable[[str, int, Iterable[type[wire.Message]]], Subscription]"
"""Opens a subscription of which certain messages are wanted; everything else may be left out of it."""


class Client(Closing, Protocol):
    """Makes the ends of streams, and counters."""

    @property
    def client_id(self) -> int:
        """Unique among the clients of one media driver."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was closed, or lost its media driver."""
        ...

    def add_publication(
        self, channel: str | Channel, stream_id: int, *, policy: BackPressurePolicy = ...
    ) -> Publication:
        """A publication that nobody else writes to."""
        ...

    def add_subscription(self, channel: str | Channel, stream_id: int) -> Subscription:
        """A subscription to everything that is published there."""
        ...

    def add_counter(self, type_id: int, label: str, key: bytes = ...) -> CounterCell:
        """A counter that others can watch."""
        ...

    def check(self) -> None:
        """Raises why the client can't be used any more, if so."""
        ...

    def close(self) -> None:
        """Closes it and everything made through it; may be called again."""
        ...

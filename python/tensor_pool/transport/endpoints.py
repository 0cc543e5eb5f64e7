"""Publications and subscriptions over Aeron.

They are made by `tensor_pool.transport.client.AeronClient` and safe whatever a program does with them: use
after close raises `ClosedError`, close may come twice and from any thread, and a media driver that dies is an
error.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.ids import AeronStreamId
from tensor_pool.transport.backpressure import BackPressurePolicy, OfferCounts, OfferResult, Refusals
from tensor_pool.transport.protocol import Header, Image, ImageEvent, Message, MessageHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool import _native

__all__ = ["AeronPublication", "AeronSubscription"]

DEFAULT_FRAGMENT_LIMIT: Final = 10
"""Fragments that one poll takes at most, unless told otherwise: short turns keep an agent's other duties on
time."""

_CONNECTION_POLL_S: Final = 1e-3


def wait_until(condition: Callable[[], bool], timeout_ms: float) -> bool:
    """Waits for a condition that nobody signals, in short sleeps that let Ctrl-C in."""
    deadline = time.monotonic() + timeout_ms / 1e3
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_CONNECTION_POLL_S)
    return True


class AeronPublication(Closing):
    """An exclusive publication: nobody else writes to it, so that nobody else can block it.

    Example:
        >>> from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
        >>> with EmbeddedMediaDriver.temporary() as driver, AeronClient.connect(driver.aeron_dir) as client:
        ...     publication = client.add_publication("aeron:ipc", 1100)
        ...     publication.offer(b"nobody listens")
        <OfferResult.NOT_CONNECTED: 'not_connected'>
    """

    def __init__(self, native: _native.AeronPublication, policy: BackPressurePolicy) -> None:
        self._native = native
        self._offer = native.offer
        self._refusals = Refusals(policy)

    @property
    def channel(self) -> str:
        """The channel, with everything that was added to it."""
        return self._native.channel

    @property
    def stream_id(self) -> AeronStreamId:
        """The Aeron stream."""
        return AeronStreamId(self._native.stream_id)

    @property
    def session_id(self) -> int:
        """The session id in the headers of its messages."""
        return self._native.session_id

    @property
    def max_message_bytes(self) -> int:
        """The longest message that `offer` takes."""
        return self._native.max_message_bytes

    @property
    def max_payload_bytes(self) -> int:
        """The longest message that `try_claim` takes: what travels in one piece."""
        return self._native.max_payload_bytes

    @property
    def connected(self) -> bool:
        """Whether anybody subscribes."""
        return self._native.connected

    @property
    def position(self) -> int:
        """The stream's position behind the last message."""
        return self._native.position

    @property
    def counts(self) -> OfferCounts:
        """How offers ended so far."""
        return OfferCounts(*self._native.counts, self._refusals.dropped, self._refusals.raised)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    @property
    def native(self) -> _native.AeronPublication:
        """For native code that sends without crossing into Python for each message."""
        return self._native

    def offer(self, message: Message) -> OfferResult:
        """Sends a message, in pieces if it is long; raises what `protocol.Publication.offer` says."""
        code = self._offer(message)
        if code >= 0:
            return OfferResult.SENT
        return self._refusals.handle(code, lambda: self._offer(message), str(self))

    def try_claim(self, message: Message) -> OfferResult:
        """Sends a short message in one piece, through room claimed in the log itself."""
        code = self._native.try_claim(message)
        if code >= 0:
            return OfferResult.SENT
        return self._refusals.handle(code, lambda: self._native.try_claim(message), str(self))

    def wait_connected(self, timeout_ms: float) -> bool:
        """Waits until anybody subscribes; tells whether anybody does."""
        return wait_until(lambda: self.connected, timeout_ms)

    def close(self) -> None:
        """Closes it; may be called again."""
        self._native.close()

    def revoke(self) -> None:
        """Closes it, and has the media driver forget what nobody has received yet; may be called again."""
        self._native.revoke()

    def __str__(self) -> str:
        return f"stream {self.stream_id} of {self.channel}"

    def __repr__(self) -> str:
        return f"<AeronPublication {self}{' closed' if self.closed else ''}>"


class AeronSubscription(Closing):
    """A subscription to everything that is published on one stream of a channel.

    Example:
        >>> from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
        >>> with EmbeddedMediaDriver.temporary() as driver, AeronClient.connect(driver.aeron_dir) as client:
        ...     subscription = client.add_subscription("aeron:ipc", 1100)
        ...     publication = client.add_publication("aeron:ipc", 1100)
        ...     _ = publication.wait_connected(5_000), publication.offer(b"hello")
        ...     subscription.receive()
        [b'hello']
    """

    def __init__(self, native: _native.AeronSubscription, channel: str, stream_id: AeronStreamId) -> None:
        self._native = native
        self._channel = channel
        self._stream_id = stream_id
        # Messages that were taken from the stream when a handler failed, and that the next poll delivers.
        self._left: list[tuple[bytes, int, int]] = []

    @property
    def channel(self) -> str:
        """The channel, with everything that was added to it."""
        return self._channel

    @property
    def stream_id(self) -> AeronStreamId:
        """The Aeron stream."""
        return self._stream_id

    @property
    def connected(self) -> bool:
        """Whether any publication is heard."""
        return self._native.connected

    @property
    def abandoned_messages(self) -> int:
        """Messages in several pieces of which a piece was missing, or that were too long."""
        return self._native.abandoned_messages

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    @property
    def native(self) -> _native.AeronSubscription:
        """For native code that receives without crossing into Python for each message."""
        return self._native

    def poll(self, handler: MessageHandler, limit: int = DEFAULT_FRAGMENT_LIMIT) -> int:
        """Hands messages to `handler`; see `tensor_pool.transport.protocol.Subscription.poll`."""
        messages = self._take_left() or self._fetch(limit)
        delivered = 0
        try:
            for message, session_id, position in messages:
                delivered += 1
                handler(message, Header(session_id, self._stream_id, position))
        finally:
            if delivered < len(messages):
                self._left = messages[delivered:]
        return delivered

    def receive(self, limit: int = DEFAULT_FRAGMENT_LIMIT) -> list[bytes]:
        """The next messages, without their headers."""
        if self._left:
            return [message for message, _, _ in self._take_left()]
        return self._native.receive(limit)

    def _fetch(self, limit: int) -> list[tuple[bytes, int, int]]:
        return self._native.poll(limit)

    def _take_left(self) -> list[tuple[bytes, int, int]]:
        left, self._left = self._left, []
        return left

    def images(self) -> list[Image]:
        """The publications that are heard."""
        return [Image(*image) for image in self._native.images()]

    def join_time_ns(self, session_id: int) -> int | None:
        """When the publication of this session became available; None if it is not heard."""
        return self._native.join_time_ns(session_id)

    def take_image_events(self) -> list[ImageEvent]:
        """Publications that came and went since the last call, the last 1,024 at most."""
        return [ImageEvent(available, Image(*image)) for available, image in self._native.take_image_events()]

    def wait_connected(self, timeout_ms: float) -> bool:
        """Waits until any publication is heard; tells whether one is."""
        return wait_until(lambda: self.connected, timeout_ms)

    def close(self) -> None:
        """Closes it; may be called again."""
        self._native.close()

    def __str__(self) -> str:
        return f"stream {self._stream_id} of {self._channel}"

    def __repr__(self) -> str:
        return f"<AeronSubscription {self}{' closed' if self.closed else ''}>"

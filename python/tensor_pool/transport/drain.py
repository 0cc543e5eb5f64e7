"""Receiving and showing life on a native thread, whatever Python does meanwhile.

Aeron lets the slowest subscriber of a stream hold back its publication. A Python program that computes, waits
in a debugger or collects garbage would so silence all others. A `Drain` takes the messages of all
subscriptions of a process into bounded memory on a thread that never needs the interpreter, and sends the
process's keepalives (decision L9; the first of the layers that keep a stuck process from blinding others).

Agents don't notice: `Drain.client` is a `tensor_pool.transport.protocol.Client` like any other.

Example:
    >>> from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
    >>> with (
    ...     EmbeddedMediaDriver.temporary() as driver,
    ...     AeronClient.connect(driver.aeron_dir) as client,
    ...     Drain(client) as drain,
    ... ):
    ...     subscription = drain.client.add_subscription("aeron:ipc", 1000)
    ...     publication = drain.client.add_publication("aeron:ipc", 1000)
    ...     _ = publication.wait_connected(5_000), publication.offer(b"hello")
    ...     drain.wait(5.0), subscription.receive()
    (True, [b'hello'])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError
from tensor_pool.transport.backpressure import DROP, BackPressurePolicy
from tensor_pool.transport.endpoints import DEFAULT_FRAGMENT_LIMIT, AeronPublication, AeronSubscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensor_pool.channels import Channel
    from tensor_pool.transport.client import AeronClient
    from tensor_pool.wire import Message

__all__ = ["Drain", "DrainedClient", "DrainedSubscription"]

_NS_PER_MS: Final = 1_000_000
_MAX_PAUSE_MS: Final = 1_000
DEFAULT_MAX_MESSAGES: Final = 8_192
DEFAULT_MAX_BYTES: Final = 16 << 20
"""As long as the longest message that Aeron carries."""


class Drain(Closing):
    """A native thread that polls all subscriptions made through its `client`, and sends keepalives.

    It is a `tensor_pool.runtime.Bell`: an agent sleeps in `wait` and is woken by whatever comes in. Closing
    the drain closes neither the client nor anything made through it; but nothing more is received then.

    Args:
        client: The connection to the media driver.
        name: Of the thread; tools show the first 15 bytes.
        shortest_pause_ms: The pause after a turn that brought something; doubles while nothing comes.
        longest_pause_ms: The longest pause, and so the longest time until a message is noticed.

    Raises:
        ConfigError: The pauses make no sense.

    Example:
        >>> from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
        >>> with EmbeddedMediaDriver.temporary() as driver, AeronClient.connect(driver.aeron_dir) as client:
        ...     with Drain(client, longest_pause_ms=5) as drain:
        ...         drain.wake()
        ...         drain.wait(1.0)
        True
    """

    def __init__(
        self,
        client: AeronClient,
        *,
        name: str = "tp-drain",
        shortest_pause_ms: float = 0.1,
        longest_pause_ms: float = 10,
    ) -> None:
        if not 0 < shortest_pause_ms <= longest_pause_ms <= _MAX_PAUSE_MS:
            raise ConfigError(
                f"pauses from {shortest_pause_ms} to {longest_pause_ms} ms",
                hint=f"above 0, the shortest not above the longest, at most {_MAX_PAUSE_MS} ms",
            )
        self._native = _native.AeronDrain(
            name=name,
            shortest_pause_ns=max(1, round(shortest_pause_ms * _NS_PER_MS)),
            longest_pause_ns=max(1, round(longest_pause_ms * _NS_PER_MS)),
        )
        self.client: Final = DrainedClient(client, self._native)

    @property
    def native(self) -> _native.AeronDrain:
        """For native code, and for inboxes of one's own."""
        return self._native

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    def subscribe(
        self,
        channel: str,
        stream_id: int,
        wanted: Iterable[type[Message]],
        *,
        quiet: Iterable[type[Message]] = (),
        texts: Iterable[bytes] | None = None,
    ) -> DrainedSubscription:
        """A subscription to certain messages; all others are dropped before Python sees them.

        Args:
            channel: Where to listen.
            stream_id: The Aeron stream.
            wanted: The messages.
            quiet: Those of them that can wait until somebody looks: they end no `wait`.
            texts: Only those whose first text is one of these.
        """
        return self.client.add_subscription(
            channel,
            stream_id,
            accept=_templates(wanted),
            quiet=_templates(quiet),
            texts=None if texts is None else list(texts),
        )

    def wait(self, timeout_s: float) -> bool:
        """Sleeps until something comes in or `wake` is called; tells whether that happened.

        Messages that nobody takes wake once, those that a poll left behind again. For one thread at a time.

        Raises:
            ClosedError: The drain was closed, perhaps meanwhile.
        """
        return self._native.wait(timeout_s)

    def wake(self) -> None:
        """Ends a `wait`, or the next one."""
        self._native.wake()

    def hurry(self, duration_ms: float) -> None:
        """Polls at the shortest pause for that long: an answer is expected."""
        self._native.hurry(round(duration_ms * _NS_PER_MS))

    def descriptors(self, channel: str | Channel, stream_id: int) -> _native.DescriptorFeed:
        """Receives the frame descriptors of a stream for all consumers of the process, without Python.

        Raises:
            ChannelError: Aeron refuses the channel.
            NoMediaDriverError: The media driver died or does not answer.
            ClosedError: The client or the drain was closed.
        """
        return self.client.add_descriptor_feed(channel, stream_id)

    def pulse(
        self,
        publication: AeronPublication,
        message: bytes,
        *,
        period_ms: float,
        timestamp_offset: int | None = None,
    ) -> _native.Pulse:
        """Sends a message at once and then every `period_ms`, until the pulse is stopped or forgotten.

        Args:
            publication: Where to send it.
            message: What to send.
            period_ms: How often.
            timestamp_offset: Where in the message the time of sending goes (64 bits, monotonic nanoseconds).

        Raises:
            TransportError: The time stamp does not fit into the message, or the message is too long.
            ClosedError: The drain was closed.
        """
        period_ns = round(period_ms * _NS_PER_MS)
        return self._native.pulse(
            publication.native, message, period_ns=period_ns, timestamp_offset=timestamp_offset
        )

    def close(self) -> None:
        """Ends the thread. What was received can still be taken; pulses stop. May be called again."""
        self._native.close()


class DrainedClient(Closing):
    """A client whose subscriptions are polled by a drain; made by `Drain`.

    Publications and counters are those of the client itself, and closing closes that.
    """

    def __init__(self, client: AeronClient, drain: _native.AeronDrain) -> None:
        self._client = client
        self._drain = drain

    @property
    def client_id(self) -> int:
        """Unique among the clients of one media driver."""
        return self._client.client_id

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return self._client.aeron_dir

    @property
    def closed(self) -> bool:
        """Whether it was closed, or lost its media driver."""
        return self._client.closed

    def add_publication(
        self, channel: str | Channel, stream_id: int, *, policy: BackPressurePolicy = DROP
    ) -> AeronPublication:
        """See `tensor_pool.transport.AeronClient.add_publication`."""
        return self._client.add_publication(channel, stream_id, policy=policy)

    def add_subscription(
        self,
        channel: str | Channel,
        stream_id: int,
        *,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        max_bytes: int = DEFAULT_MAX_BYTES,
        accept: Sequence[tuple[int, int]] | None = None,
        quiet: Sequence[tuple[int, int]] = (),
        texts: Sequence[bytes] | None = None,
    ) -> DrainedSubscription:
        """A subscription that the drain polls.

        Args:
            channel: Where to listen.
            stream_id: The Aeron stream.
            max_messages: The most messages that wait to be taken; more are lost and counted.
            max_bytes: The most bytes that wait, all messages together.
            accept: ``(schema id, template id)`` of the messages to keep. Others are counted and dropped
                before Python sees them. None keeps all.
            quiet: Those of `accept` that wake nobody.
            texts: Only those of `accept` whose first text, right behind the block, is one of these.

        Raises:
            ChannelError: Aeron refuses the channel.
            NoMediaDriverError: The media driver died or does not answer.
            ClosedError: The client or the drain was closed.
        """
        subscription = self._client.add_subscription(channel, stream_id)
        try:
            inbox = self._drain.inbox(
                subscription.native,
                max_messages=max_messages,
                max_bytes=max_bytes,
                accept=accept,
                quiet=quiet,
                texts=texts,
            )
        except BaseException:
            subscription.close()
            raise
        return DrainedSubscription(subscription, inbox)

    def add_descriptor_feed(self, channel: str | Channel, stream_id: int) -> _native.DescriptorFeed:
        """See `Drain.descriptors`."""
        subscription = self._client.add_subscription(channel, stream_id)
        try:
            return self._drain.descriptors(subscription.native)
        except BaseException:
            subscription.close()
            raise

    def add_counter(self, type_id: int, label: str, key: bytes = b"") -> _native.AeronCounter:
        """See `tensor_pool.transport.AeronClient.add_counter`."""
        return self._client.add_counter(type_id, label, key)

    def check(self) -> None:
        """Raises why the client can't be used any more, if so."""
        self._client.check()

    def close(self) -> None:
        """Closes the client and everything made through it; may be called again."""
        self._client.close()

    def __repr__(self) -> str:
        return f"<DrainedClient of {self._client!r}>"


class DrainedSubscription(AeronSubscription):
    """A subscription whose messages wait in an inbox; made by `DrainedClient.add_subscription`.

    Polling takes from the inbox, and looks at the stream itself where that holds too little.
    """

    def __init__(self, subscription: AeronSubscription, inbox: _native.Inbox) -> None:
        super().__init__(subscription.native, subscription.channel, subscription.stream_id)
        self._inbox = inbox

    @property
    def waiting(self) -> int:
        """How many messages wait to be taken."""
        return len(self._inbox) + len(self._left)

    @property
    def overflowed(self) -> int:
        """Messages lost because too many waited; the newest are lost."""
        return self._inbox.overflowed

    @property
    def ignored(self) -> int:
        """Messages that were not asked for (`accept`)."""
        return self._inbox.ignored

    def receive(self, limit: int = DEFAULT_FRAGMENT_LIMIT) -> list[bytes]:
        """The next messages, without their headers."""
        return [message for message, _, _ in self._take_left() or self._fetch(limit)]

    def _fetch(self, limit: int) -> list[tuple[bytes, int, int]]:
        return self._inbox.take(limit)

    def close(self) -> None:
        """Closes it; may be called again."""
        self._inbox.close()
        super().close()


def _templates(kinds: Iterable[type[Message]]) -> list[tuple[int, int]]:
    from tensor_pool.wire.framing import templates_of  # noqa: PLC0415 - a media driver needs no schemas

    return sorted({(t.schema_id, t.template_id) for kind in kinds for t in templates_of(kind)})

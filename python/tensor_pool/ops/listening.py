"""Listening to what everybody on a host says once a second, without taking part."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tensor_pool import wire
from tensor_pool.closing import Closing
from tensor_pool.ops.tap import endpoints
from tensor_pool.pool.qos_board import QosBoard
from tensor_pool.runtime import SystemClock
from tensor_pool.wire.messages import QosConsumer, QosProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool.config import StreamsSection
    from tensor_pool.runtime import Clock
    from tensor_pool.transport import Client, Header

__all__ = ["Listener", "qos_listener"]

MessageT = TypeVar("MessageT", bound=wire.Message)

_FRAGMENTS: Final = 100
_PAUSE_S: Final = 0.005
_MOST_REPORTERS: Final = 65_536


class Listener(Closing):
    """Subscriptions to some of the pool's streams, and who wants to hear what.

    Args:
        client: The connection to the media driver; stays open when this is closed.
        streams: Channels and ids.
        sources: What to listen to, such as ``"qos"``; see `tap.SOURCES`.
        clock: What messages are dated with, and how long to listen is measured with.
        pause: Called when nothing came; sleeps for a moment by default.

    Example:
        >>> from tensor_pool.config import StreamsSection
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> bus, heard = MemoryBus(), []
        >>> listener = Listener(bus.client(), StreamsSection(), ["qos"])
        >>> listener.on(QosProducer, lambda report, now_ns: heard.append(report.current_seq))
        >>> publication = bus.client().add_publication("aeron:ipc", 1200)
        >>> _ = publication.offer(wire.encode(QosProducer(1, 7, epoch=5, current_seq=42)))
        >>> listener.listen(1.0, until=lambda: bool(heard)), heard
        (True, [42])
    """

    def __init__(
        self,
        client: Client,
        streams: StreamsSection,
        sources: Sequence[str],
        *,
        clock: Clock | None = None,
        pause: Callable[[], object] | None = None,
    ) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._pause = pause if pause is not None else lambda: time.sleep(_PAUSE_S)
        self._router = wire.Router()
        self._session_id = 0
        self.reporters: dict[int, int] = {}
        """From which session each client id was heard to report quality of service."""
        self._subscriptions = [
            client.add_subscription(channel, stream_id) for channel, stream_id in endpoints(streams, sources)
        ]

    def on(self, kind: type[MessageT], handler: Callable[[MessageT, int], object]) -> None:
        """Calls `handler` with each message of a kind, and with the time when it was heard."""

        def handle(message: Any) -> None:
            handler(message, self._clock.monotonic_ns())

        self._router.on(kind, handle)

    def note_reporter(self, client_id: int) -> None:
        """Remembers who sent the message that is handed on now."""
        if len(self.reporters) < _MOST_REPORTERS or client_id in self.reporters:
            self.reporters[client_id] = self._session_id

    def poll(self) -> int:
        """Hands on what came; never waits. How many messages there were."""
        return sum(subscription.poll(self._take, _FRAGMENTS) for subscription in self._subscriptions)

    def _take(self, message: bytes, header: Header) -> None:
        self._session_id = header.session_id
        self._router.dispatch(message)

    def listen(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> bool:
        """Listens for so long, or until everything is heard that somebody waits for; whether it was."""
        deadline_ns = self._clock.monotonic_ns() + round(seconds * 1e9)
        while not until():
            if self._clock.monotonic_ns() >= deadline_ns:
                return False
            if not self.poll():
                self._pause()
        return True

    def close(self) -> None:
        """Closes the subscriptions; may be called again."""
        for subscription in self._subscriptions:
            subscription.close()


def qos_listener(
    client: Client,
    streams: StreamsSection,
    *others: str,
    clock: Clock | None = None,
    pause: Callable[[], object] | None = None,
) -> tuple[Listener, QosBoard]:
    """A listener whose reports of quality of service go to a board; `others` are further sources.

    Example:
        >>> from tensor_pool.config import StreamsSection
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> listener, board = qos_listener(MemoryBus().client(), StreamsSection())
        >>> listener.poll(), board.drops_of(10000)
        (0, None)
    """
    listener, board = Listener(client, streams, ["qos", *others], clock=clock, pause=pause), QosBoard()

    def on_producer(report: QosProducer, now_ns: int) -> None:
        board.on_producer(report, now_ns)
        listener.note_reporter(report.producer_id)

    def on_consumer(report: QosConsumer, now_ns: int) -> None:
        board.on_consumer(report, now_ns)
        listener.note_reporter(report.consumer_id)

    listener.on(QosProducer, on_producer)
    listener.on(QosConsumer, on_consumer)
    return listener, board

"""The publications and subscriptions of a bridge: each channel and stream is opened once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.bridging.udp import for_chunks_in, for_chunks_out, for_messages_in
from tensor_pool.channels import Channel
from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.transport import AeronClient, AeronPublication, AeronSubscription, Subscription
    from tensor_pool.transport.drain import Drain
    from tensor_pool.wire import Message

__all__ = ["Ports"]


class Ports(Closing):
    """Opens ends of Aeron streams, and closes them all.

    Args:
        client: The connection to the media driver.
        drain: What receives messages, and wakes who handles them.
    """

    def __init__(self, client: AeronClient, drain: Drain) -> None:
        self._client = client
        self._drain = drain
        self._publications: dict[tuple[str, int], AeronPublication] = {}
        self._subscriptions: list[Subscription] = []
        self._chunk_places: set[tuple[str, str]] = set()
        """Addresses that chunks come to: those are subscribed to first."""

    def publication(self, channel: str, stream_id: int) -> AeronPublication:
        """The publication to a stream; the same one for all who ask."""
        key = (channel, stream_id)
        if key not in self._publications:
            self._publications[key] = self._client.add_publication(channel, stream_id)
        return self._publications[key]

    def subscription(self, channel: str, stream_id: int, wanted: Iterable[type[Message]]) -> Subscription:
        """A subscription to certain messages."""
        if Channel.parse(channel).media == "udp":
            channel = for_messages_in(channel, beside_chunks=_address(channel) in self._chunk_places)
        subscription = self._drain.subscribe(channel, stream_id, wanted)
        self._subscriptions.append(subscription)
        return subscription

    def chunk_publication(self, channel: str, stream_id: int) -> AeronPublication:
        """A publication of chunks, one's own: who asks closes it."""
        return self._client.add_publication(for_chunks_out(channel), stream_id)

    def chunk_subscription(self, channel: str, stream_id: int) -> AeronSubscription:
        """A subscription that native code polls itself."""
        self._chunk_places.add(_address(channel))
        subscription = self._client.add_subscription(for_chunks_in(channel), stream_id)
        self._subscriptions.append(subscription)
        return subscription

    def close(self) -> None:
        """Closes everything. May be called again."""
        for end in (*self._publications.values(), *self._subscriptions):
            end.close()
        self._publications.clear()
        self._subscriptions.clear()


def _address(channel: str) -> tuple[str, str]:
    params = Channel.parse(channel).params
    return params.get("endpoint", ""), params.get("control", "")

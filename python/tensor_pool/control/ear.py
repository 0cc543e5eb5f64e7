"""Hears events, and knows where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.transport import DrainedClient, received_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensor_pool.channels import Endpoint
    from tensor_pool.transport import Client, Header, Subscription

__all__ = ["EventEar", "listen", "said_so_far"]

_POLL_LIMIT: Final = 64
_MAX_SOURCES: Final = 4_096


def listen(
    client: Client, endpoint: Endpoint, kind: tuple[int, int], *, tags: Iterable[str] | None = None
) -> Subscription:
    """A subscription to events, where possible without those that nobody here wants [SVC-5-4].

    Args:
        client: Aeron, or what stands for it.
        endpoint: Where they are heard.
        kind: Their schema and template.
        tags: Only those with one of these tags; None for all.
    """
    if not isinstance(client, DrainedClient):
        return client.add_subscription(*endpoint)
    texts = None if tags is None else [tag.encode("ascii") for tag in tags]
    return client.add_subscription(*endpoint, accept=[kind], texts=texts)


def said_so_far(client: Client, endpoint: Endpoint) -> Mapping[int, int]:
    """How far publications from other hosts have come here, by their sessions. For before `listen`."""
    if not isinstance(client, DrainedClient):
        return {}
    return received_positions(client.aeron_dir, endpoint.stream_id)


class EventEar:
    """Polls a subscription and says of each message which source it has, as Aeron names it.

    Args:
        subscription: Where messages come.
        on_message: Called with each and its source.
        said_before: How far each session had come before anybody listened here, where that matters: a new
            subscriber begins where the slowest one of its host is, and may hear what was for others.
        on_old: Called for each message from before that, instead.

    Example:
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> bus = MemoryBus()
        >>> ear = EventEar(bus.client().add_subscription("aeron:ipc", 1400), print)
        >>> bus.client().add_publication("aeron:ipc", 1400).offer(b"hello").name, ear.poll()
        b'hello' memory
        ('SENT', 1)
    """

    def __init__(
        self,
        subscription: Subscription,
        on_message: Callable[[bytes, str], object],
        *,
        said_before: Mapping[int, int] | None = None,
        on_old: Callable[[], object] = lambda: None,
    ) -> None:
        self.subscription = subscription
        self._on_message = on_message
        self._said_before = said_before or {}
        self._on_old = on_old
        self._sources: dict[int, str] = {}
        """Also of publications that are gone: their last messages may still wait."""

    def poll(self) -> int:
        """Hands on what came; says how much."""
        return self.subscription.poll(self._on_fragment, _POLL_LIMIT)

    def close(self) -> None:
        """Closes the subscription. May be called again."""
        self.subscription.close()

    def _on_fragment(self, data: bytes, header: Header) -> None:
        self._look_for_sources()
        if header.position <= self._said_before.get(header.session_id, -1):
            self._on_old()
            return
        self._on_message(data, self._sources.get(header.session_id, "unknown"))

    def _look_for_sources(self) -> None:
        for available, image in self.subscription.take_image_events():
            if available:
                self._sources.pop(image.session_id, None)  # the newest go to the end
                self._sources[image.session_id] = image.source_identity
        if len(self._sources) > _MAX_SOURCES:
            heard = {image.session_id for image in self.subscription.images()}
            self._sources = {session: source for session, source in self._sources.items() if session in heard}

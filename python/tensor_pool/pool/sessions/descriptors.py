"""Where a consumer learns what only descriptors tell: trace ids, publish times, and private streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool import _native

__all__ = ["DescriptorFeeds", "PrivateDescriptors"]

_MOST_KEPT: Final = 4096
"""Descriptors kept of one stream; what is older than the ring is of no use anyway."""


class DescriptorFeeds(Closing):
    """The descriptor streams that a connection listens to, each once however many consumers need it.

    Args:
        open_feed: Opens the feed of a channel and an Aeron stream.
    """

    def __init__(self, open_feed: Callable[[str, int], _native.DescriptorFeed]) -> None:
        self._open = open_feed
        self._feeds: dict[tuple[str, int], _native.DescriptorFeed] = {}

    def follow(self, endpoint: tuple[str, int], stream_id: int, nslots: int) -> _native.DescriptorLog:
        """What is said about one stream on a shared descriptor stream from now on."""
        feed = self._feeds.get(endpoint)
        if feed is None:
            feed = self._feeds[endpoint] = self._open(*endpoint)
        return feed.follow(stream_id, min(nslots, _MOST_KEPT))

    def private(self, endpoint: tuple[str, int], stream_id: int, nslots: int) -> PrivateDescriptors:
        """A descriptor stream of a single consumer."""
        return PrivateDescriptors(self._open(*endpoint), endpoint, stream_id, min(nslots, _MOST_KEPT))

    def close(self) -> None:
        """Closes the shared ones; may be called again."""
        for feed in self._feeds.values():
            feed.close()
        self._feeds.clear()


class PrivateDescriptors(Closing):
    """A descriptor stream that the producer feeds for one consumer; it says which frames there are."""

    def __init__(
        self, feed: _native.DescriptorFeed, endpoint: tuple[str, int], stream_id: int, capacity: int
    ) -> None:
        self.endpoint = endpoint
        self.log = feed.follow(stream_id, capacity)
        self._feed = feed

    def close(self) -> None:
        """Stops listening; may be called again."""
        self._feed.close()

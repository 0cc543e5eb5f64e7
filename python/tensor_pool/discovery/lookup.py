"""Finds streams by what most queries name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensor_pool.discovery.known import KnownStream
    from tensor_pool.discovery.query import StreamQuery

__all__ = ["StreamKey", "StreamLookup"]

StreamKey = tuple[str, int]
"""A driver and its stream."""


class StreamLookup:
    """Which streams have a name or a tag, so that who asks for one costs no look at all the others.

    Example:
        >>> from tensor_pool.discovery.query import StreamQuery
        >>> lookup = StreamLookup()
        >>> lookup.candidates(StreamQuery(name="camera")), lookup.candidates(StreamQuery(stream_id=7))
        ((), None)
    """

    def __init__(self) -> None:
        self._by_name: dict[str, dict[StreamKey, None]] = {}
        self._by_tag: dict[str, dict[StreamKey, None]] = {}

    def add(self, key: StreamKey, stream: KnownStream) -> None:
        """Notes what a stream is called; `discard` it before it is called something else."""
        for shelf, word in self._places(stream):
            shelf.setdefault(word, {})[key] = None

    def discard(self, key: StreamKey, stream: KnownStream) -> None:
        """Forgets what `add` noted."""
        for shelf, word in self._places(stream):
            keys = shelf[word]
            del keys[key]
            if not keys:
                del shelf[word]

    def candidates(self, query: StreamQuery) -> Collection[StreamKey] | None:
        """Streams that may match, and certainly all that do; None where it could be any."""
        found: list[Collection[StreamKey]] = [self._by_tag.get(tag, ()) for tag in query.tags]
        if query.name:
            found.append(self._by_name.get(query.name, ()))
        return min(found, key=len, default=None)

    def _places(self, stream: KnownStream) -> list[tuple[dict[str, dict[StreamKey, None]], str]]:
        return [(self._by_name, stream.name), *((self._by_tag, tag) for tag in stream.tags)]

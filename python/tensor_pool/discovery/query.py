"""What a client asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tensor_pool.discovery.known import KnownStream
    from tensor_pool.wire.messages import DiscoveryRequest

__all__ = ["StreamQuery"]


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters that a stream must all pass; those that are absent let everything pass [DSC-5.1-4].

    Example:
        >>> StreamQuery(name="cam", tags=frozenset({"left"})).is_everything
        False
    """

    stream_id: int | None = None
    producer_id: int | None = None
    data_source_id: int | None = None
    name: str = ""
    tags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: DiscoveryRequest) -> StreamQuery:
        """The filters of a request; a tag that is named twice counts once [DSC-5.1-14]."""
        return cls(
            stream_id=request.stream_id,
            producer_id=request.producer_id,
            data_source_id=request.data_source_id,
            name=request.data_source_name,
            tags=frozenset(entry.tag for entry in request.tags if entry.tag),
        )

    @property
    def is_everything(self) -> bool:
        """Whether nothing is filtered."""
        return self == StreamQuery()

    def matches(self, stream: KnownStream) -> bool:
        """Whether a stream passes; letters count in the case they are written in [DSC-5.1-8, DSC-5.1-12]."""
        announce = stream.announce
        return (
            (self.stream_id is None or self.stream_id == announce.stream_id)
            and (self.producer_id is None or self.producer_id == announce.producer_id)
            and (self.data_source_id is None or self.data_source_id == stream.data_source_id)
            and (not self.name or self.name == stream.name)
            and self.tags <= stream.tags
        )

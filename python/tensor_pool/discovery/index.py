"""What streams there are: soft state, made of announces and gone without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.discovery.known import KnownStream
from tensor_pool.discovery.lookup import StreamKey, StreamLookup
from tensor_pool.discovery.metadata import Description
from tensor_pool.discovery.query import StreamQuery

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.discovery.authority import Authority
    from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta, ShmPoolAnnounce

__all__ = ["Refused", "StreamIndex"]

_SLOT_BYTES: Final = 256
_PATIENCE: Final = 3
"""Descriptions live for so many expiry times: they may come less often, and count for nothing alone."""

Refused = str
"""Why something was not taken, as counters name it."""


class StreamIndex:
    """Streams by driver and id.

    Args:
        expiry_ns: An entry is gone when no pool announce has come for so long [DSC-6.2-1].
        max_streams: Streams to know at most; further ones are refused.

    Example:
        >>> from tensor_pool.discovery.authority import Authority
        >>> from tensor_pool.wire.messages import ClockDomain, ShmPoolAnnounce
        >>> index = StreamIndex(expiry_ns=3_000_000_000)
        >>> announce = ShmPoolAnnounce(
        ...     stream_id=10000, producer_id=7, epoch=5, announce_timestamp_ns=1,
        ...     announce_clock_domain=ClockDomain.MONOTONIC, layout_version=1, header_nslots=8,
        ...     header_slot_bytes=256, header_region_uri="shm:file?path=/dev/shm/ring", payload_pools=())
        >>> index.on_pool_announce(Authority("lab", "aeron:ipc", 1000), announce, now_ns=0)
        >>> [stream.announce.stream_id for stream in index.matching(StreamQuery(stream_id=10000), now_ns=1)]
        [10000]
        >>> list(index.streams(now_ns=3_000_000_000))
        []
    """

    def __init__(self, *, expiry_ns: int, max_streams: int = 10_000) -> None:
        self._expiry_ns = expiry_ns
        self.max_streams: Final = max_streams
        self._entries: dict[StreamKey, KnownStream] = {}
        self._lookup = StreamLookup()
        self._descriptions: dict[StreamKey, Description] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def on_pool_announce(
        self, authority: Authority, announce: ShmPoolAnnounce, *, now_ns: int
    ) -> Refused | None:
        """Takes an announce; only these keep an entry alive (decision K5). Says why if it was refused."""
        key = (authority.instance_id, announce.stream_id)
        known = self._entries.get(key)
        if known is not None and known.announce is announce and self._is_as_before(known, authority, now_ns):
            known.heard_ns = now_ns
            return None
        if not authority.can_be_asked or not _is_sound(announce):
            return "unsound" if authority.can_be_asked else "no_authority"
        if known is None or self._is_expired(known, now_ns):
            if known is None and len(self._entries) >= self.max_streams:
                return "too_many"
        elif known.authority == authority:  # one that moved elsewhere may begin again [DSC-6.3-2]
            if announce.epoch < known.announce.epoch:
                return "old_epoch"
            if _says_the_same(announce, known.announce):
                known.heard_ns = now_ns
                return None
        said = self._described(key, announce.epoch)
        self._put(key, KnownStream(authority, announce, said, heard_ns=now_ns))
        return None

    def on_data_source_announce(
        self, authority: Authority, announce: DataSourceAnnounce, *, now_ns: int
    ) -> Refused | None:
        """Takes the name of a stream."""
        key = (authority.instance_id, announce.stream_id)
        known = self._descriptions.get(key)
        if known is not None and known.announce is announce:
            known.heard_ns = now_ns
            return None
        if known is None and len(self._descriptions) >= self.max_streams:
            return "too_many"
        said = Description.of(announce, now_ns=now_ns)
        if known is not None and known.epoch == said.epoch:
            # Until the attributes of a new version come, the old ones are the best that is known.
            said.tags, said.data_source_id = known.tags, known.data_source_id
        self._descriptions[key] = said
        self._describe(key)
        return None

    def on_meta(self, authority: Authority, meta: DataSourceMeta) -> None:
        """Takes the attributes of a stream whose name is known; others come again."""
        key = (authority.instance_id, meta.stream_id)
        said = self._descriptions.get(key)
        if said is not None and said.meta is not meta:
            said.add(meta)
            self._describe(key)

    def forget(self, authority: Authority) -> None:
        """Forgets the streams of a driver that says it ends."""
        for key in [key for key in self._entries if key[0] == authority.instance_id]:
            self._remove(key)
        for key in [key for key in self._descriptions if key[0] == authority.instance_id]:
            del self._descriptions[key]

    def expire(self, now_ns: int) -> int:
        """Removes what is too old; says how many streams."""
        old = [key for key, entry in self._entries.items() if self._is_expired(entry, now_ns)]
        for key in old:
            self._remove(key)
        silent_ns = now_ns - _PATIENCE * self._expiry_ns
        for key in [key for key, said in self._descriptions.items() if said.heard_ns <= silent_ns]:
            del self._descriptions[key]
        return len(old)

    def streams(self, *, now_ns: int) -> Iterator[KnownStream]:
        """The streams that are there now, in the order in which they came.

        Drivers go on announcing the memory of a stream that nobody produces any more [DRV-8-4]. There is
        nothing to attach to, so it is told of again when somebody produces it.
        """
        return self.matching(StreamQuery(), now_ns=now_ns)

    def matching(self, query: StreamQuery, *, now_ns: int) -> Iterator[KnownStream]:
        """Those of `streams` that a query asks for."""
        keys = self._lookup.candidates(query)
        entries = self._entries.values() if keys is None else (self._entries[key] for key in keys)
        return (
            entry
            for entry in entries
            if entry.announce.producer_id and not self._is_expired(entry, now_ns) and query.matches(entry)
        )

    def _put(self, key: StreamKey, stream: KnownStream) -> None:
        known = self._entries.get(key)
        if known is not stream:
            if known is not None:
                self._lookup.discard(key, known)
            self._entries[key] = stream
            self._lookup.add(key, stream)

    def _remove(self, key: StreamKey) -> None:
        self._lookup.discard(key, self._entries.pop(key))

    def _is_expired(self, entry: KnownStream, now_ns: int) -> bool:
        return now_ns - entry.heard_ns >= self._expiry_ns

    def _is_as_before(self, known: KnownStream, authority: Authority, now_ns: int) -> bool:
        return known.authority == authority and not self._is_expired(known, now_ns)

    def _described(self, key: StreamKey, epoch: int) -> Description | None:
        """What was said about a stream, unless that was in another epoch: somebody else may have it now."""
        said = self._descriptions.get(key)
        return said if said is not None and said.epoch == epoch else None

    def _describe(self, key: StreamKey) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            self._put(key, entry.described(self._described(key, entry.announce.epoch)))


def _is_sound(announce: ShmPoolAnnounce) -> bool:
    return announce.header_slot_bytes == _SLOT_BYTES and all(
        pool.pool_nslots == announce.header_nslots for pool in announce.payload_pools
    )


def _says_the_same(one: ShmPoolAnnounce, other: ShmPoolAnnounce) -> bool:
    return msgspec.structs.replace(one, announce_timestamp_ns=other.announce_timestamp_ns) == other

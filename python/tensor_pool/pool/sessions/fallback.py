"""Frames without shared memory: put together from a bridge's chunks, in a ring of the consumer's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tensor_pool.closing import Closing
from tensor_pool.pool.private_ring import PrivateRing
from tensor_pool.transport import AeronPublication

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool import _native
    from tensor_pool.pool.fallback_uri import ChunkPlace
    from tensor_pool.pool.sessions.descriptors import PrivateDescriptors
    from tensor_pool.pool.sessions.session import SessionContext
    from tensor_pool.pool.stats import FallbackStats
    from tensor_pool.transport import Publication
    from tensor_pool.wire.messages import ShmPoolAnnounce

__all__ = ["ChunkFeed", "Fallback"]

_DESCRIPTORS: Final = "aeron:ipc?term-length=64k"


class ChunkFeed(Protocol):
    """What takes the chunks of one stream and puts its frames together, on a thread of its own."""

    def follow(self, epoch: int, pools: Sequence[tuple[int, int]], writer: _native.RingWriter) -> None:
        """Takes frames of this epoch from now on, whose source has these pools, and no others."""
        ...

    def prefix(self, seq: int) -> int | None:
        """Bytes of a frame that came from its start on; None when it is not being put together."""
        ...

    def stats(self) -> FallbackStats:
        """What became of chunks and frames so far."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether its thread has not ended."""
        ...

    def request_stop(self) -> None:
        """Writes to no ring from now on, and ends soon."""
        ...

    def join(self) -> None:
        """Waits until it has ended."""
        ...


class Fallback(Closing):
    """Follows the epochs of a stream by its announces, and its frames by chunks. For the agent's thread.

    The ring has the stream's own id and epoch, and frames keep their numbers: nobody else sees it.

    Args:
        context: The connection.
        place: Where chunks come from.
        stream_id: The stream, by the number that it has in chunks (decision R1).
        open_reader: Maps a ring for the consumer.
    """

    def __init__(
        self,
        context: SessionContext,
        place: ChunkPlace,
        stream_id: int,
        open_reader: Callable[[_native.RingAddress, Sequence[str]], _native.RingReader],
    ) -> None:
        self.place: Final = place
        self.feed: Final = context.open_chunks(place, stream_id)
        self.epoch: int | None = None
        """The epoch whose frames are taken; None before an announce told one."""
        self._context = context
        self._stream_id = stream_id
        self._open_reader = open_reader
        self._ring: PrivateRing | None = None
        self._publication: Publication | None = None
        self._descriptors: PrivateDescriptors | None = None

    @property
    def log(self) -> _native.DescriptorLog | None:
        """What is told of frames beside what is in the ring: their trace ids."""
        return None if self._descriptors is None else self._descriptors.log

    def follow(self, announce: ShmPoolAnnounce) -> _native.RingReader | None:
        """A ring for the frames of the announced epoch; None when it is not a later one.

        Raises:
            RegionError: There is no room for one.
        """
        if self.epoch is not None and announce.epoch <= self.epoch:
            return None
        if not announce.payload_pools:
            return None  # no frame has room in it
        pools = [(pool.pool_id, pool.stride_bytes) for pool in announce.payload_pools]
        descriptors = self._tell_of_frames(announce)
        ring = PrivateRing(
            self._stream_id,
            announce.epoch,
            strides=[stride for _, stride in pools],
            nslots=announce.header_nslots,
            most_bytes=self._context.section.fallback_max_bytes,
            directory=self._context.shm.shm_base_dir,
            descriptors=descriptors,
            open_reader=self._open_reader,
        )
        self.feed.follow(announce.epoch, pools, ring.writer)
        self._close_ring()
        self._ring, self.epoch = ring, announce.epoch
        return ring.reader

    def _tell_of_frames(self, announce: ShmPoolAnnounce) -> _native.AeronPublication | None:
        """Trace ids are in no ring: they go from its writer to its reader in descriptors, as everywhere.

        Nobody else hears them: Aeron ids below zero are nobody's, and the session is one's own.
        """
        if self._publication is None:
            self._publication = self._context.agent.open_publication(_DESCRIPTORS, -self.place.stream_id)
        if self._descriptors is None:
            channel = f"{_DESCRIPTORS}|session-id={self._publication.session_id}"
            endpoint = (channel, -self.place.stream_id)
            self._descriptors = self._context.feeds.private(endpoint, self._stream_id, announce.header_nslots)
        self._descriptors.log.set_epoch(announce.epoch)
        publication = self._publication
        return publication.native if isinstance(publication, AeronPublication) else None

    def _close_ring(self) -> None:
        """The reader is closed by who has it."""
        if self._ring is not None:
            self._ring.writer.close()
            self._ring = None

    def close(self) -> None:
        """Takes no more chunks; waits for nobody. May be called again."""
        self.feed.request_stop()
        self._close_ring()
        if self._descriptors is not None:
            self._descriptors.close()
        if self._publication is not None:
            self._publication.close()

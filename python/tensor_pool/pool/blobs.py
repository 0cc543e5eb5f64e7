"""Metadata too large for attributes, in chunks: flat fields, masks, calibration tables (decision B11).

Nothing is repaired: a blob arrives whole, or is discarded and counted until it is sent again. Chunks say only
by stream and version which blob they belong to, so a sender sends one blob after the other.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tensor_pool import _native
from tensor_pool.errors import MalformedMessageError
from tensor_pool.runtime import TimerQueue
from tensor_pool.wire.messages import MetaBlobAnnounce, MetaBlobChunk, MetaBlobComplete

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from tensor_pool.wire import Message

__all__ = ["CHUNK_MAX", "Blob", "BlobAssembly", "BlobDiscard", "BlobSender"]

CHUNK_MAX: Final = 64 << 10
"""The longest chunk [WIRE-15.9-2]."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A large piece of metadata; what its type means is between producer and consumers."""

    stream_id: int
    meta_version: int
    blob_type: int
    data: bytes = field(repr=False)


class BlobSender:
    """Sends blobs piece by piece, so that they don't crowd out other messages.

    Args:
        stream_id: The stream.
        chunks_per_call: How many messages `due` gives at most.
        max_bytes: How much may wait to be sent.
        checksum: Say the CRC32C of each blob.

    Example:
        >>> sender = BlobSender(1, chunks_per_call=8)
        >>> sender.add(bytes(100_000), meta_version=3, blob_type=1)
        >>> messages = sender.due()
        >>> [type(message).__name__ for message in messages]
        ['MetaBlobAnnounce', 'MetaBlobChunk', 'MetaBlobChunk', 'MetaBlobComplete']
        >>> sender.sent(len(messages))
        >>> sender.due()
        []
    """

    def __init__(
        self,
        stream_id: int,
        *,
        chunks_per_call: int = 8,
        max_bytes: int = 64 << 20,
        checksum: bool = True,
    ) -> None:
        self.stream_id = stream_id
        self._chunks_per_call = chunks_per_call
        self._max_bytes = max_bytes
        self._checksum = checksum
        self._queue: deque[_Sending] = deque()

    @property
    def pending_bytes(self) -> int:
        """Bytes of the blobs that are not sent completely."""
        return sum(len(sending.data) for sending in self._queue)

    def add(self, data: ReadableBuffer, *, meta_version: int, blob_type: int) -> None:
        """Send this after what was added before. To serve those who join late, add it again.

        Raises:
            MalformedMessageError: More would wait than may.
        """
        copied = bytes(data)
        waiting = self.pending_bytes
        if waiting + len(copied) > self._max_bytes:
            raise MalformedMessageError(
                f"a blob of {len(copied)} bytes, with {waiting} waiting; at most {self._max_bytes} may",
                hint="send it as a stream of its own, or wait until the others are sent",
            )
        crc = _native.crc32c(copied) if self._checksum else 0
        self._queue.append(_Sending(copied, meta_version, blob_type, crc))

    def due(self) -> list[Message]:
        """The next messages; the same again until they are reported as `sent`."""
        messages: list[Message] = []
        for sending in self._queue:
            step = sending.step
            while step < sending.steps and len(messages) < self._chunks_per_call:
                messages.append(self._message(sending, step))
                step += 1
            if len(messages) == self._chunks_per_call:
                break
        return messages

    def sent(self, count: int) -> None:
        """The first `count` messages of the last `due` went out."""
        while count:
            sending = self._queue[0]
            taken = min(count, sending.steps - sending.step)
            sending.step += taken
            count -= taken
            if sending.step == sending.steps:
                self._queue.popleft()

    def _message(self, sending: _Sending, step: int) -> Message:
        if step == 0:
            return MetaBlobAnnounce(
                self.stream_id, sending.meta_version, sending.blob_type, len(sending.data), sending.crc
            )
        if step == sending.steps - 1:
            return MetaBlobComplete(self.stream_id, sending.meta_version, sending.crc)
        offset = (step - 1) * CHUNK_MAX
        chunk = sending.data[offset : offset + CHUNK_MAX]
        return MetaBlobChunk(self.stream_id, sending.meta_version, offset, chunk)


@dataclass(slots=True)
class _Sending:
    data: bytes
    meta_version: int
    blob_type: int
    crc: int
    step: int = 0
    """Which message comes next: the announce is 0, then the chunks, then the end."""

    @property
    def steps(self) -> int:
        return 2 + -(-len(self.data) // CHUNK_MAX)


class BlobDiscard(enum.StrEnum):
    """Why a blob, or a message of one, was discarded."""

    TOO_LARGE = "too large"
    TOO_MANY = "too many at a time"
    RESTARTED = "announced again before its end"
    NOT_ANNOUNCED = "a chunk or an end without announce"
    GAP = "gap"
    OVERLAP = "overlap"
    BEYOND_END = "beyond its end"
    BAD_CHUNK = "empty or too long chunk"
    INCOMPLETE = "ended too early"
    CHECKSUM = "checksum"
    TIMED_OUT = "timed out"


class BlobAssembly:
    """Puts blobs together again, of any number of streams.

    Args:
        max_blob_bytes: The largest blob that is taken.
        max_total_bytes: What all unfinished blobs may hold together.
        max_blobs: How many may be unfinished.
        timeout_ns: How long one may wait for its next message.

    Example:
        >>> sender, assembly = BlobSender(1), BlobAssembly()
        >>> sender.add(b"flat field", meta_version=3, blob_type=1)
        >>> [assembly.on_message(message, now_ns=0) for message in sender.due()][-1].data
        b'flat field'
    """

    def __init__(
        self,
        *,
        max_blob_bytes: int = 64 << 20,
        max_total_bytes: int = 128 << 20,
        max_blobs: int = 16,
        timeout_ns: int = 10_000_000_000,
    ) -> None:
        self.discarded: Counter[BlobDiscard] = Counter()
        """How often something was discarded, by reason."""
        self._max_blob_bytes = max_blob_bytes
        self._max_total_bytes = max_total_bytes
        self._max_blobs = max_blobs
        self._timeout_ns = timeout_ns
        self._open: dict[tuple[int, int], _Receiving] = {}
        self._deadlines: TimerQueue[tuple[int, int]] = TimerQueue()

    def __len__(self) -> int:
        """How many are unfinished."""
        return len(self._open)

    def on_message(self, message: Message, now_ns: int) -> Blob | None:
        """The blob that is whole with this message, or None."""
        if isinstance(message, MetaBlobAnnounce):
            self._on_announce(message, now_ns)
        elif isinstance(message, MetaBlobChunk):
            self._on_chunk(message, now_ns)
        elif isinstance(message, MetaBlobComplete):
            return self._on_complete(message)
        return None

    def expire(self, now_ns: int) -> None:
        """Discards the blobs whose next message does not come."""
        for key in self._deadlines.expire(now_ns):
            self._discard(key, BlobDiscard.TIMED_OUT)

    def _on_announce(self, message: MetaBlobAnnounce, now_ns: int) -> None:
        key = (message.stream_id, message.meta_version)
        if key in self._open:
            self._discard(key, BlobDiscard.RESTARTED)
        claimed = sum(receiving.announce.total_len for receiving in self._open.values())
        if message.total_len > min(self._max_blob_bytes, self._max_total_bytes - claimed):
            self.discarded[BlobDiscard.TOO_LARGE] += 1
        elif len(self._open) >= self._max_blobs:
            self.discarded[BlobDiscard.TOO_MANY] += 1
        else:
            # Memory is taken as chunks come, never for what an announce claims.
            self._open[key] = _Receiving(message)
            self._deadlines.set(key, now_ns + self._timeout_ns)

    def _on_chunk(self, message: MetaBlobChunk, now_ns: int) -> None:
        key = (message.stream_id, message.meta_version)
        receiving = self._open.get(key)
        if receiving is None:
            self.discarded[BlobDiscard.NOT_ANNOUNCED] += 1
            return
        problem = receiving.problem(message)
        if problem is not None:
            self._discard(key, problem)
            return
        receiving.data += message.bytes
        receiving.crc = _native.crc32c(message.bytes, receiving.crc)
        self._deadlines.set(key, now_ns + self._timeout_ns)

    def _on_complete(self, message: MetaBlobComplete) -> Blob | None:
        key = (message.stream_id, message.meta_version)
        receiving = self._open.get(key)
        if receiving is None:
            self.discarded[BlobDiscard.NOT_ANNOUNCED] += 1
            return None
        if len(receiving.data) != receiving.announce.total_len:
            self._discard(key, BlobDiscard.INCOMPLETE)
            return None
        # 0 is "none"; where both say one, both must be right [WIRE-15.9-3].
        checksums = {receiving.announce.checksum, message.checksum} - {0}
        if checksums - {receiving.crc}:
            self._discard(key, BlobDiscard.CHECKSUM)
            return None
        self._forget(key)
        return Blob(
            message.stream_id, message.meta_version, receiving.announce.blob_type, bytes(receiving.data)
        )

    def _discard(self, key: tuple[int, int], reason: BlobDiscard) -> None:
        self.discarded[reason] += 1
        self._forget(key)

    def _forget(self, key: tuple[int, int]) -> None:
        del self._open[key]
        self._deadlines.cancel(key)


@dataclass(slots=True)
class _Receiving:
    announce: MetaBlobAnnounce
    data: bytearray = field(default_factory=bytearray)
    crc: int = 0

    def problem(self, chunk: MetaBlobChunk) -> BlobDiscard | None:
        """What is wrong with a chunk: each continues exactly where the last one ended."""
        have = len(self.data)
        if not 0 < len(chunk.bytes) <= CHUNK_MAX:
            return BlobDiscard.BAD_CHUNK
        if chunk.chunk_offset != have:
            return BlobDiscard.GAP if chunk.chunk_offset > have else BlobDiscard.OVERLAP
        if have + len(chunk.bytes) > self.announce.total_len:
            return BlobDiscard.BEYOND_END
        return None

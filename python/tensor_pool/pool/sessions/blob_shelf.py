"""The large metadata of one producer: sent when it is put there, and again for those who join late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.errors import MalformedMessageError
from tensor_pool.pool.blobs import BlobSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.wire import Message

__all__ = ["BlobShelf"]

_MAX_BYTES: Final = 64 << 20


class BlobShelf:
    """The newest blob of each type.

    Args:
        stream_id: The stream.
        max_bytes: What all of them may take together.

    Example:
        >>> shelf = BlobShelf(10000)
        >>> shelf.put(1, b"flat field", meta_version=3)
        >>> sent = []
        >>> shelf.send(lambda message: not sent.append(message))
        >>> [type(message).__name__ for message in sent]
        ['MetaBlobAnnounce', 'MetaBlobChunk', 'MetaBlobComplete']
        >>> shelf.repeat(); shelf.has_waiting
        True
    """

    def __init__(self, stream_id: int, *, max_bytes: int = _MAX_BYTES) -> None:
        self._blobs: dict[int, tuple[bytes, int]] = {}
        self._max_bytes = max_bytes
        self._sender = BlobSender(stream_id, max_bytes=2 * max_bytes)

    @property
    def has_waiting(self) -> bool:
        """Whether something is still to be sent."""
        return self._sender.pending_bytes > 0

    def bind(self, stream_id: int) -> None:
        """Speaks for this stream from now on; everything is sent again."""
        self._sender = BlobSender(stream_id, max_bytes=2 * self._max_bytes)
        self.repeat()

    def put(self, blob_type: int, data: bytes, *, meta_version: int) -> None:
        """Sends a blob, and keeps it in the place of the former one of its type.

        Raises:
            MalformedMessageError: All together would take more than they may.
        """
        others = sum(len(kept) for other, (kept, _) in self._blobs.items() if other != blob_type)
        if others + len(data) > self._max_bytes:
            raise MalformedMessageError(
                f"a blob of {len(data)} bytes beside {others} bytes of others; "
                f"a stream may have {self._max_bytes} in all",
                hint="publish it as frames of a stream of its own",
            )
        self._sender.add(data, meta_version=meta_version, blob_type=blob_type)
        self._blobs[blob_type] = (data, meta_version)

    def repeat(self) -> None:
        """Sends everything once more, unless it is being sent."""
        if not self.has_waiting:
            for blob_type, (data, meta_version) in self._blobs.items():
                self._sender.add(data, meta_version=meta_version, blob_type=blob_type)

    def send(self, send: Callable[[Message], bool]) -> None:
        """Sends the next few pieces; what is refused waits for the next call."""
        sent = 0
        for message in self._sender.due():
            if not send(message):
                break
            sent += 1
        self._sender.sent(sent)

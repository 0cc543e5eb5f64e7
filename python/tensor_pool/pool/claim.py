"""A slot that a program fills in place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from tensor_pool.errors import ClaimError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from numpy.typing import NDArray

    from tensor_pool import _native
    from tensor_pool.pool.sessions.producer import ProducerSession
    from tensor_pool.pool.sessions.progress_reporter import ProgressReporter

__all__ = ["ClaimedSlot"]


class ClaimedSlot:
    """The next frame of a stream, while it is being filled. Made by `Producer.claim`.

    As a context manager it publishes the frame at the end of the block; when the block raises, the frame is
    given up and its sequence number skipped.
    """

    __slots__ = ("_flush", "_native", "_progress", "_session", "_timestamp_ns", "_trace_id", "_writer")

    def __init__(
        self,
        native: _native.Claim,
        writer: _native.RingWriter,
        session: ProducerSession,
        *,
        timestamp_ns: int | None,
        trace_id: int | None,
        progress: ProgressReporter | None,
        flush: Callable[[NDArray[Any]], object] | None,
    ) -> None:
        self._native = native
        self._writer = writer
        self._session = session
        self._timestamp_ns = timestamp_ns
        self._trace_id = trace_id
        self._progress = progress
        self._flush = flush

    @property
    def array(self) -> NDArray[Any]:
        """The values, to be written where readers will find them. Don't keep views of it."""
        return self._native.array

    @property
    def seq(self) -> int:
        """The sequence number that the frame will have."""
        return self._native.seq

    def progress(
        self, *, rows: int | None = None, columns: int | None = None, bytes_filled: int | None = None
    ) -> None:
        """Tells consumers how much of the frame is there already; at most as often as they want to hear it.

        Args:
            rows: So many rows (steps of the first dimension) are complete.
            columns: So many columns (steps of the second dimension).
            bytes_filled: So many bytes from the start.

        Raises:
            ClaimError: The slot was not claimed with ``progress=True``.
            ValueError: Not exactly one of the three, or more than the frame has.
        """
        if self._progress is None:
            raise ClaimError(
                "this slot reports no progress", hint='claim it with progress="rows", "columns" or True'
            )
        array = self._native.array
        given = [(rows, 0), (columns, 1)]
        if sum(value is not None for value in (rows, columns, bytes_filled)) != 1:
            raise ValueError("give one of rows, columns and bytes_filled")
        for count, axis in given:
            if count is not None:
                if not 0 <= count <= array.shape[axis]:
                    raise ValueError(f"{count} is not between 0 and {array.shape[axis]}")
                bytes_filled = count * array.strides[axis]
        assert bytes_filled is not None
        if not 0 <= bytes_filled <= self._native.nbytes:
            raise ValueError(f"{bytes_filled} bytes of {self._native.nbytes}")
        self._progress.advance(bytes_filled)

    def commit(self) -> int:
        """Publishes the frame and returns its sequence number."""
        native, session = self._native, self._session
        if self._flush is not None:
            # Before the commit: nobody may see a frame that is still in a device's caches [WIRE-8.3-20].
            self._flush(native.array)
        session.published_s = time.monotonic()
        session.bytes_published += native.nbytes
        if session.private_sinks is None:
            seq = native.commit()
        else:
            seq = native.commit(ring=False)
            session.tell_privately(self._writer, seq, self._timestamp_ns, self._trace_id)
        if self._progress is not None:
            self._progress.complete()
        return seq

    def abort(self) -> None:
        """Gives the frame up: no reader will accept it."""
        self._native.abort()
        if self._progress is not None:
            self._progress.abort()
        self._session.count_abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._native.finished:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

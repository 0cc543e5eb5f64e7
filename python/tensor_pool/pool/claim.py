"""What Python does for a slot that a program fills in place; most slots need nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensor_pool.errors import ClaimError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tensor_pool import _native
    from tensor_pool.pool.sessions.producer import ProducerSession
    from tensor_pool.pool.sessions.progress_reporter import ProgressReporter

__all__ = ["ClaimObserver"]

_UNITS: Final[dict[object, int]] = {True: 0, "rows": 1, "columns": 2}


class ClaimObserver:
    """Follows one claim for consumers with streams of their own, for who waits for progress, and for devices.

    The native claim calls it, and leaves the doorbell to it. It must not keep the claim: a claim that a
    program forgets is given up at once.

    Args:
        session: The producer's.
        writer: The claim's ring.
        progress: What progress is counted in; None reports none.
        timestamp_ns: The frame's.
        trace_id: The frame's.

    Raises:
        ConfigError: There is no such unit of progress.
    """

    __slots__ = ("_reporter", "_session", "_timestamp_ns", "_trace_id", "_writer", "progress_unit")

    def __init__(
        self,
        session: ProducerSession,
        writer: _native.RingWriter,
        *,
        progress: object,
        timestamp_ns: int,
        trace_id: int | None,
    ) -> None:
        self._session = session
        self._writer = writer
        self._timestamp_ns = timestamp_ns
        self._trace_id = trace_id
        self._reporter: ProgressReporter | None = None
        self.progress_unit: int | None = None if progress is None else _unit(progress)
        """As the wire numbers it; None when no progress is reported."""

    def after_claim(self, claim: _native.Claim) -> None:
        """The slot is there; its header must be, too, before the first word of progress (decision M5)."""
        if self.progress_unit is not None:
            claim.write_header()
            self._reporter = self._session.progress_reporter(self._writer, claim)

    def before_commit(self, claim: _native.Claim) -> None:
        """Nobody may see a frame that is still in a device's caches [WIRE-8.3-20]."""
        flush: Callable[[NDArray[Any]], object] | None = self._session.options.flush
        if flush is not None:
            flush(claim.array)

    def after_commit(self, claim: _native.Claim) -> None:
        """The frame is there: tells those with streams of their own, then everybody."""
        self._session.tell_privately(self._writer, claim.seq, self._timestamp_ns, self._trace_id)
        if self._reporter is not None:
            self._reporter.complete()

    def after_abort(self, claim: _native.Claim) -> None:  # noqa: ARG002 - as the others
        """The frame will never be there."""
        if self._reporter is not None:
            self._reporter.abort()

    def progress(
        self, claim: _native.Claim, rows: int | None, columns: int | None, bytes_filled: int | None
    ) -> None:
        """See `Claim.progress`."""
        if self._reporter is None:
            raise ClaimError(
                "this slot reports no progress", hint='claim it with progress="rows", "columns" or True'
            )
        if sum(value is not None for value in (rows, columns, bytes_filled)) != 1:
            raise ValueError("give one of rows, columns and bytes_filled")
        array = claim.array
        for count, axis in [(rows, 0), (columns, 1)]:
            if count is not None:
                if not 0 <= count <= array.shape[axis]:
                    raise ValueError(f"{count} is not between 0 and {array.shape[axis]}")
                bytes_filled = count * array.strides[axis]
        assert bytes_filled is not None
        if not 0 <= bytes_filled <= claim.nbytes:
            raise ValueError(f"{bytes_filled} bytes of {claim.nbytes}")
        self._reporter.advance(bytes_filled)


def _unit(progress: object) -> int:
    try:
        return _UNITS[progress]
    except (KeyError, TypeError):
        raise ConfigError(f"progress={progress!r}", hint="one of True, 'rows', 'columns'") from None

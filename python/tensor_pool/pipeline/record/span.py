"""Which part of a recorded stream is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from tensor_pool.pipeline.record.catalogue import SegmentInfo

__all__ = ["EVERYTHING", "Span"]

_ALL: Final = 2**63 - 1


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a stream is meant; both ends belong to it.

    Example:
        >>> Span(first_seq=10, last_seq=19).first_seq
        10
    """

    first_seq: int = 0
    last_seq: int = _ALL
    first_ns: int = -_ALL
    """Real time of frames."""
    last_ns: int = _ALL

    @property
    def is_timed(self) -> bool:
        """Whether times matter; frames without a known clock are outside of any time."""
        return self.first_ns > -_ALL or self.last_ns < _ALL

    def touches(self, segment: SegmentInfo) -> bool:
        """Whether anything of a segment may belong to it."""
        if segment.max_seq < self.first_seq or segment.min_seq > self.last_seq:
            return False
        if not self.is_timed:
            return True
        first, last = segment.first_event_ns, segment.last_event_ns
        return first is not None and last is not None and last >= self.first_ns and first <= self.last_ns

    def of(self, table: pa.Table) -> pa.Table:
        """The rows of a table that belong to it; metadata always does."""
        import pyarrow.compute as pc  # noqa: PLC0415 - who only says what is meant reads no table

        end = pc.subtract(pc.add(table["seq"], pc.max_element_wise(table["count"], 1)), 1)
        wanted = pc.and_(pc.less_equal(table["seq"], self.last_seq), pc.greater_equal(end, self.first_seq))
        if self.is_timed:
            event = pc.add(table["timestamp_ns"], table["realtime_offset_ns"])
            timely = pc.and_(pc.greater_equal(event, self.first_ns), pc.less_equal(event, self.last_ns))
            wanted = pc.and_(wanted, pc.fill_null(timely, fill_value=False))
        return table.filter(pc.or_(wanted, pc.equal(table["kind"], "metadata")))


EVERYTHING: Final = Span()

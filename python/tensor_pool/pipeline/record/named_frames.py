"""Frames that are asked for one by one: which segments may have them, and which rows tell of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from tensor_pool.pipeline.record.catalogue import Catalogue, SegmentInfo

__all__ = ["FrameId", "NamedFrames", "may_have_stream"]

FrameId: TypeAlias = tuple[int, int, int]
"""Number of the stream, epoch, number of the frame."""
_LARGEST: Final = 2**63 - 1


def may_have_stream(catalogue: Catalogue, segment: SegmentInfo, stream_id: int) -> bool:
    """Whether frames of a stream with this number may be in a segment.

    A stream that was recorded by its name has no number in its catalogue, and may have had several.
    """
    known = segment.stream_ids or ((catalogue.stream_id,) if catalogue.stream_id else ())
    return not known or stream_id in known


class NamedFrames:
    """Some frames, whatever their streams.

    Args:
        frames: Which ones.

    Example:
        >>> from tensor_pool.pipeline.record.row_table import Located, row_table
        >>> from tensor_pool.pipeline.record.rows import Row
        >>> rows = [Row(kind="frame", stream_id=1, epoch=3, seq=seq) for seq in range(9)]
        >>> table = row_table([Located(row, crc32c=0, values_start=0, nbytes=0) for row in rows])
        >>> NamedFrames([(1, 3, 4), (1, 3, 7), (2, 3, 5)]).of(table)["seq"].to_pylist()
        [4, 7]
    """

    def __init__(self, frames: Iterable[FrameId]) -> None:
        self._seqs: dict[tuple[int, int], list[int]] = {}
        for stream_id, epoch, seq in sorted(set(frames)):
            if max(epoch, seq) > _LARGEST:
                continue  # recordings have none
            self._seqs.setdefault((stream_id, epoch), []).append(seq)

    def in_segment(self, catalogue: Catalogue, segment: SegmentInfo) -> list[FrameId]:
        """Those that may be in a segment, by what its catalogue says."""
        return [
            (stream_id, epoch, seq)
            for (stream_id, epoch), seqs in self._seqs.items()
            if may_have_stream(catalogue, segment, stream_id)
            for seq in _between(seqs, *_range_of(segment, epoch))
        ]

    def of(self, table: pa.Table) -> pa.Table:
        """The rows of a table that are one of them, or a gap with one of them in it."""
        import numpy as np  # noqa: PLC0415 - planning a query needs none of it
        import pyarrow as pa  # noqa: PLC0415

        column: dict[str, Any] = {
            name: table[name].to_numpy() for name in ("stream_id", "epoch", "seq", "count")
        }
        last = column["seq"] + np.maximum(column["count"], 1) - 1
        is_named = np.zeros(table.num_rows, bool)
        for (stream_id, epoch), seqs in self._seqs.items():
            # As many of them are before the first frame of a row as are before its end: none is in it.
            before = np.searchsorted(seqs, column["seq"], "left")
            is_here = (column["stream_id"] == stream_id) & (column["epoch"] == epoch)
            is_named |= is_here & (before < np.searchsorted(seqs, last, "right"))
        return table.filter(pa.array(is_named))


def _range_of(segment: SegmentInfo, epoch: int) -> tuple[int, int]:
    """Between which numbers frames of an epoch are in a segment; epochs never go back."""
    if not segment.first_epoch <= epoch <= segment.last_epoch:
        return 0, -1
    first = segment.first_seq if epoch == segment.first_epoch else 0
    last = segment.last_seq if epoch == segment.last_epoch else segment.max_seq
    return first, last


def _between(seqs: list[int], first: int, last: int) -> list[int]:
    return seqs[bisect_left(seqs, first) : bisect_right(seqs, last)]

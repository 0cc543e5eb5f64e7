"""One stream of a replay: its producer, and what consumers are told of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing
from tensor_pool.errors import MalformedMessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.contents import Contents
    from tensor_pool.pipeline.record.rows import Row
    from tensor_pool.pool.pool import Pool

__all__ = ["RepublishedStream"]

_LOG: Final = logging.getLogger(__name__)
_CLOCK: Final = "clock."
"""Keys that begin so tell of the clock of time stamps, and are the library's."""
_RECORDED: Final = "recorded."


class RepublishedStream(Closing):
    """Publishes the frames of one recorded stream.

    Args:
        pool: Where to.
        stream: What it is called there.
        contents: What its frames look like.
        keep_timestamps: Publish the recorded time stamps.
        slots: How many frames its ring holds.

    Raises:
        AttachRefusedError: Somebody else publishes that stream, or there is no room.
    """

    def __init__(
        self, pool: Pool, stream: str | int, contents: Contents, *, keep_timestamps: bool, slots: int | None
    ) -> None:
        self._keep_timestamps = keep_timestamps
        self._refused: set[str] = set()
        layout = contents.layout
        size: dict[str, Any] = {"max_bytes": contents.max_bytes}
        if layout is not None:
            size = {"dtype": layout.dtype, "shape": layout.shape}
        self.producer: Final = pool.producer(
            stream,
            **size,
            order="F" if contents.orders == {"F"} else "C",
            clock="realtime" if contents.clock_domain == "realtime_synced" else "monotonic",
            slots=slots,
        )
        self._told: Mapping[str, Any] | None = None
        self.tell(contents.metadata)

    @property
    def consumers(self) -> int:
        """How many read it."""
        return self.producer.stats.consumers

    def publish(self, row: Row, array: NDArray[Any], metadata: Mapping[str, Any]) -> None:
        """Publishes a frame.

        Raises:
            TensorLayoutError: No slot can carry such a tensor.
            FrameTooLargeError: It is larger than all that were there in the beginning.
            LeaseLostError: The stream is lost, and did not come back in time.
        """
        # A frame whose metadata was not heard when it was recorded says nothing new.
        if metadata is not self._told and (metadata or not row.meta_version):
            self.tell(metadata)
        stamp = row.timestamp_ns if self._keep_timestamps else None
        order: Any = row.order
        with self.producer.claim(
            row.shape, row.dtype, order=order, timestamp_ns=stamp, trace_id=row.trace_id
        ) as slot:
            slot.array[...] = array

    def tell(self, metadata: Mapping[str, Any]) -> None:
        """Makes the stream's metadata that of the recording; what can't be said is logged."""
        self._told = metadata
        wanted = dict(self._renamed(metadata))
        there = self.producer.metadata
        for key in there:
            if key not in wanted and not key.startswith(_CLOCK):
                del there[key]
        try:
            there.update(wanted)
        except MalformedMessageError:
            self._tell_one_by_one(wanted)

    def _tell_one_by_one(self, wanted: Mapping[str, Any]) -> None:
        """Other producers may say what ours would not."""
        for key, value in wanted.items():
            try:
                self.producer.metadata[key] = value
            except MalformedMessageError as e:
                if key not in self._refused:
                    self._refused.add(key)
                    _LOG.warning("metadata %r of %s is left out: %s", key, self.producer.name, e.message)

    def _renamed(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """The clock is told by the producer; that of recorded stamps only with those stamps."""
        renamed = {}
        for key, value in metadata.items():
            if not key.startswith(_CLOCK):
                renamed[key] = value
            elif self._keep_timestamps:
                renamed[f"{_RECORDED}{key}"] = value
        return renamed

    def close(self) -> None:
        """Gives the stream back. May be called again."""
        self.producer.close()

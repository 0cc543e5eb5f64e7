"""Which sequence numbers of a stream nobody wrote, as far as who reads it can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.errors import ClosedError

if TYPE_CHECKING:
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.frame import Frame

__all__ = ["AbsentNumbers"]


class AbsentNumbers:
    """Tells numbers that never were in the ring from frames that a consumer was too slow for.

    A rate limiter, a bridge with a rate and claims that were given up leave numbers out. A consumer counts
    these as gaps, just as those that the producer has overwritten.

    Args:
        consumer: Who reads, and never skips by itself (``max_outstanding_seq_gap=0``).

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool, pool.producer("a", dtype="uint8", shape=(4,)) as out:
        ...     inp = pool.consumer("a", max_outstanding_seq_gap=0)
        ...     absent = AbsentNumbers(inp)
        ...     out.claim((4,), "uint8").abort()
        ...     _ = out.publish(np.zeros(4, "uint8"))
        ...     absent.before(inp.poll(timeout=5.0))
        1
    """

    def __init__(self, consumer: Consumer) -> None:
        self._session = consumer.session
        self._gaps = consumer.session.drops_gap

    def before(self, frame: Frame) -> int:
        """How many numbers nobody wrote between the frame before and this one, which was just taken.

        Call it for every frame.
        """
        try:
            gaps = self._session.drops_gap
            new, self._gaps = gaps - self._gaps, gaps
            return 0 if new <= 0 or self._was_overtaken(frame.seq, new) else new
        except ClosedError:
            return 0  # the ring was replaced: the next frame begins anew

    def _was_overtaken(self, seq: int, gaps: int) -> bool:
        """Whether the consumer left numbers out to get away from the producer.

        Then the slot of the frame before was about to be used again, or is; and it went on in the middle of
        the ring. Who has just taken the newest frame was not behind.
        """
        reader = self._session.reader
        newest = None if reader is None else reader.newest()
        if reader is None or newest is None:
            return False
        nslots = reader.address.nslots
        before = seq - gaps - 1
        return newest - before >= nslots - 1 and newest - seq >= nslots // 2

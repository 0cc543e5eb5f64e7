"""What a consumer counted in rings that it does not read any more, and where it left the last one."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensor_pool import _native

__all__ = ["FormerRings"]


class FormerRings:
    """Sums over rings that were let go of; what still is in use is not among them."""

    def __init__(self) -> None:
        self._gaps = 0
        self._late = 0
        self._drops: collections.Counter[str] = collections.Counter()
        self._position: tuple[int, int] | None = None

    @property
    def any_read(self) -> bool:
        """Whether there was one that was read from: what comes next is for us from its first frame on."""
        return self._position is not None

    def next_seq(self, epoch: int) -> int | None:
        """Where to go on in this epoch; None when the last ring was of another one."""
        return self._position[1] if self._position is not None and self._position[0] == epoch else None

    def gaps_with(self, ring: _native.RingReader | None) -> int:
        """Frames that were never found, also in the ring that is read now."""
        return self._gaps + (0 if ring is None else ring.gaps)

    def late_with(self, ring: _native.RingReader | None) -> int:
        """Frames that were overwritten before or while they were read."""
        return self._late + (0 if ring is None else ring.late)

    def drops_with(self, ring: _native.RingReader | None) -> collections.Counter[str]:
        """Frames that were found and dropped, by reason."""
        return self._drops + collections.Counter({} if ring is None else ring.drops)

    def add(self, ring: _native.RingReader, *, is_over: bool = True) -> None:
        """Takes over what was counted in a ring.

        Args:
            ring: The ring, still open.
            is_over: What is unread in it is lost: its epoch or our lease is over [DRV-4.9-9]. False where the
                same frames are read from elsewhere from now on, and where nobody wants them any more.
        """
        self._position = (ring.address.epoch, ring.next_seq)
        if is_over and (unread := ring.unread):
            self._drops["epoch_ended"] += unread
        self._gaps += ring.gaps
        self._late += ring.late
        self._drops.update(ring.drops)

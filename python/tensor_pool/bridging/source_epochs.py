"""Which epoch of its source a receiver follows, by the announces that come."""

from __future__ import annotations

from typing import Final

__all__ = ["SourceEpochs"]

_ENOUGH: Final = 3
"""So many announces of an older epoch show that there is somebody who means it."""


class SourceEpochs:
    """Follows the newest epoch, and an older one only when the newest has fallen silent [BRG-8-3].

    A source whose clock went back begins an older epoch, and anybody can announce one that is far ahead: else
    both would keep the source out for good.

    Args:
        fresh_s: How long after its last announce an epoch counts.

    Example:
        >>> epochs = SourceEpochs(fresh_s=5.0)
        >>> [epochs.follows(epoch, now_s=now_s) for epoch, now_s in [
        ...     (900, 0.0), (2**60, 1.0), (900, 2.0), (900, 3.0), (900, 6.0), (900, 7.0)]]
        [True, True, False, False, True, True]
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._epoch: int | None = None
        self._heard_s = 0.0
        self._older, self._count = -1, 0
        """The older epoch that was announced last, and how often since another one was."""
        self.returns = 0
        """How often an older epoch was followed."""

    def follows(self, epoch: int, *, now_s: float) -> bool:
        """Takes an announce; whether its epoch is the one to follow from now on.

        Args:
            epoch: What is announced.
            now_s: The time.
        """
        is_older = self._epoch is not None and epoch < self._epoch
        if is_older:
            self._count = self._count + 1 if epoch == self._older else 1
            self._older = epoch
            if self._count < _ENOUGH or now_s - self._heard_s < self._fresh_s:
                return False
            self.returns += 1
        self._epoch, self._heard_s = epoch, now_s
        self._count = 0
        return True

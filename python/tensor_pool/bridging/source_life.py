"""Whether somebody still produces the source of a mapping, by what is told of it and what comes."""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["SourceLife", "SourceTrouble"]

SourceTrouble = Literal["absent", "unproduced", "silent"]
"""Nobody ever produced it; its driver announces it without a producer; or nothing is heard of it."""

_NEVER: Final = float("-inf")


class SourceLife:
    """Notices that a source has ended, and is patient with one that is only hard to hear.

    Args:
        fresh_s: How long a stream that is announced without a producer may be about to get one.
        silent_s: How long nothing may be heard at all.
        now_s: The time.

    Example:
        >>> life = SourceLife(fresh_s=3.0, silent_s=9.0, now_s=0.0)
        >>> life.on_announce(produced=True, now_s=1.0)
        >>> life.trouble(9.0), life.trouble(10.0)
        (None, 'silent')
        >>> life.on_announce(produced=False, now_s=11.0)
        >>> life.trouble(11.0)
        'unproduced'
    """

    def __init__(self, *, fresh_s: float, silent_s: float, now_s: float) -> None:
        self._fresh_s = fresh_s
        self._silent_s = silent_s
        self._alive_s = now_s
        self._unproduced_s = _NEVER
        self._was_produced = False

    def on_announce(self, *, produced: bool, now_s: float) -> None:
        """Its driver told of it, and whether it has a producer."""
        if produced:
            self.on_frames(now_s)
        else:
            self._unproduced_s = now_s

    def on_frames(self, now_s: float) -> None:
        """Something came of it, whatever is told."""
        self._alive_s = now_s
        self._was_produced = True

    def trouble(self, now_s: float) -> SourceTrouble | None:
        """What is wrong with it; None while it lives, or may."""
        quiet_s = now_s - self._alive_s
        is_told = self._unproduced_s > self._alive_s and now_s - self._unproduced_s < self._silent_s
        if quiet_s < (self._fresh_s if is_told else self._silent_s):
            return None
        if not self._was_produced:
            return "absent"
        return "unproduced" if is_told else "silent"

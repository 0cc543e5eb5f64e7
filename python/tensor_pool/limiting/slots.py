"""When the next frame may pass."""

from __future__ import annotations

from typing import Final

from tensor_pool.pool.pacing import period_of

__all__ = ["RateSlots"]

_LATE_PART: Final = 10
"""Who uses a slot late by up to this part of a period keeps the beat; who is later begins another one."""


class RateSlots:
    """One slot a period, for one frame each; a slot stays open until it is used.

    Unlike a `RateGate` it goes by the local clock and judges no frames: whoever finds a slot open takes the
    newest frame there is. So the last frame before a pause passes too, when its slot opens. Two slots are
    never used closer together than nine tenths of a period, and a pause is not made up for in a burst.

    Args:
        max_rate_hz: Slots a second; 0 for always open.

    Raises:
        ConfigError: That is no rate.

    Example:
        >>> slots = RateSlots(10)
        >>> slots.use(now_ns=0)
        >>> slots.wait_ns(now_ns=30_000_000), slots.wait_ns(now_ns=100_000_000)
        (70000000, 0)
    """

    def __init__(self, max_rate_hz: float) -> None:
        self.set_rate(max_rate_hz)
        self.restart()

    @property
    def max_rate_hz(self) -> float:
        """Slots a second."""
        return self._max_rate_hz

    @property
    def are_endless(self) -> bool:
        """Whether every frame passes."""
        return self._period_ns == 0

    def set_rate(self, max_rate_hz: float) -> None:
        """Another rate, which counts from the last frame that passed. May be called from any thread.

        Raises:
            ConfigError: That is no rate.
        """
        self._period_ns = period_of(max_rate_hz)
        self._max_rate_hz = max_rate_hz

    def restart(self) -> None:
        """A slot is open now, whatever came before: at the start and after a remap."""
        self._beat_ns: int | None = None

    def wait_ns(self, now_ns: int) -> int:
        """How long until a slot opens; 0 when one is open."""
        if self._beat_ns is None or self.are_endless:
            return 0
        return max(0, self._beat_ns + self._period_ns - now_ns)

    def use(self, now_ns: int) -> None:
        """A frame passed."""
        period_ns = self._period_ns
        opened_ns = now_ns if self._beat_ns is None else self._beat_ns + period_ns
        # From when the slot opened, so that waking up late does not lower the rate.
        is_on_beat = 0 <= now_ns - opened_ns <= period_ns // _LATE_PART
        self._beat_ns = opened_ns if is_on_beat else now_ns

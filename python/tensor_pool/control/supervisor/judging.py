"""Who is slow, and what is done about it: hysteresis without a clock."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.control.supervisor.config import SupervisorSection

__all__ = ["Condition", "Remedy", "Seen", "Standing", "condition_of", "judge"]


class Condition(enum.StrEnum):
    """How a consumer is doing."""

    UNKNOWN = "unknown"
    """It has not said enough, or its producer has not."""
    HEALTHY = "healthy"
    FAIR = "fair"
    """Neither healthy nor slow: it stays where it is."""
    SLOW = "slow"
    STUCK = "stuck"
    """It takes no frames at all. Fewer frames would not help it."""
    STALE = "stale"
    """It says nothing any more."""


class Remedy(enum.StrEnum):
    """What was done about a consumer; each step includes what the ones before it do."""

    NONE = "none"
    RATE_LIMITED = "rate_limited"
    OWN_STREAM = "own_stream"
    FALLBACK = "fallback"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a consumer at one moment."""

    lag: int | None = None
    """Frames that it is behind."""
    nslots: int = 0
    """Slots of the stream's ring."""
    drops_per_s: float | None = None
    """All that it says it has lost."""
    uncounted_gaps_per_s: float = 0.0
    """Those of them that it never found though it was hardly behind: perhaps nobody wrote them."""
    is_limited: bool = False
    """Whether it reads at a limited rate: then it is behind between two frames, and that says nothing."""
    is_stale: bool = False
    is_still: bool = False
    """Whether it has taken nothing for a whole window, though there was something."""

    @property
    def own_drops_per_s(self) -> float | None:
        """What it loses because it is slow."""
        return None if self.drops_per_s is None else max(0.0, self.drops_per_s - self.uncounted_gaps_per_s)

    @property
    def lag_share(self) -> float | None:
        """How much of the ring it is behind."""
        return None if self.lag is None or not self.nslots else self.lag / self.nslots


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a consumer is, and since when it is as it is."""

    remedy: Remedy = Remedy.NONE
    condition: Condition = Condition.UNKNOWN
    since_ns: int = 0
    """When the condition began, or the last move was made."""
    slow_since_ns: int = 0
    """When it began to be slow: calm phases that are shorter than `slow_for_ms` don't count. Who skips many
    frames at a time is slow again and again."""
    last_slow_ns: int | None = None
    patience: int = 1
    """How many times as long as usual it has to be healthy before it is moved back."""
    has_come_back: bool = False
    """Whether the last move was one back: who is slow again after that is trusted less."""


def condition_of(seen: Seen, section: SupervisorSection) -> Condition:
    """How a consumer is doing, by the thresholds of the configuration.

    Example:
        >>> from tensor_pool.control.supervisor.config import SupervisorSection
        >>> condition_of(Seen(lag=600, nslots=1024), SupervisorSection()).value
        'slow'
    """
    if seen.is_stale:
        return Condition.STALE
    lag, drops = None if seen.is_limited else seen.lag_share, seen.own_drops_per_s
    if lag is None and drops is None:
        return Condition.UNKNOWN
    if seen.is_still:
        return Condition.STUCK
    if (lag or 0.0) >= section.slow_lag or (drops or 0.0) >= section.slow_drops_per_s:
        return Condition.SLOW
    if (lag or 0.0) <= section.healthy_lag and (drops or 0.0) <= section.healthy_drops_per_s:
        return Condition.HEALTHY
    return Condition.FAIR


def judge(
    standing: Standing,
    condition: Condition,
    ladder: Sequence[Remedy],
    section: SupervisorSection,
    now_ns: int,
) -> Standing:
    """Where a consumer is from now on; it was moved if the remedy differs.

    Args:
        standing: Where it was.
        condition: How it is doing now.
        ladder: What can be done for this consumer, beginning with nothing.
        section: How long is long enough.
        now_ns: The time.

    Example:
        >>> from tensor_pool.control.supervisor.config import SupervisorSection
        >>> section, ladder = SupervisorSection(slow_for_ms=6_000), (Remedy.NONE, Remedy.RATE_LIMITED)
        >>> slow = judge(Standing(), Condition.SLOW, ladder, section, now_ns=1)
        >>> judge(slow, Condition.SLOW, ladder, section, now_ns=6_000_000_001).remedy.value
        'rate_limited'
    """
    if condition is not standing.condition:
        standing = msgspec.structs.replace(standing, condition=condition, since_ns=now_ns)
    lasted_ns = now_ns - standing.since_ns
    if condition is Condition.SLOW:
        standing = _slow(standing, section, now_ns)
        if now_ns - standing.slow_since_ns >= section.slow_for_ns:
            return _moved_on(standing, ladder, section, now_ns)
    if condition is Condition.HEALTHY and lasted_ns >= standing.patience * section.healthy_for_ns:
        return _moved_back(standing, ladder, now_ns)
    return standing


def _slow(standing: Standing, section: SupervisorSection, now_ns: int) -> Standing:
    last_ns = standing.last_slow_ns
    is_calm_over = last_ns is None or now_ns - last_ns > section.slow_for_ns
    since_ns = now_ns if is_calm_over else standing.slow_since_ns
    return msgspec.structs.replace(standing, slow_since_ns=since_ns, last_slow_ns=now_ns)


def _moved_on(
    standing: Standing, ladder: Sequence[Remedy], section: SupervisorSection, now_ns: int
) -> Standing:
    further = [remedy for remedy in ladder if _step(remedy) > _step(standing.remedy)]
    if not further:
        return standing
    patience = standing.patience
    if standing.has_come_back:
        patience = min(2 * patience, section.longest_patience)
    return msgspec.structs.replace(
        standing,
        remedy=further[0],
        since_ns=now_ns,
        slow_since_ns=now_ns,
        patience=patience,
        has_come_back=False,
    )


def _moved_back(standing: Standing, ladder: Sequence[Remedy], now_ns: int) -> Standing:
    nearer = [remedy for remedy in ladder if _step(remedy) < _step(standing.remedy)]
    if not nearer:
        # Well for long without any remedy: what was is forgiven.
        return msgspec.structs.replace(standing, patience=1, has_come_back=False)
    return msgspec.structs.replace(standing, remedy=nearer[-1], since_ns=now_ns, has_come_back=True)


def _step(remedy: Remedy) -> int:
    return list(Remedy).index(remedy)

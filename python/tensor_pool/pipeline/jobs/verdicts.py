"""Whether numbers are good enough: limits that can be named, and what exceeds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Finding", "Limit", "QualityLimits", "Verdict", "judge", "worst"]

Verdict = Literal["ok", "warn", "bad"]
_ORDER: Final[tuple[Verdict, ...]] = ("ok", "warn", "bad")


class Limit(msgspec.Struct, frozen=True):
    """What a number may be at most before it is a warning, and before it is bad; None for any number."""

    warn: float | None = None
    bad: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is larger than it may be.

    Example:
        >>> str(Finding(measure="missing_share", value=0.02, limit=0.01, verdict="bad"))
        'missing_share is 0.02, above 0.01 (bad)'
    """

    measure: str
    value: float
    limit: float
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.measure} is {self.value:.4g}, above {self.limit:g} ({self.verdict})"


class QualityLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the job *quality* calls good.

    Example:
        >>> QualityLimits(restarts=Limit()).missing_share.bad
        0.01
    """

    missing_share: Limit = Limit(0.0, 0.01)
    """Missing frames of all frames."""
    damaged_share: Limit = Limit(None, 0.0)
    """Frames whose bytes can't be read or are not those that were recorded; known when bytes are read."""
    jitter_share: Limit = Limit(0.25, 1.0)
    """p99 of the jitter, in median periods."""
    late_share: Limit = Limit(0.01, 0.1)
    """Frames more than half a period late, of all."""
    frozen_share: Limit = Limit(0.1, None)
    """Frames with the same bytes as the one before, of all."""
    duplicates: Limit = Limit(0.0, None)
    backwards_stamps: Limit = Limit(0.0, None)
    """Time stamps that are before that of the frame before."""
    repeated_stamps: Limit = Limit(0.0, None)
    restarts: Limit = Limit(0.0, None)


def judge(values: Mapping[str, float | None], limits: msgspec.Struct) -> tuple[Verdict, list[Finding]]:
    """The verdict on some numbers, and which of them led to it; numbers that are not known lead to none.

    Args:
        values: By the names of the limits.
        limits: A struct of `Limit`.

    Example:
        >>> verdict, findings = judge({"missing_share": 0.005, "restarts": None}, QualityLimits())
        >>> verdict, [finding.measure for finding in findings]
        ('warn', ['missing_share'])
    """
    findings = []
    for measure in limits.__struct_fields__:
        value, limit = values.get(measure), getattr(limits, measure)
        if value is None:
            continue
        levels: tuple[tuple[Verdict, float | None], ...] = (("bad", limit.bad), ("warn", limit.warn))
        for verdict, most in levels:
            if most is not None and value > most:
                findings.append(Finding(measure=measure, value=value, limit=most, verdict=verdict))
                break
    return worst(finding.verdict for finding in findings), findings


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts.

    Example:
        >>> worst(["ok", "warn"]), worst([])
        ('warn', 'ok')
    """
    return max(verdicts, key=_ORDER.index, default="ok")

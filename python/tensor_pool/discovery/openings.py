"""How many endpoints strangers may make a provider open."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

__all__ = ["OpeningBudget"]

_NS_PER_S: Final = 1_000_000_000
_ASKER_BURST, _ASKER_PER_S = 8, 2
_TOTAL_BURST, _TOTAL_PER_S = 32, 16
"""Opening one takes the media driver and our thread milliseconds: so many cost others a few percent."""
_MAX_ASKERS: Final = 1_024


class _Bucket(msgspec.Struct):
    tokens: float
    filled_ns: int

    def refill(self, now_ns: int, *, burst: int, per_s: int) -> None:
        self.tokens = min(burst, self.tokens + (now_ns - self.filled_ns) * per_s / _NS_PER_S)
        self.filled_ns = now_ns


class OpeningBudget:
    """A few endpoints at once and then some each second: for each asker, and for all of them together.

    An asker is a publication that requests come over. Who names one new endpoint after the other uses up its
    own share, and others are answered as before. Those forgotten here because there are too many begin anew,
    within what all may have together.

    Example:
        >>> budget = OpeningBudget()
        >>> [budget.take(asker=1, now_ns=0) for _ in range(9)].count(True)
        8
        >>> budget.take(asker=2, now_ns=0), budget.take(asker=1, now_ns=1_000_000_000)
        (True, True)
    """

    def __init__(self) -> None:
        self._total = _Bucket(_TOTAL_BURST, 0)
        self._askers: OrderedDict[int, _Bucket] = OrderedDict()

    def take(self, *, asker: int, now_ns: int) -> bool:
        """Whether one more may be opened now for somebody; counts it if so."""
        share = self._askers.pop(asker, None) or _Bucket(_ASKER_BURST, now_ns)
        self._askers[asker] = share
        if len(self._askers) > _MAX_ASKERS:
            self._askers.popitem(last=False)
        share.refill(now_ns, burst=_ASKER_BURST, per_s=_ASKER_PER_S)
        self._total.refill(now_ns, burst=_TOTAL_BURST, per_s=_TOTAL_PER_S)
        if share.tokens < 1 or self._total.tokens < 1:
            return False
        share.tokens -= 1
        self._total.tokens -= 1
        return True

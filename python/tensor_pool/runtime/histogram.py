"""A latency histogram of fixed size with a known error.

Values fall into buckets whose width doubles with each power of two, 128 buckets to the power: from 256 ns on
a bucket is at most 1/128 of its lower bound wide, below that each nanosecond has its own. A percentile is
reported as the upper end of its bucket, so it is **never below the true value and less than 0.8 % above it**.
Count, minimum, maximum and mean are exact.
"""

from __future__ import annotations

import math
from array import array
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Histogram", "HistogramSummary"]

_SUB_BITS: Final = 7
_SUB_BUCKETS: Final = 1 << _SUB_BITS
_LINEAR_BITS: Final = _SUB_BITS + 1  # values of this many bits have a bucket each
_MAX_BITS: Final = 48
_BUCKETS: Final = (_MAX_BITS - _LINEAR_BITS + 2) << _SUB_BITS


class HistogramSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What people look at first; all values in nanoseconds, all zero when nothing was recorded."""

    count: int
    min_ns: int
    mean_ns: float
    p50_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int


class Histogram:
    """Counts durations; 42 KiB each, whatever it is fed.

    Durations above `LARGEST_NS` (78 hours) count as `LARGEST_NS`, negative ones (clocks of two hosts) as 0.

    Example:
        >>> latency = Histogram()
        >>> for ns in range(1, 1001):
        ...     latency.record(ns * 1_000)
        >>> latency.count, latency.percentile(50), latency.max_ns
        (1000, 501759, 1000000)
    """

    LARGEST_NS: Final = (1 << _MAX_BITS) - 1
    RELATIVE_ERROR: Final = 1 / _SUB_BUCKETS

    __slots__ = ("_counts", "_max_ns", "_min_ns", "_sum_ns", "count")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._counts = array("Q", bytes(8 * _BUCKETS))
        self._sum_ns = 0
        self._min_ns = self.LARGEST_NS
        self._max_ns = 0
        self.count = 0

    def record(self, ns: int) -> None:
        """Count one duration."""
        if not 0 <= ns <= self.LARGEST_NS:
            ns = 0 if ns < 0 else self.LARGEST_NS
        # The bucket is worked out in place: this runs per frame.
        shift = ns.bit_length() - _LINEAR_BITS
        self._counts[ns if shift <= 0 else (shift << _SUB_BITS) + (ns >> shift)] += 1
        self.count += 1
        self._sum_ns += ns
        if ns < self._min_ns:  # noqa: PLR1730 - min() and max() would cost as much as all the rest
            self._min_ns = ns
        if ns > self._max_ns:  # noqa: PLR1730
            self._max_ns = ns

    def merge(self, other: Histogram) -> None:
        """Add everything that `other` has counted."""
        for bucket, count in enumerate(other._counts):
            if count:
                self._counts[bucket] += count
        self.count += other.count
        self._sum_ns += other._sum_ns
        self._min_ns = min(self._min_ns, other._min_ns)
        self._max_ns = max(self._max_ns, other._max_ns)

    @property
    def min_ns(self) -> int:
        """The smallest value, exactly; 0 when empty."""
        return self._min_ns if self.count else 0

    @property
    def max_ns(self) -> int:
        """The largest value, exactly; 0 when empty."""
        return self._max_ns

    @property
    def mean_ns(self) -> float:
        """The mean, exactly; 0 when empty."""
        return self._sum_ns / self.count if self.count else 0.0

    @property
    def deviation_ns(self) -> float:
        """The standard deviation, with each value taken as the middle of its bucket."""
        if not self.count:
            return 0.0
        mean = self.mean_ns
        squares = sum(
            count * ((_lowest(bucket) + _highest(bucket)) / 2 - mean) ** 2 for bucket, count in self._filled()
        )
        return math.sqrt(squares / self.count)

    def percentile(self, percent: float) -> int:
        """The smallest reported value with at least `percent` of all values at or below it.

        Example:
            >>> Histogram().percentile(99)
            0
        """
        return self.percentiles([percent])[0]

    def percentiles(self, percents: Iterable[float]) -> list[int]:
        """Several percentiles in one pass; `percents` in any order."""
        wanted = list(percents)
        ranks = [self._rank(percent) for percent in wanted]
        values = dict.fromkeys(ranks, 0)
        pending = sorted(values, reverse=True)
        seen = 0
        for bucket, count in self._filled():
            seen += count
            while pending and seen >= pending[-1]:
                values[pending.pop()] = min(_highest(bucket), self._max_ns)
        return [values[rank] for rank in ranks]

    def summary(self) -> HistogramSummary:
        """Count, extremes, mean and the usual percentiles."""
        p50, p99, p999 = self.percentiles([50, 99, 99.9])
        return HistogramSummary(
            count=self.count,
            min_ns=self.min_ns,
            mean_ns=self.mean_ns,
            p50_ns=p50,
            p99_ns=p99,
            p999_ns=p999,
            max_ns=self.max_ns,
        )

    def percentile_distribution(self, *, unit_ns: float = 1_000.0, ticks_per_half: int = 5) -> str:
        """The percentile distribution as text, in the form that HdrHistogram's plotters read.

        Args:
            unit_ns: What values are divided by; the default prints microseconds.
            ticks_per_half: Lines for each halving of the distance to 100 %.

        Example:
            >>> histogram = Histogram()
            >>> histogram.record(2_000)
            >>> print(histogram.percentile_distribution().splitlines()[2])
                   2.000 0.000000000000          1           1.00
        """
        lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
        level = 0.0
        seen = 0
        for bucket, count in self._filled():
            seen += count
            value = min(_highest(bucket), self._max_ns) / unit_ns
            while level < 1 and seen >= level * self.count:
                lines.append(f"{value:12.3f} {level:14.12f} {seen:10d} {1 / (1 - level):14.2f}")
                if seen == self.count:
                    level = 1.0
                else:
                    # Halving number n (0 for the first half) is cut into ticks of 2**-(n+1) / ticks_per_half.
                    halvings = math.floor(math.log2(1 / (1 - level)))
                    level += 1 / (ticks_per_half * 2 ** (halvings + 1))
        if self.count:
            lines.append(f"{self._max_ns / unit_ns:12.3f} {1:14.12f} {self.count:10d}")
        mean, deviation = self.mean_ns / unit_ns, self.deviation_ns / unit_ns
        largest = self._max_ns / unit_ns
        lines += [
            f"#[Mean    = {mean:12.3f}, StdDeviation   = {deviation:12.3f}]",
            f"#[Max     = {largest:12.3f}, Total count    = {self.count:12d}]",
            f"#[Buckets = {_BUCKETS >> _SUB_BITS:12d}, SubBuckets     = {_SUB_BUCKETS:12d}]",
        ]
        return "\n".join(lines) + "\n"

    def _rank(self, percent: float) -> int:
        """How many values lie at or below a percentile; the smallest value is percentile 0."""
        if not 0 <= percent <= 100:
            raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
        # As the decimal that was written: in floating point 99.9 % of 1000 values would be value 1000.
        return max(1, math.ceil(Fraction(str(percent)) * self.count / 100))

    def _filled(self) -> Iterator[tuple[int, int]]:
        return ((bucket, count) for bucket, count in enumerate(self._counts) if count)


def _shift(bucket: int) -> int:
    return max(0, (bucket >> _SUB_BITS) - 1)


def _lowest(bucket: int) -> int:
    shift = _shift(bucket)
    return (bucket - (shift << _SUB_BITS)) << shift


def _highest(bucket: int) -> int:
    return _lowest(bucket) + (1 << _shift(bucket)) - 1

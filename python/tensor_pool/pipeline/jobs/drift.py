"""Whether what comes later is still like what came first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["DriftLimits", "bands", "bin_edges", "change_point", "count_bins", "mean_shift", "stability_index"]

_BINS: Final = 16
_SMALLEST_SHARE: Final = 1e-4
"""An empty bin counts as this much; otherwise one value in a new place would be infinitely much drift."""


class DriftLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a window may differ from the first one; more is drift."""

    mean_shift: float = 0.5
    """Difference of means, in standard deviations of the first window's values."""
    psi: float = 0.25
    """Population stability index; above 0.1 is commonly called some drift, above 0.25 much."""
    nan_share: float = 0.01
    """More values that are no numbers, of all."""
    line_share: float = 0.5
    """More frames in which a row or a column of the picture is dead, of all."""


def bin_edges(values: ArrayLike) -> list[float]:
    """Edges between bins that hold about equally many of these values.

    A value that is common enough to be an edge twice gets a bin of its own, so that leaving it shows.

    Example:
        >>> len(bin_edges(np.arange(1000)))
        15
        >>> len(bin_edges([7.0, 7.0]))  # below 7, exactly 7, above 7
        2
        >>> bin_edges([])
        []
    """
    found = np.asarray(values, np.float64)
    found = found[np.isfinite(found)]
    if not found.size:
        return []
    quantiles = np.quantile(found, np.linspace(0, 1, _BINS + 1)[1:-1], method="inverted_cdf")
    edges, times = np.unique(quantiles, return_counts=True)
    common = np.nextafter(edges[times > 1], -np.inf)
    return [float(edge) for edge in np.unique(np.concatenate([edges, common]))]


def count_bins(values: NDArray[np.float64], edges: Sequence[float]) -> list[int]:
    """How many values are in each bin; an edge belongs to the bin below it.

    Example:
        >>> count_bins(np.array([1.0, 2.0, 3.0, 9.0]), [2.0, 5.0])
        [2, 1, 1]
    """
    places = np.searchsorted(np.asarray(edges), values, side="left")
    return [int(number) for number in np.bincount(places, minlength=len(edges) + 1)]


def stability_index(reference: Sequence[int], other: Sequence[int]) -> float | None:
    """The population stability index of two histograms: 0 when they are alike, without upper limit.

    Example:
        >>> stability_index([50, 50], [50, 50])
        0.0
        >>> round(stability_index([50, 50], [90, 10]), 3)
        0.879
    """
    if not sum(reference) or not sum(other):
        return None
    before, after = (
        np.maximum(np.asarray(counts, np.float64) / sum(counts), _SMALLEST_SHARE)
        for counts in (reference, other)
    )
    return float(((after - before) * np.log(after / before)).sum())


def mean_shift(reference: tuple[float | None, float | None], mean: float | None) -> float | None:
    """How far a mean is from that of the reference, in its standard deviations; None where it has none.

    Example:
        >>> mean_shift((100.0, 10.0), 125.0)
        2.5
    """
    before, std = reference
    return None if before is None or mean is None or not std else (mean - before) / std


def change_point(values: Sequence[float | None]) -> int | None:
    """The place of the first value after the largest change of the mean; None when nothing changes.

    Example:
        >>> change_point([5, 5, 6, 5, 20, 21, 20])
        4
    """
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    numbers = np.array([value for _, value in known], np.float64)
    sums = np.abs(np.cumsum(numbers - numbers.mean()))[:-1]
    # Rounding alone is no change.
    if not sums.max() > 1e-9 * max(1.0, float(np.abs(numbers).sum())):
        return None
    return known[int(sums.argmax()) + 1][0]


def bands(lines: Iterable[Any]) -> list[tuple[int, int]]:
    """Numbers as runs, first and last included.

    Example:
        >>> bands([7, 3, 4, 5])
        [(3, 5), (7, 7)]
    """
    runs: list[tuple[int, int]] = []
    for line in sorted(set(lines)):
        if runs and line == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], line)
        else:
            runs.append((line, line))
    return runs

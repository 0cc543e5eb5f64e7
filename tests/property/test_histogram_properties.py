"""The error bound that the histogram promises, against exact percentiles."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.runtime import Histogram

durations = st.one_of(st.integers(0, 2_000), st.integers(0, Histogram.LARGEST_NS))
percents = st.one_of(st.sampled_from([0, 50, 90, 99, 99.9, 99.99, 100]), st.floats(0, 100))


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(st.lists(durations, min_size=1, max_size=300), percents)
def test_a_percentile_is_never_below_the_true_one_and_within_the_bound_above(
    values: list[int], percent: float
) -> None:
    rank = max(1, math.ceil(Fraction(str(percent)) * len(values) / 100))
    true = sorted(values)[rank - 1]
    reported = filled(values).percentile(percent)

    assert true <= reported <= true * (1 + Histogram.RELATIVE_ERROR)
    assert true >= 256 or reported == true or reported == max(values)


@given(st.lists(durations, max_size=100), st.lists(durations, max_size=100))
def test_merging_equals_recording_everything_in_one(first: list[int], second: list[int]) -> None:
    merged = filled(first)
    merged.merge(filled(second))
    together = filled(first + second)

    assert merged.summary() == together.summary()
    assert merged._counts == together._counts


@given(st.lists(durations, min_size=1, max_size=100), st.lists(percents, min_size=1, max_size=8))
def test_several_percentiles_at_once_equal_one_at_a_time(values: list[int], wanted: list[float]) -> None:
    histogram = filled(values)

    assert histogram.percentiles(wanted) == [histogram.percentile(percent) for percent in wanted]


@given(st.lists(durations, max_size=100))
def test_the_text_form_never_fails_and_counts_everything(values: list[int]) -> None:
    text = filled(values).percentile_distribution()

    assert f"Total count    = {len(values):12d}]" in text
    rows = [line.split() for line in text.splitlines()[2:-3]]
    assert [int(row[2]) for row in rows] == sorted(int(row[2]) for row in rows)
    assert not rows or int(rows[-1][2]) == len(values)

"""Latency histogram: exact where it says so, bounded everywhere."""

import re

import pytest

from tensor_pool.runtime import Histogram


def filled(values: "list[int] | range") -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def test_an_empty_histogram_is_all_zero() -> None:
    summary = Histogram().summary()

    assert (summary.count, summary.min_ns, summary.mean_ns, summary.max_ns) == (0, 0, 0.0, 0)
    assert (summary.p50_ns, summary.p99_ns, summary.p999_ns) == (0, 0, 0)
    assert Histogram().deviation_ns == 0


def test_small_values_are_exact() -> None:
    histogram = filled(range(256))

    assert histogram.percentiles([0, 50, 100]) == [0, 127, 255]


def test_count_extremes_and_mean_are_exact_whatever_the_size() -> None:
    values = [3, 1_234_567, 987_654_321_012, 5]
    histogram = filled(values)

    assert (histogram.count, histogram.min_ns, histogram.max_ns) == (4, 3, 987_654_321_012)
    assert histogram.mean_ns == sum(values) / 4


def test_usual_percentiles_of_a_thousand_values() -> None:
    summary = filled(range(1_000, 1_001_000, 1_000)).summary()

    for reported, true in [(summary.p50_ns, 500_000), (summary.p99_ns, 990_000), (summary.p999_ns, 999_000)]:
        assert true <= reported < true * (1 + Histogram.RELATIVE_ERROR)
    assert summary.max_ns == 1_000_000


def test_a_decimal_percentile_is_not_rounded_up_to_the_next_value() -> None:
    # 99.9 / 100 * 1000 is a little more than 999 in floating point.
    assert filled([1] * 999 + [200]).percentile(99.9) == 1


def test_a_percentile_never_exceeds_the_largest_value() -> None:
    assert filled([1_000_001]).percentile(99) == 1_000_001


@pytest.mark.parametrize("percent", [-0.1, 100.1, float("nan"), float("inf")])
def test_percentiles_lie_between_0_and_100(percent: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        Histogram().percentile(percent)


def test_values_outside_the_range_count_at_its_ends() -> None:
    histogram = filled([-5, Histogram.LARGEST_NS + 1, 2**70])

    assert (histogram.count, histogram.min_ns, histogram.max_ns) == (3, 0, Histogram.LARGEST_NS)
    assert histogram.percentile(100) == Histogram.LARGEST_NS


def test_memory_does_not_grow() -> None:
    histogram = Histogram()
    size = histogram._counts.itemsize * len(histogram._counts)
    for bits in range(80):
        histogram.record(2**bits)

    assert histogram._counts.itemsize * len(histogram._counts) == size == 42 * 1024


def test_reset_forgets_everything() -> None:
    histogram = filled([1, 2, 3])
    histogram.reset()

    assert histogram.summary() == Histogram().summary()


def test_deviation_of_two_values_around_their_mean() -> None:
    assert filled([10, 30]).deviation_ns == 10


class TestPercentileDistribution:
    def test_matches_the_published_form_line_by_line(self) -> None:
        text = filled([25_000, 25_000, 50_000, 100]).percentile_distribution()
        lines = text.splitlines()

        assert lines[0] == "       Value     Percentile TotalCount 1/(1-Percentile)"
        assert lines[1] == ""
        assert lines[2] == "       0.100 0.000000000000          1           1.00"
        row = re.compile(r" {0,11}\d+\.\d{3} [01]\.\d{12} {1,10}\d+( {1,14}\d+\.\d{2})?")
        rows = [line for line in lines[2:] if not line.startswith("#")]
        assert all(row.fullmatch(line) for line in rows)
        assert rows[-1] == "      50.000 1.000000000000          4"
        assert [line[:11] for line in lines[-3:]] == ["#[Mean    =", "#[Max     =", "#[Buckets ="]
        assert lines[-2] == "#[Max     =       50.000, Total count    =            4]"

    def test_levels_are_ticks_of_a_halving_distance(self) -> None:
        text = filled(range(1, 200)).percentile_distribution(unit_ns=1)
        levels = [float(line.split()[1]) for line in text.splitlines()[2:-3]]

        assert levels[:9] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65])
        assert levels == sorted(levels)
        assert levels[-1] == 1

    def test_values_and_counts_agree_with_the_histogram(self) -> None:
        histogram = filled(range(1, 200))
        rows = [line.split() for line in histogram.percentile_distribution(unit_ns=1).splitlines()[2:-3]]

        for value, level, count, *_ in rows:
            assert int(count) == round(float(value))  # values 1, 2, 3, ... are their own ranks
            assert int(count) >= float(level) * 199 - 1e-6

    def test_an_empty_histogram_has_a_header_and_a_footer(self) -> None:
        lines = Histogram().percentile_distribution().splitlines()

        assert len(lines) == 5
        assert lines[2].startswith("#[Mean")

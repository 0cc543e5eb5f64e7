"""What jobs compute without Spark: numbers of a tensor, drift, verdicts, windows of a monitor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensor_pool.pipeline.jobs.drift import bin_edges, change_point, count_bins, mean_shift, stability_index
from tensor_pool.pipeline.jobs.frame_statistics import dead_lines, frame_statistics, sample
from tensor_pool.pipeline.jobs.monitor_windows import BatchSums, MonitorLimits, WindowBook
from tensor_pool.pipeline.jobs.verdicts import Limit, QualityLimits, judge

SIZES = st.one_of(st.integers(1, 60), st.sampled_from([65_535, 65_536, 65_537, 200_000]))


class TestFrameStatistics:
    @given(st.sampled_from(["u1", "i1", "u2", "i4", "u8", "f4", "f8", "?"]), SIZES, st.integers(0, 2**32 - 1))
    def test_numbers_are_those_of_float64(self, kind, size, seed):
        random = np.random.default_rng(seed)
        array = (random.normal(100, 30, size)).astype(kind)
        found, exact = frame_statistics(array), array.astype(np.float64)
        assert found.mean == pytest.approx(exact.mean(), rel=1e-12)
        assert found.std == pytest.approx(exact.std(), rel=1e-9, abs=1e-12)
        assert (found.minimum, found.maximum) == (exact.min(), exact.max())
        assert (found.size, found.finite, found.nan_share) == (size, size, 0.0)

    def test_a_small_spread_far_from_zero_is_not_lost(self):
        array = 1e9 + np.random.default_rng(1).normal(0, 1e-3, 300_000)
        assert frame_statistics(array).std == pytest.approx(array.std(), rel=1e-6)

    def test_what_is_no_number_is_counted_and_left_out(self):
        array = np.array([np.nan, np.inf, -np.inf, 2.0, 4.0], "float32")
        found = frame_statistics(array)
        assert (found.mean, found.std, found.finite) == (3.0, 1.0, 2)
        assert (found.nan_share, found.inf_share) == (0.2, 0.4)
        assert frame_statistics(np.full(3, np.nan)).mean is None
        assert frame_statistics(np.zeros((0, 3))) == (0, 0, *[None] * 6)

    def test_order_in_memory_does_not_matter(self):
        array = np.arange(24, dtype="int16").reshape(4, 6)
        assert frame_statistics(array) == frame_statistics(np.asfortranarray(array))

    @given(hnp.array_shapes(min_dims=1, max_dims=4, max_side=40), st.integers(1, 100))
    def test_samples_are_few_and_from_everywhere(self, shape, most):
        array = np.arange(int(np.prod(shape)), dtype=float).reshape(shape)
        found = sample(array, most)
        assert 1 <= len(found) <= most
        assert found[0] == 0

    def test_samples_see_every_column(self):
        array = np.tile(np.arange(64.0), (640, 1))
        assert set(sample(array, 640)) == set(range(64))


class TestDeadLines:
    def test_rows_and_columns(self):
        picture = np.random.default_rng(2).integers(0, 255, (20, 30), "uint8")
        picture[4:6] = 9
        picture[:, 29] = 3
        rows, columns = dead_lines(picture)
        assert (rows, columns) == ([], [29])  # a row through a dead column is not of one value
        picture[4:6] = 3
        assert dead_lines(picture)[0] == [4, 5]

    def test_channels_belong_to_their_place(self):
        picture = np.random.default_rng(2).integers(0, 255, (20, 30, 3), "uint8")
        picture[7] = (1, 2, 3)
        assert dead_lines(picture) == ([7], [])

    @pytest.mark.parametrize("shape", [(), (5,), (2, 2), (0, 9), (3, 4, 5), (2, 3, 4, 5)])
    def test_what_is_no_picture_has_none(self, shape):
        assert dead_lines(np.zeros(shape)) == ([], [])

    def test_a_dark_picture_has_none(self):
        assert dead_lines(np.zeros((9, 9))) == ([], [])


class TestDrift:
    def test_the_index_is_that_of_its_definition(self):
        random = np.random.default_rng(3)
        before, after = random.normal(0, 1, 20_000), random.normal(0.6, 1.2, 20_000)
        edges = bin_edges(before)
        p, q = (
            np.histogram(values, [-np.inf, *edges, np.inf])[0] / len(values) for values in (before, after)
        )
        expected = float(((q - p) * np.log(q / p)).sum())
        found = stability_index(count_bins(before, edges), count_bins(after, edges))
        assert found == pytest.approx(expected, rel=1e-2)
        assert found > 0.25
        assert stability_index(count_bins(before, edges), count_bins(before[::2], edges)) < 0.01

    def test_leaving_a_constant_is_seen_in_both_directions(self):
        edges = bin_edges([7.0] * 100)
        reference = count_bins(np.full(100, 7.0), edges)
        for other in (6.0, 8.0):
            assert stability_index(reference, count_bins(np.full(100, other), edges)) > 5
        assert stability_index(reference, reference) == 0

    def test_nothing_has_no_index(self):
        assert bin_edges([np.nan, np.inf]) == []
        assert stability_index([], []) is None
        assert stability_index([1, 2], [0, 0]) is None

    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200))
    def test_every_value_is_in_one_bin(self, values):
        edges = bin_edges(values)
        assert edges == sorted(set(edges))
        assert sum(count_bins(np.array(values), edges)) == len(values)

    def test_shifts(self):
        assert mean_shift((10.0, 0.0), 11.0) is None
        assert mean_shift((None, None), 11.0) is None
        assert mean_shift((10.0, 2.0), 7.0) == -1.5

    @pytest.mark.parametrize(
        ("values", "place"),
        [([1, 1, 1, 9, 9], 3), ([1, None, 1, 9, 9], 3), ([5], None), ([2.0] * 50, None), ([0.1] * 9, None)],
    )
    def test_changes_are_found(self, values, place):
        assert change_point(values) == place


class TestVerdicts:
    @pytest.mark.parametrize(
        ("share", "verdict"), [(0.0, "ok"), (1e-6, "warn"), (0.01, "warn"), (0.011, "bad"), (None, "ok")]
    )
    def test_more_than_a_limit_leads_to_its_verdict(self, share, verdict):
        found, findings = judge({"missing_share": share}, QualityLimits())
        assert found == verdict
        assert len(findings) == (verdict != "ok")

    def test_the_worst_one_counts_and_limits_can_be_switched_off(self):
        values = {"restarts": 3.0, "damaged_share": 0.1}
        verdict, findings = judge(values, QualityLimits())
        assert (verdict, {finding.measure for finding in findings}) == ("bad", set(values))
        assert judge(values, QualityLimits(restarts=Limit(), damaged_share=Limit()))[0] == "ok"


def sums(start_s, frames, **changes):
    start = start_s * 1_000_000
    known = {"stream": "a", "start_us": start, "frames": frames, "missing": 0, "epoch": 1}
    known |= {"first_ns": start * 1_000, "last_ns": (start_s * 10 + frames - 1) * 10**8}
    known |= {"first_us": start, "last_us": start, "ages": 0, "age_sum_s": 0.0, "age_max_s": None}
    return BatchSums(**known | changes)


class TestMonitorWindows:
    def test_batches_of_one_window_add_up(self):
        book = WindowBook(10, MonitorLimits())
        book.add(0, [sums(0, 4, ages=4, age_sum_s=2.0, age_max_s=0.7)])
        later = sums(0, 6, first_ns=4 * 10**8, last_ns=9 * 10**8, ages=6, age_sum_s=1.0, age_max_s=0.2)
        ((window,), alarms) = book.add(1, [later])
        assert (window.frames, window.rate_hz, window.batch) == (10, pytest.approx(10), 1)
        assert (window.age_mean_s, window.age_max_s, window.is_over) == (pytest.approx(0.3), 0.7, False)
        assert alarms == []

    def test_a_slow_window_is_alarming_only_when_it_is_over(self):
        book = WindowBook(10, MonitorLimits(min_rate_hz=20))
        assert book.add(0, [sums(0, 5)])[1] == []
        changed, alarms = book.add(1, [sums(10, 5)])
        assert [alarm.name for alarm in alarms] == ["rate_low"]
        assert {window.start[-4:]: window.is_over for window in changed} == {":00Z": True, ":10Z": False}
        assert [alarm.start[-4:] for alarm in book.end()[1]] == [":10Z"]
        assert book.end() == ([], [])

    def test_each_alarm_is_raised_once_a_window(self):
        book = WindowBook(10, MonitorLimits(max_age_s=1))
        late = {"ages": 1, "age_sum_s": 2.0, "age_max_s": 2.0, "missing": 2}
        names = [[alarm.name for alarm in book.add(n, [sums(0, 2, **late)])[1]] for n in range(3)]
        assert names == [["missing_frames", "age_high"], [], []]

    def test_late_rows_are_not_dropped_and_memory_is_bounded(self):
        book = WindowBook(1, MonitorLimits())
        for second in range(2_000):
            book.add(second, [sums(second, 2)])
        assert len(book._open["a"]) == 64
        ((window, *_), _) = book.add(2_000, [sums(1_990, 3)])
        assert window.frames == 5
        assert len(book._raised) <= 1_024

    def test_restarts_and_silence(self):
        book = WindowBook(10, MonitorLimits(max_silence_s=30, max_missing=None))
        book.add(0, [sums(0, 2, missing=9)])
        assert book.add(1, [sums(20, 2)])[1] == []
        alarms = book.add(2, [sums(60, 2, epoch=2)])[1]
        assert {(alarm.name, alarm.value) for alarm in alarms} == {("restarted", 2), ("silent", 40.0)}
        assert [alarm.name for alarm in book.silence("a", 31)] == ["silent"]
        assert book.silence("a", 32) == []

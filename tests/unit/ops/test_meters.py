"""Rates, intervals, bandwidth and delays from made-up frames."""

import random
import statistics

import pytest

from tensor_pool.ops.meters import Bandwidth, Delays, Intervals, Step, Steps

MS = 1_000_000


class TestSteps:
    def test_missed_frames_make_a_longer_step(self) -> None:
        steps = Steps()
        found = [steps.next(epoch=1, seq=seq, at_ns=seq * 10) for seq in (5, 6, 9)]
        assert found == [None, Step(1, 10), Step(3, 30)]

    def test_numbers_that_nobody_wrote_make_none(self) -> None:
        steps = Steps()
        steps.next(epoch=1, seq=5, at_ns=0)
        assert steps.next(epoch=1, seq=15, at_ns=30, absent=9) == Step(1, 30)
        assert steps.next(epoch=1, seq=25, at_ns=60, absent=7) == Step(3, 30)

    @pytest.mark.parametrize(("epoch", "seq"), [(2, 6), (1, 5), (1, 4)], ids=["epoch", "again", "back"])
    def test_a_new_beginning_is_no_step(self, epoch: int, seq: int) -> None:
        steps = Steps()
        steps.next(epoch=1, seq=5, at_ns=0)
        assert steps.next(epoch=epoch, seq=seq, at_ns=10) is None
        assert steps.next(epoch=epoch, seq=seq + 1, at_ns=30) == Step(1, 20)

    def test_time_never_runs_backwards(self) -> None:
        steps = Steps()
        steps.next(epoch=1, seq=5, at_ns=100)
        assert steps.next(epoch=1, seq=6, at_ns=40) == Step(1, 0)


class TestIntervals:
    def test_against_the_standard_library(self) -> None:
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        values = [random.Random(seed + n).randrange(9 * MS, 11 * MS) for n in range(500)]
        intervals = Intervals()
        for value in values:
            intervals.add(Step(1, value))
        found = intervals.summary()

        assert found.rate_hz == pytest.approx(500e9 / sum(values), abs=1e-3)
        assert found.jitter_rms_ms == pytest.approx(statistics.pstdev(values) / MS, abs=1e-3)
        assert (found.min_ms, found.max_ms) == (round(min(values) / MS, 3), round(max(values) / MS, 3))
        for name, percent in (("p10_ms", 10), ("p50_ms", 50), ("p90_ms", 90)):
            true = sorted(values)[len(values) * percent // 100 - 1] / MS
            assert true - 1e-3 <= getattr(found, name) <= true * 1.008 + 1e-3

    def test_jitter_far_below_the_histograms_buckets_is_seen(self) -> None:
        intervals = Intervals()
        for value in (10 * MS - 2_000, 10 * MS + 2_000):
            intervals.add(Step(1, value))
        assert intervals.summary().jitter_rms_ms == 0.002

    def test_missed_frames_count_for_the_rate_only(self) -> None:
        intervals = Intervals()
        for step in (None, Step(1, 10 * MS), Step(4, 40 * MS), Step(1, 10 * MS)):
            intervals.add(step)
        found = intervals.summary()
        assert (found.frames, found.missed, found.rate_hz) == (4, 3, 100.0)
        assert (found.max_ms, found.jitter_rms_ms) == (10.0, 0.0)

    def test_one_frame_has_no_rate(self) -> None:
        intervals = Intervals()
        intervals.add(None)
        found = intervals.summary()
        assert (found.frames, found.rate_hz, found.p50_ms, found.jitter_rms_ms) == (1, None, None, None)

    def test_no_frame(self) -> None:
        assert Intervals().summary().frames == 0


class TestBandwidth:
    def test_missed_frames_are_as_large_as_the_others(self) -> None:
        bandwidth = Bandwidth()
        bandwidth.add(1_000, None)
        bandwidth.add(3_000, Step(4, 40 * MS))
        found = bandwidth.summary()
        assert (found.bytes, found.missed, found.bytes_per_s) == (4_000, 3, 200_000.0)
        assert (found.min_frame_bytes, found.mean_frame_bytes, found.max_frame_bytes) == (
            1_000,
            2_000.0,
            3_000,
        )

    def test_empty_frames_and_none_at_all(self) -> None:
        assert Bandwidth().summary().mean_frame_bytes is None
        bandwidth = Bandwidth()
        for step in (None, Step(1, MS)):
            bandwidth.add(0, step)
        found = bandwidth.summary()
        assert (found.rate_hz, found.bytes_per_s, found.min_frame_bytes) == (1000.0, 0.0, 0)


class TestDelays:
    def test_percentiles(self) -> None:
        delays = Delays()
        for us in range(1, 1001):
            delays.add(us * 1_000)
        found = delays.summary()
        assert (found.frames, found.min_us, found.max_us) == (1000, 1.0, 1000.0)
        assert found.p50_us == pytest.approx(500, rel=0.01)
        assert found.p999_us == pytest.approx(999, rel=0.01)

    def test_before_its_time_is_at_once(self) -> None:
        delays = Delays()
        delays.add(-5)
        assert delays.summary().max_us == 0.0

    def test_no_frame(self) -> None:
        assert Delays().summary().p50_us is None

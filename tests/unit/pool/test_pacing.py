"""At most so many frames a second, by the frames' own time stamps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.errors import ConfigError
from tensor_pool.pool.pacing import RateGate

MS = 1_000_000
SECOND = 1_000 * MS


@pytest.mark.req("WIRE-11-6")
def test_stamps_10_ms_apart_at_50_hz_lose_every_other_frame() -> None:
    gate = RateGate(50)

    assert [gate.accept(n * 10 * MS) for n in range(6)] == [True, False] * 3
    assert (gate.passed, gate.refused) == (3, 3)


@pytest.mark.req("WIRE-5-14")
def test_rate_0_lets_all_pass() -> None:
    gate = RateGate(0)

    assert all(gate.accept(n % 3) for n in range(1_000))


@pytest.mark.parametrize("rate_hz", [-1, 1e-300, 1e-7, 1e10, float("nan"), float("inf")])
def test_rates_that_make_no_sense_are_refused(rate_hz: float) -> None:
    with pytest.raises(ConfigError, match="is no rate"):
        RateGate(rate_hz)


@pytest.mark.req("WIRE-5-13")
def test_100_hz_for_5_s_at_10_hz() -> None:
    gate = RateGate(10)

    assert sum(gate.accept(n * 10 * MS) for n in range(500)) == 50


def test_the_rate_is_reached_although_frames_don_t_come_in_its_beat() -> None:
    gate = RateGate(20)

    assert sum(gate.accept(n * SECOND // 30) for n in range(30 * 10)) == 200, "not 150, every other frame"


def test_jitter_does_not_halve_the_rate() -> None:
    gate = RateGate(50)
    stamps = [n * 10 * MS + (MS // 2 if n % 3 else -MS // 2) for n in range(1, 1_001)]

    assert 490 <= sum(map(gate.accept, stamps)) <= 501


def test_the_first_frame_passes_after_a_restart() -> None:
    gate = RateGate(1)
    assert gate.accept(100 * SECOND)
    assert not gate.accept(100 * SECOND + 1)
    gate.restart()

    assert gate.accept(5)
    assert not gate.accept(6)


def test_a_pause_is_not_made_up_for_in_a_burst() -> None:
    gate = RateGate(10)
    gate.accept(0)

    assert [gate.accept(60 * SECOND + n * 10 * MS) for n in range(11)] == [True, *[False] * 9, True]


@pytest.mark.parametrize("jump", [-3600 * SECOND, -SECOND, 3600 * SECOND])
def test_a_clock_that_jumps_stops_nothing_for_longer_than_a_period(jump: int) -> None:
    gate = RateGate(10)
    start = 10_000 * SECOND
    assert sum(gate.accept(start + n * 10 * MS) for n in range(100)) == 10

    after = [gate.accept(start + jump + n * 10 * MS) for n in range(100, 200)]

    assert 9 <= sum(after) <= 11
    assert any(after[:11])


def test_a_frame_slightly_out_of_order_changes_nothing() -> None:
    gate = RateGate(10)

    assert [gate.accept(n * MS) for n in (1_000, 990, 1_050, 1_040, 1_100)] == [
        True,
        False,
        False,
        False,
        True,
    ]


def test_a_repeated_stamp_passes_once() -> None:
    gate = RateGate(10)

    assert [gate.accept(SECOND) for _ in range(5)] == [True, False, False, False, False]
    assert gate.accept(SECOND + 100 * MS)


@pytest.mark.req("WIRE-11-7")
@pytest.mark.parametrize("stamp", [None, 0, 77])
def test_local_time_decides_where_stamps_don_t_move(stamp: int | None) -> None:
    gate = RateGate(10)
    passed = sum(gate.accept(stamp, now_ns=SECOND + n * 10 * MS) for n in range(100))

    assert passed == 10


def test_another_rate_holds_from_the_next_frame_on() -> None:
    gate = RateGate(10)
    gate.accept(0)
    gate.set_rate(0)

    assert gate.accept(1)


@pytest.mark.parametrize("rate", [-1, 10**9 + 1])
def test_no_rate(rate: int) -> None:
    with pytest.raises(ConfigError, match="is no rate"):
        RateGate(rate)


@given(st.integers(1, 1_000), st.lists(st.integers(0, 50 * MS), min_size=1, max_size=200))
def test_never_above_the_rate_and_never_silent(rate: int, steps: list[int]) -> None:
    gate = RateGate(rate)
    now = first = SECOND
    period = SECOND // rate
    last = -period
    passed = 0
    for step in steps:
        now += step
        if gate.accept(now):
            passed += 1
            last = now
        assert now - last < 2 * period, "a frame passes whenever one came"
    assert passed <= (now - first) // period + 2


@given(st.integers(1, 1_000), st.lists(st.integers(0, 2**64 - 1), max_size=100))
def test_any_stamps_are_taken(rate: int, stamps: list[int]) -> None:
    gate = RateGate(rate)
    for stamp in stamps:
        gate.accept(stamp)
    assert gate.passed + gate.refused == len(stamps)

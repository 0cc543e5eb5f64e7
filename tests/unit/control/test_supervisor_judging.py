"""Thresholds and hysteresis: who is slow, how long it takes, and that nobody is sent back and forth."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.control.supervisor.config import SupervisorSection
from tensor_pool.control.supervisor.judging import Condition, Remedy, Seen, Standing, condition_of, judge
from tensor_pool.errors import ConfigError

SECOND = 1_000_000_000
SECTION = SupervisorSection(slow_for_ms=5_000, window_ms=3_000)
LADDER = tuple(Remedy)


@pytest.mark.parametrize(
    ("seen", "condition"),
    [
        ({}, Condition.UNKNOWN),
        ({"lag": 0}, Condition.HEALTHY),
        ({"lag": 250, "drops_per_s": 0.1}, Condition.HEALTHY),
        ({"lag": 251}, Condition.FAIR),
        ({"lag": 0, "drops_per_s": 0.5}, Condition.FAIR),
        ({"lag": 500}, Condition.SLOW),
        ({"lag": None, "drops_per_s": 1.0}, Condition.SLOW),
        ({"lag": 0, "drops_per_s": 40.0, "uncounted_gaps_per_s": 40.0}, Condition.HEALTHY),
        ({"lag": 0, "drops_per_s": 40.0, "uncounted_gaps_per_s": 38.5}, Condition.SLOW),
        ({"lag": 10_000, "is_still": True}, Condition.STUCK),
        ({"lag": 900, "drops_per_s": 0.0, "is_limited": True}, Condition.HEALTHY),
        ({"lag": 900, "drops_per_s": 5.0, "is_limited": True}, Condition.SLOW),
        ({"lag": 0, "is_stale": True}, Condition.STALE),
        ({"lag": 5, "nslots": 0}, Condition.UNKNOWN),
    ],
)
def test_condition(seen: dict[str, Any], condition: Condition) -> None:
    assert condition_of(Seen(**{"nslots": 1_000, **seen}), SECTION) is condition


@pytest.mark.parametrize(
    "keys", [{"healthy_lag": 0.5}, {"healthy_drops_per_s": 2.0}, {"window_ms": 10_000}, {"slow_for_ms": 1}]
)
def test_thresholds_that_contradict_each_other_are_refused(keys: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be below"):
        SupervisorSection(**keys)


def run(*conditions: tuple[Condition, int], ladder: tuple[Remedy, ...] = LADDER) -> list[tuple[int, Remedy]]:
    """Lets a consumer be so for so many seconds each; when it was moved, and where."""
    standing, moves, now_s = Standing(), [], 0
    for condition, seconds in conditions:
        for _ in range(seconds):
            after = judge(standing, condition, ladder, SECTION, now_s * SECOND)
            if after.remedy is not standing.remedy:
                moves.append((now_s, after.remedy))
            standing = after
            now_s += 1
    return moves


SLOW, HEALTHY, FAIR = Condition.SLOW, Condition.HEALTHY, Condition.FAIR


def test_one_step_after_the_other_and_no_further() -> None:
    steps = [(5, Remedy.RATE_LIMITED), (10, Remedy.OWN_STREAM), (15, Remedy.FALLBACK)]
    assert run((SLOW, 60)) == steps


def test_a_step_that_is_not_possible_is_left_out() -> None:
    assert run((SLOW, 60), ladder=(Remedy.NONE, Remedy.FALLBACK)) == [(5, Remedy.FALLBACK)]
    assert run((SLOW, 60), ladder=(Remedy.NONE,)) == []


def test_slow_for_a_moment_is_not_slow() -> None:
    assert run(*[(SLOW, 5), (FAIR, 6)] * 20) == []


@pytest.mark.parametrize("calm", [HEALTHY, FAIR])
def test_slow_again_and_again_is_slow(calm: Condition) -> None:
    """Who skips hundreds of frames at a time loses none in between."""
    assert run(*[(SLOW, 3), (calm, 3)] * 10)[0] == (6, Remedy.RATE_LIMITED)


def test_back_again_step_by_step() -> None:
    moves = run((SLOW, 11), (HEALTHY, 100))
    assert moves[2:] == [(41, Remedy.RATE_LIMITED), (71, Remedy.NONE)]


def test_who_is_neither_stays_where_it_is() -> None:
    assert run((SLOW, 6), (FAIR, 1_000)) == [(5, Remedy.RATE_LIMITED)]


@pytest.mark.parametrize("condition", [Condition.STUCK, Condition.STALE, Condition.UNKNOWN])
def test_nothing_is_decided_about_those_of_whom_nothing_is_known(condition: Condition) -> None:
    assert run((SLOW, 6), (condition, 1_000)) == [(5, Remedy.RATE_LIMITED)]


def test_who_relapses_is_trusted_less_each_time() -> None:
    standing, now_s, waits = Standing(), 0, []
    for _ in range(7):
        while standing.remedy is Remedy.NONE:
            standing = judge(standing, SLOW, LADDER, SECTION, now_s * SECOND)
            now_s += 1
        moved_s = now_s
        while standing.remedy is not Remedy.NONE:
            standing = judge(standing, HEALTHY, LADDER, SECTION, now_s * SECOND)
            now_s += 1
        waits.append(round((now_s - moved_s) / 30))
    assert waits == [1, 2, 4, 8, 16, 16, 16]


def test_long_well_is_forgiven() -> None:
    standing = Standing(condition=HEALTHY, patience=4, has_come_back=True)
    after = judge(standing, HEALTHY, LADDER, SECTION, 4 * 30 * SECOND)
    assert (after.patience, after.has_come_back) == (1, False)


@given(st.lists(st.tuples(st.sampled_from(Condition), st.integers(1, 20)), max_size=60))
def test_no_two_moves_are_closer_than_the_shortest_time(conditions: list[tuple[Condition, int]]) -> None:
    moves = run(*conditions)
    times = [0, *(now_s for now_s, _ in moves)]
    assert all(later - earlier >= 5 for earlier, later in itertools.pairwise(times))
    steps = [0, *(list(Remedy).index(remedy) for _, remedy in moves)]
    assert all(abs(one - other) == 1 for one, other in itertools.pairwise(steps))

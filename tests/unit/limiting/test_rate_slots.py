"""When frames may pass, by a clock that the tests turn."""

from __future__ import annotations

import itertools
import random

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.limiting.slots import RateSlots

MS = 1_000_000
SECOND = 1_000 * MS


def passed(
    slots: RateSlots, arrivals_ns: list[int], *, late_ns: int = 0, until_ns: int = 0
) -> dict[int, int]:
    """What a limiter would do: when frames pass, by the time at which they came; the newest at each slot."""
    now_ns, there, found = arrivals_ns[0], 0, {}
    end_ns = max(until_ns, arrivals_ns[-1])
    while now_ns <= end_ns:
        there = sum(1 for arrival_ns in arrivals_ns if arrival_ns <= now_ns)
        newest_ns = arrivals_ns[there - 1]
        if wait_ns := slots.wait_ns(now_ns):
            now_ns += wait_ns + late_ns
        elif newest_ns in found:
            if there == len(arrivals_ns):
                break
            now_ns = arrivals_ns[there]
        else:
            found[newest_ns] = now_ns
            slots.use(now_ns)
    return found


def test_a_slot_is_open_at_the_start() -> None:
    assert RateSlots(0.001).wait_ns(now_ns=5) == 0


def test_the_next_one_opens_a_period_later() -> None:
    slots = RateSlots(10)
    slots.use(now_ns=5 * MS)
    assert [slots.wait_ns(now_ns=at * MS) for at in (5, 104, 105, 900)] == [100 * MS, MS, 0, 0]


def test_the_newest_frame_passes_and_also_the_last_one_before_a_pause() -> None:
    burst = [at * MS for at in (0, 1, 2, 3)]
    assert passed(RateSlots(10), burst, until_ns=SECOND) == {0: 0, 3 * MS: 100 * MS}


def test_a_frame_that_comes_to_an_open_slot_passes_at_once() -> None:
    arrivals = [at * MS for at in (0, 250, 260, 700)]
    assert passed(RateSlots(10), arrivals, until_ns=SECOND) == {
        0: 0,
        250 * MS: 250 * MS,
        260 * MS: 350 * MS,
        700 * MS: 700 * MS,
    }


def test_rate_0_is_always_open() -> None:
    slots = RateSlots(0)
    assert slots.are_endless
    for now_ns in (0, 0, 1, 1):
        slots.use(now_ns)
        assert slots.wait_ns(now_ns) == 0


def test_waking_up_late_does_not_lower_the_rate() -> None:
    arrivals = [n * 10 * MS for n in range(1_000)]
    assert len(passed(RateSlots(10), arrivals, late_ns=2 * MS)) == 100


def test_a_long_delay_is_not_made_up_for() -> None:
    slots = RateSlots(10)
    slots.use(now_ns=0)
    slots.use(now_ns=190 * MS)
    assert slots.wait_ns(now_ns=190 * MS) == 100 * MS


def test_a_source_of_just_that_rate_loses_nothing_by_its_jitter() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    arrivals = [n * 100 * MS + chance.randrange(8 * MS) for n in range(200)]
    assert len(passed(RateSlots(10), arrivals, until_ns=21 * SECOND)) == 200


@pytest.mark.parametrize("max_rate_hz", [0.5, 7, 30, 144.5, 999])
def test_frames_are_never_closer_than_nine_tenths_of_a_period(max_rate_hz: float) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    arrivals = sorted(chance.randrange(3 * SECOND) for _ in range(1_000))
    times = list(passed(RateSlots(max_rate_hz), arrivals, late_ns=chance.randrange(3 * MS)).values())
    period_ns = SECOND / max_rate_hz
    assert all(later - sooner >= 0.9 * period_ns - 1 for sooner, later in itertools.pairwise(times))
    assert len(times) <= 3 * max_rate_hz + 2


def test_another_rate_counts_from_the_last_frame() -> None:
    slots = RateSlots(0.01)
    slots.use(now_ns=0)
    slots.set_rate(5)
    assert (slots.max_rate_hz, slots.wait_ns(now_ns=50 * MS)) == (5, 150 * MS)
    slots.set_rate(0)
    assert slots.wait_ns(now_ns=50 * MS) == 0
    slots.set_rate(1)
    assert slots.wait_ns(now_ns=50 * MS) == 950 * MS


def test_after_a_remap_a_slot_is_open() -> None:
    slots = RateSlots(0.01)
    slots.use(now_ns=0)
    slots.restart()
    assert slots.wait_ns(now_ns=1) == 0


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 2e9])
def test_what_is_no_rate_is_refused_and_changes_nothing(wrong: float) -> None:
    with pytest.raises(ConfigError, match="is no rate"):
        RateSlots(wrong)
    slots = RateSlots(10)
    with pytest.raises(ConfigError):
        slots.set_rate(wrong)
    assert slots.max_rate_hz == 10

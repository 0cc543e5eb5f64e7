"""What becomes of a message that is refused."""

from __future__ import annotations

import time

import pytest

from tensor_pool.errors import BackPressureError
from tensor_pool.transport.backpressure import (
    DROP,
    RAISE,
    RESULT_BY_CODE,
    BackPressurePolicy,
    OfferResult,
    Refusals,
    retry_for,
)

BACK_PRESSURED = -2


def never() -> int:
    pytest.fail("was offered again")


def test_only_sent_is_true() -> None:
    assert [result for result in OfferResult if result] == [OfferResult.SENT]


@pytest.mark.parametrize("code", RESULT_BY_CODE)
@pytest.mark.parametrize("policy", [DROP, RAISE, retry_for(10_000, then="raise")], ids=str)
def test_nobody_there_and_the_end_of_a_stream_are_not_back_pressure(
    code: int, policy: BackPressurePolicy
) -> None:
    if RESULT_BY_CODE[code] in (OfferResult.NOT_CONNECTED, OfferResult.MAX_POSITION):
        refusals = Refusals(policy)
        assert refusals.handle(code, never, "here") is RESULT_BY_CODE[code]
        assert (refusals.dropped, refusals.raised) == (0, 0)


def test_drop_gives_up_at_once_and_counts() -> None:
    refusals = Refusals(DROP)
    assert refusals.handle(BACK_PRESSURED, never, "here") is OfferResult.BACK_PRESSURED
    assert (refusals.dropped, refusals.raised) == (1, 0)


def test_raise_raises_at_once_and_counts() -> None:
    refusals = Refusals(RAISE)
    with pytest.raises(BackPressureError, match="stream 7"):
        refusals.handle(BACK_PRESSURED, never, "stream 7")
    assert (refusals.dropped, refusals.raised) == (0, 1)


def test_retry_ends_with_the_first_success() -> None:
    answers = iter([BACK_PRESSURED, -3, 4096])
    refusals = Refusals(retry_for(60_000))
    assert refusals.handle(BACK_PRESSURED, lambda: next(answers), "here") is OfferResult.SENT
    assert list(answers) == []
    assert (refusals.dropped, refusals.raised) == (0, 0)


def test_retry_ends_when_the_subscribers_leave() -> None:
    assert Refusals(retry_for(60_000)).handle(BACK_PRESSURED, lambda: -1, "here") is OfferResult.NOT_CONNECTED


@pytest.mark.parametrize("then", ["drop", "raise"])
def test_retry_gives_up_in_time_without_spinning(then: str) -> None:
    attempts = 0

    def attempt() -> int:
        nonlocal attempts
        attempts += 1
        return BACK_PRESSURED

    refusals = Refusals(BackPressurePolicy(30, then))  # type: ignore[arg-type]
    started = time.monotonic()
    if then == "drop":
        assert refusals.handle(BACK_PRESSURED, attempt, "here") is OfferResult.BACK_PRESSURED
    else:
        with pytest.raises(BackPressureError):
            refusals.handle(BACK_PRESSURED, attempt, "here")
    assert time.monotonic() - started >= 0.03
    assert 1 <= attempts <= 100
    assert refusals.dropped + refusals.raised == 1

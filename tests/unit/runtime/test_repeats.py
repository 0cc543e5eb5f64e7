"""Warnings that others can cause are written once in a while, with a count."""

from __future__ import annotations

import logging
import threading

import pytest

from tensor_pool.runtime.repeats import RepeatFilter, limit_repeats

LOGGER = logging.getLogger("tensor_pool.test_repeats")
PERIOD_S = 10.0


class Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def lines(clock: Time, caplog: pytest.LogCaptureFixture):
    """What was written so far."""
    caplog.set_level(logging.DEBUG, logger=LOGGER.name)
    limit = RepeatFilter(clock=clock, most_kinds=4)
    LOGGER.addFilter(limit)
    yield lambda: [record.getMessage() for record in caplog.records if record.name == LOGGER.name]
    LOGGER.removeFilter(limit)


def test_the_first_is_written_and_the_others_are_counted(lines, clock: Time) -> None:
    for epoch in range(1_000):
        LOGGER.warning("can't use epoch %d of stream %s", epoch, "'a'")
    assert lines() == ["can't use epoch 0 of stream 'a'"]
    clock.now_s += PERIOD_S
    for epoch in range(1_000, 2_000):
        LOGGER.warning("can't use epoch %d of stream %s", epoch, "'a'")
    assert lines()[1:] == ["can't use epoch 1000 of stream 'a' (999 more like this since)"]
    clock.now_s += PERIOD_S
    clock.now_s += PERIOD_S
    LOGGER.warning("can't use epoch %d of stream %s", 7, "'a'")
    assert lines()[2:] == ["can't use epoch 7 of stream 'a' (999 more like this since)"]


def test_streams_and_reasons_are_told_apart(lines) -> None:
    for _ in range(5):
        LOGGER.warning("stream %s: %s", "'a'", "no such file")
        LOGGER.warning("stream %s: %s", "'b'", "no such file")
        LOGGER.warning("stream %s: %s", "'a'", "not yours")
    assert lines() == ["stream 'a': no such file", "stream 'b': no such file", "stream 'a': not yours"]


def test_what_a_stranger_writes_into_a_text_makes_no_flood(lines, clock: Time) -> None:
    for word in range(1_000):
        LOGGER.warning("stream %s: %s", "'a'", "x" * word)
    assert len(lines()) == 5, "four that are told apart, and one for all others"
    clock.now_s += PERIOD_S
    LOGGER.warning("stream %s: %s", "'a'", "news")
    assert lines()[5:] == ["stream 'a': news"], "old kinds make room"


def test_a_per_cent_sign_in_a_text_stays_one(lines, clock: Time) -> None:
    for _ in range(2):
        LOGGER.warning("%s", "100% %d")
    clock.now_s += PERIOD_S
    LOGGER.warning("%s", "100% %d")
    assert lines()[1] == "100% %d (1 more like this since)"


def test_who_asks_for_everything_gets_it(lines) -> None:
    for _ in range(3):
        LOGGER.info("hello")
        LOGGER.debug("hello")
    assert lines() == ["hello"] * 6


def test_threads_share_one_count(lines, clock: Time) -> None:
    def warn() -> None:
        for _ in range(250):
            LOGGER.warning("the same")

    threads = [threading.Thread(target=warn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now_s += PERIOD_S
    LOGGER.warning("the same")
    assert lines() == ["the same", "the same (999 more like this since)"]


def test_a_logger_is_limited_once() -> None:
    logger = logging.getLogger("tensor_pool.test_repeats.once")
    assert limit_repeats(limit_repeats(logger)) is logger
    assert len(logger.filters) == 1

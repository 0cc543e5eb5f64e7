"""How commands without an end of their own are stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tensor_pool.ops.cli.watching import print_listing
from tensor_pool.stop_signals import until_stopped

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["terminal", "background"])
def before(request: pytest.FixtureRequest) -> Iterator[object]:
    """What SIGINT does; shells have what they start in the background ignore it."""
    was = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, was)


@BOTH
def test_both_signals_end_it_quietly_and_are_given_back(number: int, before: object) -> None:
    terminated_by = signal.getsignal(signal.SIGTERM)
    went_on = False
    with until_stopped():
        os.kill(os.getpid(), number)
        went_on = True
    assert not went_on
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == (before, terminated_by)


def test_errors_come_out() -> None:
    with pytest.raises(ZeroDivisionError), until_stopped():
        raise ZeroDivisionError


@BOTH
def test_a_watched_listing_has_its_end(
    number: int, before: object, capsys: pytest.CaptureFixture[str]
) -> None:
    print_listing(
        lambda: [{"id": 1}],
        ["id"],
        "json",
        watch=True,
        interval=1,
        count=2,
        pause=lambda _: os.kill(os.getpid(), number),
    )
    assert capsys.readouterr().out.strip().endswith("]")

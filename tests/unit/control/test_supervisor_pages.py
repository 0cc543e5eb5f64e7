"""A view and a journal of any length go through events and come out whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.control.supervisor.journal import Journal
from tensor_pool.control.supervisor.pages import PageCollector, pages_of_log, pages_of_view
from tensor_pool.control.supervisor.view import ConsumerHealth, StreamHealth, SupervisorView


def view(streams: int, consumers: int) -> SupervisorView:
    return SupervisorView(
        at_ns=7,
        dry_run=True,
        is_authority=False,
        streams=tuple(
            StreamHealth(stream_id=n, name=f"s{n}", epoch=1, producer_id=2, state="live", slots=8)
            for n in range(streams)
        ),
        consumers=tuple(
            ConsumerHealth(stream_id=1, consumer_id=n, condition="fair", remedy="none", mode="stream")
            for n in range(consumers)
        ),
        refused={"malformed": 3},
    )


@pytest.mark.parametrize(("streams", "consumers"), [(0, 0), (1, 0), (0, 1), (200, 200), (201, 999)])
def test_a_view_comes_out_as_it_went_in(streams: int, consumers: int) -> None:
    sent = view(streams, consumers)
    pages = pages_of_view(sent, "a")
    collector = PageCollector("a")
    assert [collector.add(page) for page in reversed(pages)] == [False] * (len(pages) - 1) + [True]
    assert collector.view == sent
    assert max(map(len, pages)) < 100_000


def test_so_does_the_journal() -> None:
    journal = Journal(length=1_000)
    for number in range(450):
        journal.add("stale", at_ns=number, stream_id=1, consumer_id=number)
    collector = PageCollector("a")
    for page in pages_of_log(journal.entries(), "a"):
        collector.add(page)
    assert collector.entries == journal.entries()


def test_what_is_far_too_much_is_cut() -> None:
    pages = pages_of_view(view(0, 30_000), "a")
    assert len(pages) == 100


def test_answers_to_others_do_not_count() -> None:
    collector = PageCollector("a")
    assert not any(collector.add(page) for page in pages_of_view(view(1, 1), "b"))
    assert collector.view is None


@given(st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.just('{"request":"a"}')))
def test_what_others_say_does_no_harm(value: object) -> None:
    assert not PageCollector("a").add(value)

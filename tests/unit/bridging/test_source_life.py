"""A source that is hard to hear is borne with; one that ended is noticed."""

from __future__ import annotations

import pytest

from tensor_pool.bridging.source_life import SourceLife


@pytest.fixture
def life() -> SourceLife:
    return SourceLife(fresh_s=3.0, silent_s=9.0, now_s=0.0)


def test_one_that_was_never_there_is_absent(life: SourceLife) -> None:
    assert (life.trouble(8.9), life.trouble(9.0)) == (None, "absent")
    life.on_announce(produced=False, now_s=9.5)
    assert life.trouble(9.5) == "absent"


def test_partitions_of_seconds_are_borne(life: SourceLife) -> None:
    for heard_s in (1.0, 9.0, 17.0):
        life.on_announce(produced=True, now_s=heard_s)
        assert life.trouble(heard_s + 8.0) is None
    assert life.trouble(26.0) == "silent"
    life.on_announce(produced=True, now_s=27.0)
    assert life.trouble(27.0) is None


def test_a_producer_that_leaves_may_be_replaced(life: SourceLife) -> None:
    life.on_announce(produced=True, now_s=1.0)
    life.on_announce(produced=False, now_s=1.5)
    assert life.trouble(3.9) is None
    assert life.trouble(4.0) == "unproduced"
    life.on_announce(produced=True, now_s=5.0)
    assert life.trouble(5.0) is None


def test_a_host_that_goes_after_its_producer_is_silent(life: SourceLife) -> None:
    life.on_announce(produced=True, now_s=1.0)
    life.on_announce(produced=False, now_s=2.0)
    assert life.trouble(10.9) == "unproduced"
    assert life.trouble(11.0) == "silent"


def test_frames_count_as_much_as_words(life: SourceLife) -> None:
    life.on_announce(produced=True, now_s=0.0)
    life.on_frames(8.0)
    assert life.trouble(16.0) is None

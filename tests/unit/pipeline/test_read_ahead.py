"""Reading ahead: never more than allowed, in order, and errors where they belong."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tensor_pool.pipeline.record.read_ahead import ReadAhead
from tensor_pool.testing import wait_until


def test_no_more_is_read_than_may_wait():
    read = []

    def source():
        for n in range(100):
            read.append(n)
            yield np.full(10, n, "uint8")

    with ReadAhead(source(), max_bytes=35) as ahead:
        wait_until(lambda: len(read) == 4)  # three wait, and one waits for room
        taken = []
        for array in ahead:
            taken.append(int(array[0]))
            assert len(read) <= len(taken) + 4
        assert taken == list(range(100))


def test_one_that_is_larger_than_all_comes_through():
    with ReadAhead(iter([np.zeros(1_000), np.zeros(2_000)]), max_bytes=10) as ahead:
        assert [array.size for array in ahead] == [1_000, 2_000]


def test_an_error_comes_after_what_was_read_before_it():
    def source():
        yield np.zeros(1)
        raise ValueError("the disk is on fire")

    taken = []
    with ReadAhead(source(), max_bytes=100) as ahead, pytest.raises(ValueError, match="on fire"):
        taken.extend(ahead)
    assert len(taken) == 1


def test_closing_ends_a_source_that_has_no_end():
    def source():
        while True:
            yield np.zeros(1)

    before = threading.active_count()
    with ReadAhead(source(), max_bytes=100) as ahead:
        next(iter(ahead))
    assert threading.active_count() == before
    ahead.close()

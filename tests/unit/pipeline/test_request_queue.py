"""Requests are worked off in their order, are never too many, and wait for what may come."""

from __future__ import annotations

import threading

import pytest

from tensor_pool.errors import ConfigError, TensorPoolError
from tensor_pool.pipeline.jobs import request_queue
from tensor_pool.pipeline.jobs.request_queue import NotYetError, RequestQueue


class Told(list):
    """What became of requests, in the order in which it was told."""

    def __call__(self, request, told, is_done):
        self.append((request.value, told, is_done, request.correlation_id))


def one_by_one(work):
    """Most of these tests are about single requests."""
    return lambda requests: [work(request) for request in requests]


@pytest.fixture
def told():
    return Told()


def test_in_their_order_and_failures_hold_nobody_up(told):
    def work(request):
        if request.value == 1:
            raise ConfigError("no such thing", hint="try another")
        if request.value == 2:
            return 1 / 0
        return request.value * 10

    with RequestQueue(one_by_one(work), told) as queue:
        for number in range(4):
            queue.put("do", number, 100 + number)
        assert queue.join(10)
    assert told == [
        (0, 0, True, 100),
        (1, "no such thing", False, 101),
        (2, "ZeroDivisionError: division by zero", False, 102),
        (3, 30, True, 103),
    ]
    assert (queue.unfinished, queue.done, queue.failed) == (0, 2, 2)


def test_too_many_are_refused_until_some_are_finished(told):
    gate = threading.Event()
    with RequestQueue(one_by_one(lambda request: gate.wait(10) and request.value), told, most=3) as queue:
        for number in range(3):
            queue.put("do", number, 0)
        with pytest.raises(TensorPoolError, match="3 requests are waiting already"):
            queue.put("do", 3, 0)
        gate.set()
        assert queue.join(10)
        queue.put("do", 4, 0)
        assert queue.join(10)
    assert [each[0] for each in told] == [0, 1, 2, 4]


def test_what_may_come_is_waited_for_and_holds_nobody_up(told, monkeypatch):
    monkeypatch.setattr(request_queue, "_LOOK_S", 0.02)
    looks = []

    def work(request):
        if request.value == "late":
            looks.append(request)
            if len(looks) < 3:
                raise NotYetError("not recorded yet")
        return "done"

    with RequestQueue(one_by_one(work), told, wait_s=30) as queue:
        queue.put("do", "late", 7)
        queue.put("do", "early", 8)
        assert queue.join(10)
    assert [(each[0], each[1]) for each in told] == [("early", "done"), ("late", "done")]


def test_what_does_not_come_fails_with_what_was_said_last(told, monkeypatch):
    monkeypatch.setattr(request_queue, "_LOOK_S", 0.02)

    def work(request):
        raise NotYetError("not recorded yet")

    with RequestQueue(one_by_one(work), told, wait_s=0.1) as queue:
        queue.put("do", "never", 7)
        assert queue.join(10)
    assert told == [("never", "not recorded yet", False, 7)]


def test_at_the_end_the_rest_fails_and_nothing_is_taken_any_more(told):
    started, cut_off = threading.Event(), threading.Event()

    def work(request):
        if request.value == "late":
            raise NotYetError("not recorded yet")
        started.set()
        if not cut_off.wait(10):
            return "never cut off"
        raise RuntimeError("cancelled")

    queue = RequestQueue(one_by_one(work), told, wait_s=60)
    for value in ("late", "long", "next"):
        queue.put("do", value, 0)
    assert started.wait(10)
    queue.close(hurry=cut_off.set)
    queue.close()
    assert [each[:3] for each in told] == [
        ("long", "RuntimeError: cancelled", False),
        ("next", "the service ends", False),
        ("late", "the service ends", False),
    ]
    with pytest.raises(TensorPoolError, match="the service ends"):
        queue.put("do", 1, 0)


def test_several_in_a_row_are_worked_on_together_where_that_is_wanted(told, monkeypatch):
    monkeypatch.setattr(request_queue, "_MOST_TOGETHER", 3)
    gate, batches = threading.Event(), []

    def work(requests):
        gate.wait(10)
        batches.append("".join(request.value for request in requests))
        return [ConfigError("no b") if request.value == "b" else request.value for request in requests]

    with RequestQueue(work, told, together=("draw",), prepare=lambda: 1 / 0) as queue:
        for key, value in zip(("run", *["draw"] * 5, "run", "run"), "abcdefgh", strict=True):
            queue.put(key, value, 0)
        gate.set()
        assert queue.join(10)
    assert batches == ["a", "bcd", "ef", "g", "h"]
    assert "".join(each[0] for each in told) == "abcdefgh"
    assert [each[0] for each in told if not each[2]] == ["b"]

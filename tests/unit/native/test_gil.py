"""Whatever takes time lets other Python threads run."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

BIG = 32 << 20


@pytest.fixture(autouse=True)
def _only_voluntary_switches():
    """Threads switch only where one lets go of the interpreter's lock by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def lets_others_run(call, prepare=lambda: None) -> bool:
    """Does `call` let other threads run? Once is proof; on a busy machine they may wake too late."""
    for _ in range(50):
        prepare()
        if others_ran_during(call):
            return True
    return False


def others_ran_during(call) -> bool:
    """Did another thread run between the start and the end of `call`?"""
    ready, go, during = threading.Event(), threading.Lock(), []
    go.acquire()
    finished = False

    def other() -> None:
        ready.set()
        with go:
            during.append(not finished)

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    go.release()  # the other thread may run from here on, if it is let
    call()
    finished = True
    thread.join()
    return during[0]


@pytest.fixture
def pair(make_ring):
    ring = make_ring(nslots=2, strides=(BIG,))
    return ring.writer(), ring.reader(), ring.reader("copy")


def test_large_copies_release_the_lock(pair):
    writer, reader, snapshot = pair
    array, out = np.ones(BIG, "u1"), np.empty(BIG, "u1")
    assert lets_others_run(writer.prefault)
    assert lets_others_run(lambda: writer.publish(array))
    frame = reader.poll()
    assert lets_others_run(lambda: frame.copy_into(out))
    assert lets_others_run(frame.copy)
    assert lets_others_run(snapshot.poll, prepare=lambda: snapshot.seek(frame.seq))


def test_waiting_releases_the_lock(pair):
    _, reader, _ = pair
    assert reader.poll() is None
    assert lets_others_run(lambda: reader.wait(0.01))


def test_the_check_itself_can_fail(pair):
    assert not lets_others_run(lambda: sum(range(1000)))

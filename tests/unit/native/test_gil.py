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


def others_run_during(call) -> bool:
    """Does another thread run during `call`? On a busy machine it may take a few tries to get a core."""
    return any(other_ran_during(call) for _ in range(50))


def other_ran_during(call) -> bool:
    """Did another thread run between the start and the end of this one call?"""
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
    assert others_run_during(writer.prefault)
    assert others_run_during(lambda: writer.publish(array))
    frame = reader.poll()
    assert others_run_during(lambda: frame.copy_into(out))
    assert others_run_during(frame.copy)
    assert others_run_during(lambda: (snapshot.seek(snapshot.newest()), snapshot.poll()))


def test_waiting_releases_the_lock(pair):
    _, reader, _ = pair
    assert reader.poll() is None
    assert others_run_during(lambda: reader.wait(0.01))


def test_the_check_itself_can_fail(pair):
    assert not others_run_during(lambda: sum(range(1000)))

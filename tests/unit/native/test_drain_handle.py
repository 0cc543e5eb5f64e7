"""The drain by itself, without a media driver: waiting, waking, closing, forks and the interpreter's end."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from forking import forks
from tensor_pool import _native, errors

MS = 1_000_000


@pytest.fixture
def drain():
    drain = _native.AeronDrain(name="tested", shortest_pause_ns=MS // 10, longest_pause_ns=5 * MS)
    yield drain
    drain.close()


def test_its_thread_has_its_name(drain):
    deadline = time.monotonic() + 20
    names: set[str] = set()
    while "tested" not in names and time.monotonic() < deadline:
        names = {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    assert "tested" in names


def test_waking_ends_a_wait_or_the_next_one(drain):
    assert not drain.wait(0.0)
    assert not drain.wait(0.01)
    drain.wake()
    drain.wake()
    assert drain.wait(60.0)
    assert not drain.wait(0.0)
    thread = threading.Timer(0.02, drain.wake)
    thread.start()
    assert drain.wait(60.0)
    thread.join()
    with pytest.raises(ValueError, match="not a number"):
        drain.wait(float("nan"))


def test_closing_ends_a_wait_with_an_error(drain):
    thread = threading.Timer(0.02, drain.close)
    thread.start()
    with pytest.raises(errors.ClosedError, match="the drain is closed"):
        drain.wait(60.0)
    thread.join()
    assert drain.closed
    drain.close()
    drain.wake()
    for use in (lambda: drain.wait(0.0), lambda: drain.hurry(1)):
        with pytest.raises(errors.ClosedError):
            use()


def test_ctrl_c_ends_a_wait(drain):
    thread = threading.Timer(0.02, _thread.interrupt_main)
    thread.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        drain.wait(60.0)
    assert time.monotonic() - start < 30
    thread.join()


def test_waiting_lets_other_threads_run_and_costs_nothing(drain):
    before = time.process_time()
    start = time.monotonic()
    assert not drain.wait(0.5)
    assert time.monotonic() - start >= 0.5
    assert time.process_time() - before < 0.25


@pytest.mark.parametrize(
    ("name", "shortest", "longest"),
    [("a\0b", 1, 2), ("x", 0, 2), ("x", 3, 2)],
    ids=["name with NUL", "no pause", "wrong order"],
)
def test_nonsense_is_refused(name, shortest, longest):
    with pytest.raises(errors.TransportError):
        _native.AeronDrain(name=name, shortest_pause_ns=shortest, longest_pause_ns=longest)


@forks
def test_a_forked_child_gets_an_error_instead_of_the_parents_drain(drain):
    child = os.fork()
    if child == 0:
        outcomes = []
        for use in (lambda: drain.wait(0.0), drain.wake, lambda: drain.hurry(1), drain.close):
            try:
                use()
            except errors.ForkedProcessError:
                outcomes.append(True)
            except BaseException:
                outcomes.append(False)
        os._exit(0 if outcomes == [True] * 4 and drain.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    drain.wake()
    assert drain.wait(60.0)


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("", id="nothing was closed"),
        pytest.param("sys.keep = drain", id="kept by a module"),
        pytest.param("ring = [drain]; ring.append(ring); del drain", id="in a cycle"),
        pytest.param(
            "threading.Thread(target=drain.wait, args=(60,), daemon=True).start()", id="waiting daemon"
        ),
        pytest.param(
            "class Late:\n    def __del__(self): drain.close()\nsys.late = Late()", id="in a destructor"
        ),
    ],
)
def test_the_interpreter_ends_with_a_live_drain(ending):
    script = textwrap.dedent("""
        import sys, threading
        from tensor_pool._native import AeronDrain
        drain = AeronDrain(name="live", shortest_pause_ns=1_000, longest_pause_ns=1_000_000)
    """)
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", f"{script}\n{ending}\nprint('done')"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr

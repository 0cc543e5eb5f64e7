"""Runners at the edges of a process: interpreter exit, fork, signals."""

import signal
import subprocess
import sys
import time

import pytest

from forking import SCRIPT_FORKS

PROLOGUE = """
import os, sys, threading, time
from tensor_pool.runtime import AgentRunner, StopAgent

class Loud:
    name = "loud"
    def on_start(self): print("start", flush=True)
    def do_work(self): return 0
    def on_close(self): print("close", threading.current_thread().name, flush=True)

class Stuck(Loud):
    name = "stuck"
    def do_work(self): time.sleep(60)
"""


def run_python(body: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROLOGUE + body],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_a_forgotten_agent_is_closed_on_its_thread_when_the_interpreter_exits() -> None:
    done = run_python("runner = AgentRunner(Loud()).start()\nprint('end of main', flush=True)")

    assert done.stdout.splitlines() == ["start", "end of main", "close loud"]
    assert (done.returncode, done.stderr) == (0, "")


def test_an_agent_whose_runner_was_dropped_is_closed_too() -> None:
    done = run_python("AgentRunner(Loud()).start()\nimport gc; gc.collect()")

    assert done.stdout.splitlines() == ["start", "close loud"]


@pytest.mark.parametrize("ending", ["raise ValueError('oops')", "sys.exit(7)"])
def test_agents_are_closed_however_the_program_ends(ending: str) -> None:
    done = run_python(f"runner = AgentRunner(Loud()).start()\n{ending}")

    assert done.stdout.splitlines() == ["start", "close loud"]
    assert done.returncode in (1, 7)


def test_stuck_agents_do_not_keep_the_program_from_ending() -> None:
    started = time.monotonic()
    done = run_python("runners = [AgentRunner(Stuck(), close_timeout_s=0.5).start() for _ in range(3)]")

    # Three time-outs of half a second overlap; the rest is the start of an interpreter.
    assert time.monotonic() - started < 20
    assert done.returncode == 0
    assert done.stderr.count("stuck did not end within") == 3


def test_a_forked_child_neither_runs_nor_closes_the_parents_agent() -> None:
    done = run_python(
        SCRIPT_FORKS
        + """
from tensor_pool.errors import ForkedProcessError
running, waiting = AgentRunner(Loud()).start(), AgentRunner(Loud())
if os.fork() == 0:
    try:
        waiting.start()
    except ForkedProcessError as e:
        print("child:", e.hint)
    print("child:", running.is_running, running.close(), running.wait(1))
    new = AgentRunner(Loud()).start()
    new.close()
    sys.exit(0)
_, status = os.wait()
print("parent:", running.is_running, status, flush=True)
running.close()
"""
    )

    # Parent and child write to the same pipe, in either order.
    assert sorted(done.stdout.splitlines()) == [
        "child: False True True",
        "child: make a new runner in the forked child",
        "close loud",
        "close loud",
        "parent: True 0",
        "start",
        "start",
    ], done.stderr
    assert done.returncode == 0


def test_ctrl_c_in_wait_reaches_the_program() -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROLOGUE
            + """
with AgentRunner(Loud()) as runner:
    try:
        print("waiting", flush=True)
        runner.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
""",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["start\n", "waiting\n"]
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)

    assert out.splitlines() == ["interrupted", "close loud"]
    assert process.returncode == 0

"""Fault points: nothing without the variable, and exactly what it says with it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.runtime.faults import Fault, InjectedFaultError, fault_point, parse_fault, strike

SCRIPT = """
from tensor_pool.runtime.faults import fault_point
for n in range(3):
    fault_point("other.place")
    print("before", n, flush=True)
    fault_point("the.place")
print("end")
"""


def run(fault: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TENSOR_POOL_FAULT": fault}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_nothing_happens_by_default() -> None:
    assert run("").stdout.endswith("end\n")
    fault_point("anything")


def test_kill() -> None:
    ended = run("the.place:kill")
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "before 0\n")


def test_kill_at_a_later_time() -> None:
    ended = run("the.place:kill:3")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (-signal.SIGKILL, "before 2")


def test_raise() -> None:
    ended = run("the.place:raise")
    assert ended.returncode == 1
    assert "InjectedFaultError: fault at the.place" in ended.stderr


def test_stop() -> None:
    environ = {**os.environ, "TENSOR_POOL_FAULT": "the.place:stop"}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 20
        while os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=20)
    assert output.endswith("end\n")


@pytest.mark.parametrize("text", ["x", "x:", ":kill", "x:die", "x:kill:", "x:kill:y", "x:kill:-1"])
def test_what_would_never_strike_is_refused(text: str) -> None:
    if text == "x:kill:":
        assert parse_fault(text) == Fault("x", "kill", 1)
        return
    with pytest.raises(ConfigError, match="names no fault"):
        parse_fault(text)


def test_strikes_once() -> None:
    fault = Fault("a", "raise", 2)
    strike(fault)
    with pytest.raises(InjectedFaultError):
        strike(fault)
    strike(fault)

"""The media driver dies under everybody; reliability 19."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from pool_hosts import quick_host
from tensor_pool.errors import NoMediaDriverError, TensorPoolError
from tensor_pool.testing import Cluster, Process, wait_until
from tensor_pool.transport import EmbeddedMediaDriver, MediaDriverOptions
from tensor_pool.transport.counters import read_counters

TPOOL: Final = [sys.executable, "-c", "from tensor_pool.ops.cli import main; main()"]

PROGRAM = """
    out = pool.producer("camera-1", dtype="uint32", shape=(4,))
    inp = pool.consumer("camera-1", wait_s=5)
    out.publish(np.full(4, 1, "uint32"))
    print(int(inp.poll(timeout=5).copy()[0]))
    try:
        while True:
            inp.poll(timeout=0.1)
    except tp.TensorPoolError as e:
        print(type(e).__name__, e.hint)
    before, started = time.process_time(), time.monotonic()
    try:
        out.publish(np.full(4, 1, "uint32"))
    except tp.TensorPoolError as e:
        print(type(e).__name__)
    time.sleep(0.5)
    print((time.process_time() - before) / (time.monotonic() - started))
    pool.close()
    print("closed")
    if sys.stdin.readline():
        pool = tp.connect(config=config)
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        inp = pool.consumer("camera-1", wait_s=5)
        out.publish(np.full(4, 2, "uint32"))
        print(int(inp.poll(timeout=5).copy()[0]))
"""


@pytest.fixture
def fragile() -> Cluster:
    with quick_host(aeron__driver_timeout_ms=1_000) as cluster:
        yield cluster


def test_everybody_says_so_and_can_start_again(fragile: Cluster) -> None:
    """The driver ends with a code and a text, programs get an error that says what died; nothing spins."""
    program = fragile.run_python(PROGRAM)
    assert program.read_line() == "1"
    fragile.media.kill()
    assert fragile.driver.wait(timeout_s=5) == 3
    assert "no media driver serves" in fragile.driver.errors()
    assert "start the media driver, then this again" in fragile.driver.errors()
    first = program.read_line()
    assert first.startswith(NoMediaDriverError.__name__)
    assert "tensor_pool.connect() anew" in first
    assert "`tpool up`" in first
    assert program.read_line() == NoMediaDriverError.__name__
    assert float(program.read_line()) < 0.3
    assert program.read_line() == "closed"
    # The same directory, served by the next one.
    fragile.media = fragile.start("media", "run")
    fragile.media.read_line()
    fragile.start_driver()
    program.say("again")
    assert program.read_line() == "2"
    program.wait()
    assert "Traceback" not in program.errors()


def test_one_that_is_back_at_once_has_none_of_its_clients(fragile: Cluster) -> None:
    """A supervisor starts the next one before anybody missed the first: its clients are lost all the same."""
    program = fragile.run_python(PROGRAM)
    assert program.read_line() == "1"
    fragile.media.kill()
    fragile.media = fragile.start("media", "run")
    fragile.media.read_line()
    assert program.read_line().startswith(NoMediaDriverError.__name__), "not that somebody closed the pool"
    assert program.read_line() == NoMediaDriverError.__name__
    assert float(program.read_line()) < 0.3
    assert program.read_line() == "closed"
    assert fragile.driver.wait(timeout_s=5) == 3
    fragile.start_driver()
    program.say("again")
    assert program.read_line() == "2"


def test_a_pool_whose_media_driver_died_raises_at_once(fragile: Cluster) -> None:
    with fragile.connect() as pool:
        fragile.media.kill()
        deadline = time.monotonic() + 15
        with pytest.raises(TensorPoolError, match=r"media driver|closed"):
            while time.monotonic() < deadline:
                pool.consumer("camera-1")
                time.sleep(0.1)


def test_a_driver_that_was_given_up_ends_at_once(tmp_path: Path) -> None:
    """Stopped for longer than the media driver waits for its clients; nothing brings the client back."""
    options = MediaDriverOptions(client_liveness_ms=1_000)
    with EmbeddedMediaDriver.temporary(options) as media:
        settings = [f"--set=aeron.dir={media.aeron_dir}", f"--set=shm.shm_base_dir={tmp_path}"]
        with Process([*TPOOL, "driver", "run", *settings], environ=os.environ) as driver:
            driver.read_line()
            os.kill(driver.pid, signal.SIGSTOP)
            try:
                wait_until(lambda: given_up(media.aeron_dir), what="the media driver gave the SHM driver up")
            finally:
                os.kill(driver.pid, signal.SIGCONT)
            assert driver.wait(timeout_s=5) == 3
            assert "start this again" in driver.errors()


def given_up(aeron_dir: str) -> int:
    """How many clients a media driver has given up."""
    return sum(reading.value for reading in read_counters(aeron_dir) if "liveness timeouts" in reading.label)

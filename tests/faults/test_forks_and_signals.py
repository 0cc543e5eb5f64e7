"""Forks, Ctrl-C, and programs that end without a word; reliability 25."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from forking import SCRIPT_FORKS
from pool_hosts import Ear, mapped_regions, quick_host
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    """One layout is enough: nothing here depends on it."""
    with quick_host() as cluster:
        yield cluster


BLOCKING = {
    "poll": "inp.poll(timeout=60)",
    "iterate": "[frame for frame in inp]",
    "wait for a stream": 'pool.consumer("nobody makes this", wait_s=60)',
    "wait for several": "tp.wait([inp], timeout=60)",
    "progress": "inp.poll_progress(timeout=60)",
    "sleep in a frame": "next(iter(inp)).array; time.sleep(60)",
}


@pytest.mark.parametrize("call", list(BLOCKING))
def test_ctrl_c_ends_every_blocking_call(host: Cluster, name: str, call: str) -> None:
    program = host.run_python(
        f"""
        import threading
        out = pool.producer({name!r}, dtype="uint32", shape=(4,))
        inp = pool.consumer({name!r}, progress=True, wait_s=5)
        threading.Timer(0.05, lambda: print("ready")).start()
        try:
            {BLOCKING[call]}
        except KeyboardInterrupt:
            print("interrupted")
        pool.close()
        """
    )
    assert program.read_line() == "ready"
    started = time.monotonic()
    program._popen.send_signal(signal.SIGINT)
    assert program.read_line() == "interrupted"
    assert time.monotonic() - started < 2.0
    assert program.wait() == 0
    assert program.errors() == ""


def test_ctrl_c_while_publishing_waits_for_a_lease() -> None:
    with quick_host(client__reconnect_timeout_ms=60_000) as host:
        program = host.run_python(
            """
            out = pool.producer("camera-1", dtype="uint32", shape=(4,))
            print("ready")
            while out.epoch is not None: time.sleep(0.01)
            print("lost")
            try:
                out.publish(np.ones(4, "uint32"))
            except KeyboardInterrupt:
                print("interrupted")
            """
        )
        assert program.read_line() == "ready"
        host.driver.kill()
        assert program.read_line() == "lost"
        time.sleep(0.1)
        program._popen.send_signal(signal.SIGINT)
        assert program.read_line() == "interrupted"
        assert program.wait() == 0


def test_a_forked_child_is_told_and_harms_nobody(host: Cluster, ear: Ear, name: str) -> None:
    """Every handle remembers its process; the child's end ends nothing of the parent's."""
    program = host.run_python(
        SCRIPT_FORKS
        + f"""
import os
out = pool.producer({name!r}, dtype="uint32", shape=(4,))
inp = pool.consumer({name!r}, wait_s=5)
out.publish(np.full(4, 1, "uint32"))
frame = inp.poll(timeout=5)
child = os.fork()
if child == 0:
    publish, claim = lambda: out.publish(np.ones(4, "uint32")), lambda: out.claim((4,), "uint32")
    for what in (publish, claim, inp.poll, pool.streams, lambda: pool.producer("other", max_bytes=1)):
        try:
            what()
        except tp.ForkedProcessError:
            print("told")
        except BaseException as e:
            print(type(e), e)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent")
time.sleep(1)
out.publish(np.full(4, 3, "uint32"))
print(frame.copy()[0], inp.poll(timeout=5).copy()[0], out.stats.lease_losses)
pool.close()
"""
    )
    assert [program.read_line() for _ in range(5)] == ["told"] * 5
    assert program.read_line() == "parent"
    assert program.read_line() == "1 3 0"
    assert program.wait() == 0
    assert program.errors() == ""


@pytest.mark.parametrize("how", ["pass", "sys.exit(0)", "del pool, out"])
def test_a_program_may_end_without_closing(host: Cluster, ear: Ear, name: str, how: str) -> None:
    """With agents running, frames held and a claim open: no crash, no hang, and its leases end."""
    program = host.run_python(
        f"""
        out = pool.producer({name!r}, dtype="uint32", shape=(4,))
        inp = pool.consumer({name!r}, wait_s=5)
        out.publish(np.full(4, 1, "uint32"))
        held = inp.poll(timeout=5)
        view = held.array
        slot = out.claim((4,), "uint32")
        print(out.stream_id)
        {how}
        """
    )
    stream_id = int(program.read_line())
    started = time.monotonic()
    assert program.wait() == 0, program.errors()
    assert time.monotonic() - started < 5
    assert program.errors() == ""
    with ear.admin() as admin:
        wait_until(lambda: admin.leases(stream_id) == [], what="its leases end")


def test_a_hundred_thousand_frames_may_be_held(host: Cluster, pool: Pool, name: str) -> None:
    """Each knows whether it still holds; letting them go frees everything."""
    out = pool.producer(name, dtype="uint32", shape=(4,), slots=64)
    inp = pool.consumer(name, max_outstanding_seq_gap=0, wait_s=5)
    frames = []
    array = np.zeros(4, "uint32")
    for value in range(100_000):
        array[0] = value
        out.publish(array)
        frames.append(inp.poll(timeout=5))
    assert [frame.seq for frame in frames[:3]] == [0, 1, 2]
    assert sum(frame.still_valid() for frame in frames) == 64
    inp.close()
    assert not any(frame.still_valid() for frame in frames)
    out.close()
    del frames
    assert mapped_regions(os.getpid(), host) == []

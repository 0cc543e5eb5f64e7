"""Forks, Ctrl-C, and programs that end without a word; reliability 25."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import numpy as np
import pytest

from forking import SCRIPT_FORKS
from pool_hosts import Ear, mapped_regions, quick_host
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import EmbeddedMediaDriver


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


def test_ctrl_c_in_the_wait_of_close_closes_all_the_same(host: Cluster, name: str) -> None:
    program = host.run_python(
        f"""
        out = pool.producer({name!r}, dtype="uint32", shape=(4,))
        inp = pool.consumer({name!r}, wait_s=5)
        out.publish(np.ones(4, "uint32"))
        while not out._session.has_consumers: time.sleep(0.01)
        print("ready")
        try:
            out.close(linger_s=60)
        except KeyboardInterrupt:
            print("interrupted", out.closed)
        pool.producer({name!r}, dtype="uint32", shape=(4,)).close()
        print("free again")
        """
    )
    assert program.read_line() == "ready"
    time.sleep(0.1)
    program._popen.send_signal(signal.SIGINT)
    assert program.read_line() == "interrupted True"
    assert program.read_line() == "free again"
    assert program.wait() == 0


def test_a_forked_child_may_leave_all_blocks(host: Cluster, name: str) -> None:
    program = host.run_python(
        SCRIPT_FORKS
        + f"""
import os, sys
with pool.producer({name!r}, dtype="uint32", shape=(4,)) as out, pool.consumer({name!r}, wait_s=5) as inp:
    out.publish(np.ones(4, "uint32"))
    assert inp.poll(timeout=5) is not None
    child = os.fork()
    if child == 0:
        sys.exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    out.publish(np.ones(4, "uint32"))
    print(inp.poll(timeout=5).seq)
"""
    )
    assert [program.read_line(), program.read_line()] == ["5", "1"]
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
    for what in (publish, claim, inp.poll, pool.streams, lambda: pool.producer("other", max_bytes=1),
                 lambda: inp.on_frame(print)):
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
    assert [program.read_line() for _ in range(6)] == ["told"] * 6
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


@pytest.mark.parametrize("attempt", range(6))
def test_a_program_may_end_while_its_threads_wait_for_frames(host: Cluster, name: str, attempt: int) -> None:
    """Daemon threads in native calls that run Python code below them: one in three ended by an abort."""
    program = host.run_python(
        f"""
        import threading
        out = pool.producer({name!r}, dtype="uint8", shape=(64,))
        def publish():
            try:
                while True: out.publish(np.zeros(64, "uint8"))
            except tp.TensorPoolError:
                pass
        threading.Thread(target=publish, daemon=True).start()
        pool.consumer({name!r}).on_frame(lambda frame: None)
        pool.consumer("nobody publishes this").on_frame(print)
        time.sleep(0.2 + {attempt} / 50)
        """
    )
    assert program.wait() == 0, program.errors()
    assert program.errors() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_is_told_at_once_that_it_may_not(host: Cluster) -> None:
    os.chmod(host.directory, 0o755)  # noqa: PTH101 - the host's own directory; what is in it stays closed
    script = f"""
        import os, sys, time
        import tensor_pool as tp, tensor_pool.host.connection
        config = tp.load_config(overrides={host.settings!r}, environ={{}}, search=False)
        os.setgid(65534)
        os.setuid(65534)
        started = time.monotonic()
        try:
            tp.connect(config=config)
        except tp.NoDriverError as e:
            print(e.message, "|", e.hint)
        print(time.monotonic() - started < 3)
        from tensor_pool.ops.doctor.look_services import find_leftovers
        from pathlib import Path
        print(find_leftovers(Path("/dev/shm"), besides=""))
    """
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    said, quickly, _ = child.stdout.splitlines()
    assert "this user may not use the media driver" in said
    assert "Permission denied" in said
    assert "group" in said
    assert quickly == "True"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("command", ["streams", "driver status", "media status", "doctor"])
def test_another_user_is_not_told_that_the_media_driver_is_dead(command: str) -> None:
    """A umask of 077 leaves others not even a look at whether it lives."""
    script = """
        import os, sys
        from tensor_pool.ops.cli.root import run
        run([*sys.argv[1:], "--aeron-dir", "/nonexistent"])  # loads what this user may load
        print("-- now as another")
        os.setgid(65534)
        os.setuid(65534)
        run(sys.argv[1:])
    """
    with EmbeddedMediaDriver.temporary() as media:
        os.chmod(media.aeron_dir, 0o700)  # noqa: PTH101 - a text
        said = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *command.split(), "--aeron-dir", media.aeron_dir],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
    text = said.stdout.partition("-- now as another")[2]
    assert "start it under `umask 007`" in text
    assert "start one with" not in text
    assert "none at" not in text


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

"""Handles after close, in forked children and at the end of the interpreter; Ctrl-C while waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest

from forking import forks
from tensor_pool import _native, errors


def test_use_after_close_is_an_error_and_closing_twice_is_not(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    for handle in (writer, reader):
        assert not handle.closed
        handle.close()
        handle.close()
        assert handle.closed
        assert "closed" in repr(handle)
    calls = [
        lambda: writer.publish(b"x"),
        lambda: writer.claim((1,), 1),
        writer.ring,
        writer.prefault,
        lambda: writer.next_seq,
        reader.poll,
        lambda: reader.read(0),
        lambda: reader.wait(0),
        lambda: reader.seek(0),
        reader.newest,
        reader.check_files,
        lambda: reader.gaps,
        lambda: _native.wait_any([reader], 0),
    ]
    for call in calls:
        with pytest.raises(errors.ClosedError, match="is closed"):
            call()


def test_context_managers_close(make_ring):
    ring = make_ring()
    with ring.writer() as writer, ring.reader() as reader:
        writer.publish(b"x")
        assert reader.poll().seq == 0
    assert writer.closed
    assert reader.closed


@forks
def test_only_the_warning_about_forks_is_let_through():
    fork = "This process (pid=7) is multi-threaded, use of fork() may lead to deadlocks in the child."
    warnings.warn(fork, DeprecationWarning, stacklevel=1)
    with pytest.raises(DeprecationWarning):
        warnings.warn("something else", DeprecationWarning, stacklevel=1)


@forks
def test_a_forked_child_gets_an_error_instead_of_the_parents_ring(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    writer.publish(b"x")
    frame, slot = reader.poll(), writer.claim((1,), 1)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        outcomes = []
        calls = (
            lambda: writer.publish(b"y"),
            writer.close,
            reader.poll,
            lambda: reader.wait(1),
            frame.still_valid,
            frame.copy,
            lambda: memoryview(frame),
            lambda: frame.array,
            frame.__enter__,
            lambda: slot.array,
            lambda: memoryview(slot),
            slot.commit,
        )
        for call in calls:
            try:
                call()
                outcomes.append("none")
            except errors.ForkedProcessError:
                outcomes.append("forked")
            except BaseException as e:
                outcomes.append(repr(e))
        os.write(write_end, " ".join(outcomes).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        report = pipe.read()
    os.waitpid(child, 0)
    assert report.split() == ["forked"] * 12
    slot.commit()
    assert reader.poll().seq == 1, "the parent goes on"


@forks
def test_a_forked_child_that_just_ends_does_not_abort_the_parents_claim(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    slot = writer.claim((1,), 1)
    child = os.fork()
    if child == 0:
        del slot
        os._exit(0)
    os.waitpid(child, 0)
    assert slot.commit() == 0
    assert reader.poll().seq == 0


def test_closing_from_another_thread_ends_no_wait_badly(make_ring):
    ring = make_ring()
    reader = ring.reader()
    assert reader.poll() is None
    raised = []

    def wait() -> None:
        try:
            reader.wait(0.2)
        except errors.ClosedError as e:
            raised.append(e)

    waiter = threading.Thread(target=wait)
    waiter.start()
    reader.close()
    waiter.join()
    assert len(raised) == 1, "closed before or during the wait, never used after"


@pytest.mark.parametrize("end", ["close", "revoke"])
@pytest.mark.parametrize("spin", [0.0, 60.0])
@pytest.mark.parametrize("together", [False, True])
def test_closing_ends_a_wait_in_another_thread_soon(make_ring, end, spin, together):
    reader, other = make_ring().reader(), make_ring().reader()
    assert [reader.poll(), other.poll()] == [None, None]
    ended: list[tuple[type[BaseException], float]] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            _native.wait_any([other, reader], 60, spin=spin) if together else reader.wait(60, spin)
        except errors.ClosedError as e:
            ended.append((type(e), time.monotonic()))

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiting.wait()
    time.sleep(0.02)  # it sleeps by now, most likely; before or during, it has to end
    start = time.monotonic()
    getattr(reader, end)()
    waiter.join(30)
    assert [kind for kind, _ in ended] == [errors.ClosedError]
    assert ended[0][1] - start < 0.1 + 0.4, "100 ms, and something for a busy machine"


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("call", ["reader.wait(60)", "_native.wait_any([reader], 60)"])
def test_ctrl_c_ends_a_wait(make_ring, call):
    ring = make_ring()
    code = f"""
        import sys
        from tensor_pool import _native
        directory = sys.argv[1]
        address = _native.RingAddress(stream_id=10_000, epoch=5, nslots=8,
            header_uri=f"shm:file?path={{directory}}/header.ring",
            pools=[(1, 4096, f"shm:file?path={{directory}}/1.pool")])
        reader = _native.RingReader(address, base_dirs=[directory])
        assert reader.poll() is None
        print("waiting", flush=True)
        {call}
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(ring.directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "waiting\n"
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in stderr
    assert time.monotonic() - start < 15


def test_everything_alive_at_the_end_of_the_interpreter_is_fine(make_ring):
    ring = make_ring()
    result = run(
        """
        import sys, numpy as np
        from tensor_pool import _native
        directory = sys.argv[1]
        address = _native.RingAddress(stream_id=10_000, epoch=5, nslots=8,
            header_uri=f"shm:file?path={directory}/header.ring",
            pools=[(1, 4096, f"shm:file?path={directory}/1.pool")])
        writer = _native.RingWriter(address, base_dirs=[directory])
        reader = _native.RingReader(address, base_dirs=[directory])
        writer.publish(np.ones(8))
        frame = reader.poll()
        array, dl, slot = frame.array, np.from_dlpack(frame), writer.claim((4,), 1)
        slot_array = slot.array
        cycle = [frame, slot]; cycle.append(cycle)
        sys.stdout.write("done")
        """,
        str(ring.directory),
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "done", "")


def test_a_second_writer_goes_on_where_the_first_stopped(make_ring):
    ring = make_ring()
    with ring.writer() as first:
        assert [first.publish(b"x") for _ in range(3)] == [0, 1, 2]
    with ring.writer() as second:
        assert (second.next_seq, second.publish(b"y")) == (3, 3)
    reader = ring.reader()
    assert [reader.poll().seq for _ in range(4)] == [0, 1, 2, 3]


RING_OF_ARGV = """
import sys, threading, time
import numpy as np
from tensor_pool import _native, errors
directory = sys.argv[1]
address = _native.RingAddress(stream_id=10_000, epoch=5, nslots=8,
    header_uri=f"shm:file?path={directory}/header.ring",
    pools=[(1, 4096, f"shm:file?path={directory}/1.pool")])
writer = _native.RingWriter(address, base_dirs=[directory])
reader = _native.RingReader(address, base_dirs=[directory])
"""


def test_raising_and_dropping_claims_in_two_threads_never_deadlocks(make_ring):
    result = run(
        RING_OF_ARGV
        + """
sys.setswitchinterval(1e-6)
end = time.monotonic() + 2
def refused():
    while time.monotonic() < end:
        try:
            writer.claim((1 << 20,), 1)
        except errors.FrameTooLargeError:
            pass
def dropped():
    while time.monotonic() < end:
        try:
            claim = writer.claim((1,), 1)
            del claim
        except errors.ClaimError:
            pass  # the other thread was stopped in between for more than a ring
threads = [threading.Thread(target=work) for work in (refused, dropped, refused, dropped)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
""",
        str(make_ring().directory),
    )
    assert (result.stdout, result.stderr) == ("done\n", "")


def test_a_finaliser_may_use_the_reader_while_it_raises(make_ring):
    result = run(
        RING_OF_ARGV
        + """
import gc
class Watcher:
    def __init__(self): self.me = self
    def __del__(self): reader.next_seq
gc.set_threshold(1)
reader.close()
for _ in range(200):
    Watcher()
    try:
        reader.poll()
    except errors.ClosedError:
        pass
print("done")
""",
        str(make_ring().directory),
    )
    assert result.stdout == "done\n", result.stderr


@pytest.mark.parametrize("call", ["reader.wait(3600)", "_native.wait_any([reader], 3600)"])
def test_the_interpreter_ends_while_a_daemon_thread_waits(make_ring, call):
    start = time.monotonic()
    result = run(
        RING_OF_ARGV
        + f"""
assert reader.poll() is None
waiting = threading.Event()
def wait():
    waiting.set()
    {call}
threading.Thread(target=wait, daemon=True).start()
waiting.wait()
print("done")
""",
        str(make_ring().directory),
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")
    assert time.monotonic() - start < 20


def test_a_forked_child_may_ask_whether_a_busy_handle_is_closed(make_ring):
    ring = make_ring(nslots=2, strides=(1 << 25,))
    writer = ring.writer()
    array, stop = np.ones(1 << 25, "u1"), threading.Event()

    def publish() -> None:
        while not stop.is_set():
            writer.publish(array)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if writer.closed and "closed" in repr(writer) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("timeout", [float("nan"), "x", None])
def test_time_outs_that_are_no_numbers_are_refused(make_ring, timeout):
    reader = make_ring().reader()
    assert reader.poll() is None
    with pytest.raises((ValueError, TypeError)):
        reader.wait(timeout)
    assert not reader.wait(-5)


def test_importing_the_native_module_opens_nothing():
    result = run(
        """
        import os
        before = set(os.listdir("/proc/self/fd")), os.listdir("/proc/self/task")
        import tensor_pool._native
        after = set(os.listdir("/proc/self/fd")), os.listdir("/proc/self/task")
        print(before == after)
        """
    )
    assert result.stdout == "True\n"

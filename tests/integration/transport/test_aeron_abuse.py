"""Whatever a program does with Aeron's handles, it gets an error or a clean end, never a crash or a hang.

Each case runs in an interpreter of its own, since what must not happen would take this one along.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forking import SCRIPT_FORKS
from tensor_pool.errors import ConfigError, NoMediaDriverError
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver, SpawnedMediaDriver, is_alive, retry_for

RunScript = Callable[..., "subprocess.CompletedProcess[str]"]
Eventually = Callable[[Callable[[], object]], None]

PRELUDE = """
import atexit, gc, os, signal, sys, threading, time
from tensor_pool.errors import *
from tensor_pool.transport import *

IPC = "aeron:ipc?term-length=64k"
driver = EmbeddedMediaDriver(sys.argv[1])
client = AeronClient.connect(sys.argv[1])
subscription = client.add_subscription(IPC, 7)
publication = client.add_publication(IPC, 7)
counter = client.add_counter(4000, "abused")
assert publication.wait_connected(20_000)
"""


def assert_clean(result: subprocess.CompletedProcess[str], expected: str = "done\n") -> None:
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == expected


class TestInterpreterExit:
    @pytest.mark.parametrize(
        "ending",
        [
            pytest.param("", id="nothing was closed"),
            pytest.param(
                "ring = [client, publication]; ring.append(ring); del client, publication", id="in a cycle"
            ),
            pytest.param("sys.keep = [subscription, publication, client, driver]", id="kept by a module"),
            pytest.param("driver.close()", id="only the driver was closed"),
            pytest.param("del driver", id="the driver went first"),
            pytest.param("client.close()", id="only the client was closed"),
            pytest.param(
                "atexit.register(lambda: (publication.offer(b'x'), client.close()))", id="used by atexit"
            ),
            pytest.param("atexit.register(driver.close)", id="driver closed by atexit"),
            pytest.param(
                "threading.Thread(target=lambda: (time.sleep(0.1), client.close())).start()", id="thread"
            ),
            pytest.param(
                "class Late:\n    def __del__(self): client.close()\nsys.late = Late()", id="in a destructor"
            ),
        ],
    )
    def test_is_clean_with_open_handles(self, run_script: RunScript, aeron_dir: str, ending: str) -> None:
        assert_clean(run_script(f"{PRELUDE}\n{ending}\nprint('done')", aeron_dir))
        assert not Path(aeron_dir).exists()

    @pytest.mark.parametrize(
        "work",
        [
            pytest.param("subscription.receive()", id="polling"),
            pytest.param("publication.offer(b'x' * 100)", id="offering"),
            pytest.param("big.offer(large); big_subscription.receive(1000)", id="offering without the lock"),
            pytest.param("counter.add(1)", id="counting"),
            pytest.param("client.add_subscription(IPC, 8).close()", id="adding"),
            pytest.param(
                "AeronClient.connect('/nonexistent/aeron', connect_timeout_ms=100_000)", id="connecting"
            ),
            pytest.param("subscription.poll(lambda message, header: None)", id="polling with a handler"),
            pytest.param("never.wait_connected(100_000)", id="waiting"),
            pytest.param(
                "EmbeddedMediaDriver(f'{sys.argv[1]}-{threading.get_ident()}').close()", id="starting drivers"
            ),
        ],
    )
    def test_is_clean_while_daemon_threads_work(
        self, run_script: RunScript, aeron_dir: str, work: str
    ) -> None:
        script = f"""{PRELUDE}
never = client.add_publication(IPC, 9)
big_subscription = client.add_subscription("aeron:ipc?term-length=16m", 10)
big = client.add_publication("aeron:ipc?term-length=16m", 10)
big.wait_connected(20_000)
large = bytes(1 << 20)
started = threading.Event()

def work():
    started.set()
    try:
        while True:
            {work}
    except (TensorPoolError, ImportError, RuntimeError):
        pass

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.05)
print("done")
"""
        for _ in range(3):
            assert_clean(run_script(script, aeron_dir))

    def test_is_clean_with_a_spawned_driver(self, run_script: RunScript, aeron_dir: str) -> None:
        script = """
import sys
from tensor_pool.transport import *
driver = SpawnedMediaDriver(sys.argv[1])
client = AeronClient.connect(sys.argv[1])
print(driver.pid)
"""
        result = run_script(script, aeron_dir)
        assert (result.returncode, result.stderr) == (0, "")
        with pytest.raises(ProcessLookupError):
            os.kill(int(result.stdout), 0)
        assert not Path(aeron_dir).exists()


class TestClosing:
    def test_in_every_order_and_twice(self, run_script: RunScript, aeron_dir: str) -> None:
        script = f"""{PRELUDE}
import itertools
client.close()
driver.close()
for order in itertools.permutations(range(4)):
    driver = EmbeddedMediaDriver(sys.argv[1])
    client = AeronClient.connect(sys.argv[1])
    subscription = client.add_subscription(IPC, 7)
    publication = client.add_publication(IPC, 7)
    for which in order + order:
        (driver, client, subscription, publication)[which].close()
    for use in (lambda: publication.offer(b"x"), subscription.receive, client.check):
        try:
            use()
        except ClosedError:
            continue
        raise AssertionError(order)
print("done")
"""
        assert_clean(run_script(script, aeron_dir))

    def test_from_many_threads_at_once_while_all_are_used(
        self, run_script: RunScript, aeron_dir: str
    ) -> None:
        script = f"""{PRELUDE}
for round in range(20):
    client = AeronClient.connect(sys.argv[1])
    subscription = client.add_subscription(IPC, 7)
    publication = client.add_publication(IPC, 7)
    counter = client.add_counter(4000, "abused")
    def loop(turn):
        try:
            while True:
                turn()
        except ClosedError:
            pass
    turns = [lambda: publication.offer(b"x" * 100), subscription.receive, lambda: counter.add(1),
             client.check, subscription.images, lambda: client.add_subscription(IPC, 8).close()]
    users = [threading.Thread(target=loop, args=(turn,)) for turn in turns]
    closed = (publication, subscription, client, client, counter)
    closers = [threading.Thread(target=handle.close) for handle in closed]
    for thread in users: thread.start()
    time.sleep(0.002 * (round % 5))
    for thread in closers: thread.start()
    for thread in users + closers:
        thread.join(20)
        assert not thread.is_alive()
print("done")
"""
        assert_clean(run_script(script, aeron_dir))


class TestFork:
    SCRIPT = f"""{SCRIPT_FORKS}{PRELUDE}
uses = {{
    "driver.close": driver.close, "client.check": client.check, "client.close": client.close,
    "add_publication": lambda: client.add_publication(IPC, 8),
    "add_counter": lambda: client.add_counter(4000, "x"),
    "offer": lambda: publication.offer(b"x"), "try_claim": lambda: publication.try_claim(b"x"),
    "connected": lambda: publication.connected, "publication.close": publication.close,
    "receive": subscription.receive, "images": subscription.images, "subscription.close": subscription.close,
    "counter.add": lambda: counter.add(1), "counter.close": counter.close,
}}
pid = os.fork()
if pid == 0:
    wrong = []
    for name, use in uses.items():
        try:
            use()
            wrong.append(name)
        except ForkedProcessError as error:
            assert error.hint
    print(wrong, flush=True)
    own = EmbeddedMediaDriver(sys.argv[1] + "-own")  # a child may have its own
    AeronClient.connect(own.aeron_dir).add_publication(IPC, 1)
    sys.exit(17)                                    # collects everything that was inherited
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 17, status
publication.offer(b"the parent goes on")
assert subscription.receive() == [b"the parent goes on"]
assert counter.add(1) == 1 and driver.is_alive() and os.path.exists(sys.argv[1])
print("done")
"""

    def test_children_are_told_and_parents_do_not_notice(self, run_script: RunScript, aeron_dir: str) -> None:
        assert_clean(run_script(self.SCRIPT, aeron_dir), "[]\ndone\n")

    def test_while_other_threads_hold_locks(self, run_script: RunScript, aeron_dir: str) -> None:
        script = f"""{SCRIPT_FORKS}{PRELUDE}
def work(turn):
    try:
        while True:
            turn()
    except TensorPoolError:
        pass  # the end of the interpreter closes everything under threads that still run
for turn in (lambda: publication.offer(b"x"), subscription.receive, client.check):
    threading.Thread(target=work, args=(turn,), daemon=True).start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        try:
            subscription.receive()
        except ForkedProcessError:
            del publication, subscription, client, driver
            gc.collect()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
print("done")
"""
        assert_clean(run_script(script, aeron_dir))

    def test_a_spawned_driver_survives_the_children_of_its_owner(
        self, run_script: RunScript, aeron_dir: str
    ) -> None:
        script = f"""{SCRIPT_FORKS}
import os, sys
from tensor_pool.errors import ForkedProcessError
from tensor_pool.transport import *
driver = SpawnedMediaDriver(sys.argv[1])
pid = os.fork()
if pid == 0:
    for use in (driver.close, driver.is_alive):
        try:
            use()
        except ForkedProcessError:
            continue
        os._exit(1)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert driver.is_alive() and is_alive(sys.argv[1])
driver.close()
print("done")
"""
        assert_clean(run_script(script, aeron_dir))


class TestCtrlC:
    """Every call that waits lets a signal in at once."""

    @pytest.mark.parametrize(
        "waiting",
        [
            pytest.param(
                "AeronClient.connect('/nonexistent/aeron', connect_timeout_ms=60_000)", id="connect"
            ),
            pytest.param("stopped(); client.add_publication(IPC, 8)", id="add_publication"),
            pytest.param("stopped(); client.add_subscription(IPC, 8)", id="add_subscription"),
            pytest.param("stopped(); client.add_counter(4000, 'x')", id="add_counter"),
            pytest.param(
                "client.add_publication(IPC, 8).wait_connected(60_000)", id="publication.wait_connected"
            ),
            pytest.param(
                "client.add_subscription(IPC, 8).wait_connected(60_000)", id="subscription.wait_connected"
            ),
            pytest.param("pressed().offer(bytes(1000))", id="offer with retries"),
            pytest.param("never_ready()", id="SpawnedMediaDriver"),
        ],
    )
    def test_ends_it(self, aeron_dir: str, tmp_path: Path, waiting: str) -> None:
        stub = tmp_path / "python-that-says-nothing"
        stub.write_text("#!/bin/sh\nexec sleep 60\n")
        stub.chmod(0o755)
        script = f"""
import os, signal, sys, time
from tensor_pool.errors import *
from tensor_pool.transport import *
IPC = "aeron:ipc?term-length=64k"
driver = SpawnedMediaDriver(sys.argv[1])
client = AeronClient.connect(sys.argv[1], driver_timeout_ms=60_000)

def stopped():
    os.kill(driver.pid, signal.SIGSTOP)
    for task in os.listdir(f"/proc/{{driver.pid}}/task"):
        while open(f"/proc/{{driver.pid}}/task/{{task}}/stat").read().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)

def pressed():
    client.held = client.add_subscription(IPC + "|tether=true", 9)
    publication = client.add_publication(IPC, 9, policy=retry_for(60_000))
    publication.wait_connected(20_000)
    while publication.native.offer(bytes(1000)) != -2:
        pass
    return publication

def never_ready():
    sys.executable = {str(stub)!r}
    SpawnedMediaDriver(sys.argv[1] + "-2", start_timeout_ms=60_000)

signal.signal(signal.SIGUSR1, lambda *_: None)
print("waiting", flush=True)
try:
    {waiting}
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill(driver.pid, signal.SIGCONT)
client.close()
driver.close()
print("done", flush=True)
"""
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", script, aeron_dir],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            time.sleep(0.3)  # into the call; a signal that comes earlier would end it just the same
            process.send_signal(signal.SIGUSR1)  # a handler that does not raise changes nothing
            time.sleep(0.1)
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - sent < 2, "the signal had to wait"
            out, err = process.communicate(timeout=30)
            assert (process.returncode, out, err) == (0, "done\n", "")
        finally:
            process.kill()
            process.communicate()


class TestMediaDriverDeath:
    def test_by_kill_is_noticed_within_the_timeout(
        self, spawned_driver: SpawnedMediaDriver, eventually: Eventually
    ) -> None:
        with AeronClient.connect(
            spawned_driver.aeron_dir, driver_timeout_ms=1_000, keepalive_interval_ms=100
        ) as client:
            subscription = client.add_subscription("aeron:ipc", 7)
            publication = client.add_publication("aeron:ipc", 7, policy=retry_for(60_000))
            assert publication.wait_connected(20_000)
            os.kill(spawned_driver.pid, signal.SIGKILL)
            killed = time.monotonic()
            eventually(lambda: client.closed)
            assert time.monotonic() - killed < 5
            for use in (client.check, lambda: publication.offer(b"x"), subscription.receive):
                with pytest.raises(NoMediaDriverError, match=spawned_driver.aeron_dir):
                    use()
            assert [error.code for error in client.take_errors()] == [1000]
        assert not spawned_driver.is_alive()

    def test_that_never_lived_is_said_within_the_timeout(self, aeron_dir: str) -> None:
        started = time.monotonic()
        with pytest.raises(NoMediaDriverError, match="there is no such directory") as caught:
            AeronClient.connect(aeron_dir, connect_timeout_ms=200)
        assert 0.2 <= time.monotonic() - started < 5
        assert "tpool media run" in (caught.value.hint or "")

    @pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 1e12])
    def test_is_not_waited_for_with_an_absurd_timeout(self, aeron_dir: str, wrong: float) -> None:
        for name in ("connect_timeout_ms", "driver_timeout_ms", "keepalive_interval_ms", "idle_sleep_ms"):
            with pytest.raises(ConfigError, match=name):
                AeronClient.connect(aeron_dir, **{name: wrong})  # type: ignore[arg-type]

    def test_of_somebody_else_that_may_only_be_read_is_said(
        self, media_driver: EmbeddedMediaDriver, run_script: RunScript
    ) -> None:
        Path(media_driver.aeron_dir, "cnc.dat").chmod(0o444)
        script = """
import os, sys
from tensor_pool.errors import NoMediaDriverError
from tensor_pool.transport import AeronClient
if os.geteuid() == 0:
    os.setuid(65534)  # root may write everywhere
try:
    AeronClient.connect(sys.argv[1], connect_timeout_ms=0)
except NoMediaDriverError as error:
    assert "this user may not use the media driver" in error.message, error
    print("done")
"""
        assert_clean(run_script(script, media_driver.aeron_dir))

    def test_can_be_followed_by_another_on_the_same_directory(
        self, aeron_dir: str, eventually: Eventually
    ) -> None:
        with SpawnedMediaDriver(aeron_dir) as first:
            os.kill(first.pid, signal.SIGKILL)
            eventually(lambda: not is_alive(aeron_dir))
            with pytest.raises(NoMediaDriverError, match="was killed"):
                AeronClient.connect(aeron_dir, connect_timeout_ms=0)
            with SpawnedMediaDriver(aeron_dir), AeronClient.connect(aeron_dir) as client:
                client.check()

    def test_of_a_stopped_client_is_told_and_others_go_on(
        self, aeron_dir: str, run_script: RunScript
    ) -> None:
        script = """
import os, signal, subprocess, sys, time
from tensor_pool.errors import *
from tensor_pool.transport import *
with EmbeddedMediaDriver(sys.argv[1], MediaDriverOptions(client_liveness_ms=500)) as driver:
    pid = os.getpid()
    child = subprocess.Popen([sys.executable, "-c", '''
import sys, time
from tensor_pool.errors import TransportError, NoMediaDriverError
from tensor_pool.transport import *
client = AeronClient.connect(sys.argv[1], keepalive_interval_ms=100)
print("ready", flush=True)
try:
    while True:
        client.check()
        time.sleep(0.01)
except NoMediaDriverError:
    print("wrong error")
except TransportError as error:
    print("gave up")
client.close()
AeronClient.connect(sys.argv[1]).close()
print("connected again")
''', sys.argv[1]], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\\n"
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(child.pid, signal.SIGCONT)
    out, _ = child.communicate(timeout=20)
    assert out == "gave up\\nconnected again\\n", out
print("done")
"""
        assert_clean(run_script(script, aeron_dir))

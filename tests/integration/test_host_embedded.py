"""A host inside one process leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp
from forking import SCRIPT_FORKS


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-") as directory:
        yield Path(directory)


def publish_one(base: Path, **settings: object) -> None:
    places = {"shm.shm_base_dir": str(base), "log.level": "warning", **settings}
    with (
        tp.connect(embedded=True, settings=places) as pool,
        pool.producer("a", dtype="u1", shape=(4,)) as out,
    ):
        out.publish(np.zeros(4, "u1"))
        assert list(base.rglob("header.ring")), "there was something to leave behind"


def test_a_private_instance_goes_with_all_its_files(base: Path) -> None:
    for _ in range(2):
        publish_one(base)
    (user,) = base.iterdir()
    assert list(user.iterdir()) == []


def test_an_instance_that_was_named_stays(base: Path) -> None:
    publish_one(base, **{"driver.instance_id": "mine"})
    assert [file.name for file in base.rglob("driver-state.json")] == ["driver-state.json"]


def run(script: str, *arguments: object, base: Path) -> str:
    """A program that logs as any other does; what it has printed. It must say nothing else."""
    result = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "TENSOR_POOL__SHM__SHM_BASE_DIR": str(base)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_drivers_that_run_already_are_to_be_joined(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"shm.shm_base_dir": str(base)}
    with tp.connect(embedded=True, settings=settings) as host:
        monkeypatch.setenv("TENSOR_POOL__AERON__DIR", host.aeron_dir)
        with pytest.raises(tp.TransportError, match=r"embedded=True .* \(pid \d+\) already serves") as caught:
            tp.connect(embedded=True, settings=settings)
        assert caught.value.where == "aeron.dir, from environment TENSOR_POOL__AERON__DIR"
        assert "leave out embedded=True" in caught.value.hint
        with tp.connect(settings=settings) as joined:
            assert joined.streams() == []


AGAIN = """
import tensor_pool as tp
pool = tp.connect(embedded=True)
pool = tp.connect(embedded=True)  # a cell that is run again
out = pool.producer("a", dtype="u1", shape=(4,))
pool = tp.connect(embedded=True)  # `out` still needs the one before
out = pool.producer("a", dtype="u1", shape=(4,))
print(pool.aeron_dir)
"""

DROPPED = """
import gc, threading, time
from pathlib import Path
import tensor_pool as tp

def use():
    pool = tp.connect(embedded=True)
    inp, out = pool.consumer("a"), pool.producer("a", dtype="u1", shape=(4,))
    inp.fileno()
    out.publish(bytes(4))
    assert inp.poll(timeout=5) is not None
    return pool.aeron_dir

places = [use() for _ in range(3)]
gc.collect()
deadline = time.monotonic() + 20
while any(map(Path.exists, map(Path, places))) or threading.active_count() > 1:
    assert time.monotonic() < deadline, (places, threading.enumerate())
    gc.collect()
    time.sleep(0.05)
use()
gc.collect()  # and the program's end waits for this one
"""

ON_ITS_OWN_THREAD = """
import gc, time
from pathlib import Path
import tensor_pool as tp

gc.disable()
pool = tp.connect(embedded=True)
pool.producer("a", dtype="u1", shape=(4,))
place, submit = Path(pool.aeron_dir), pool._context.submit
del pool
submit(gc.collect)  # where it collects is the thread that has to end
deadline = time.monotonic() + 20
while place.exists():
    assert time.monotonic() < deadline
    time.sleep(0.01)
"""

FORKED = (
    """
import gc, os
from pathlib import Path
import tensor_pool as tp
"""
    + SCRIPT_FORKS
    + """
pool = tp.connect(embedded=True)
inp, out = pool.consumer("a"), pool.producer("a", dtype="u1", shape=(4,))
child = os.fork()
del pool, out
if not child:
    del inp
    gc.collect()
    raise SystemExit
assert os.waitpid(child, 0)[1] == 0
assert inp.poll() is None, "its parent's is there"
"""
)

BESIDE_ANOTHER = """
import sys
import tensor_pool as tp
first = tp.connect(sys.argv[1])
second = tp.connect(embedded=True)
out = second.producer("a", dtype="u1", shape=(4,))
"""


@pytest.mark.parametrize("script", [AGAIN, DROPPED, ON_ITS_OWN_THREAD, FORKED])
def test_what_a_program_drops_or_forgets_ends_in_order_and_without_a_word(base: Path, script: str) -> None:
    printed = run(script, base=base)
    assert not printed or not Path(printed.strip()).exists()
    (user,) = base.iterdir()
    assert list(user.iterdir()) == []


def test_the_end_of_a_program_closes_pools_before_embedded_drivers(base: Path) -> None:
    with tp.connect(embedded=True, settings={"shm.shm_base_dir": str(base)}) as host:
        run(BESIDE_ANOTHER, host.aeron_dir, base=base)


USED_TO_THE_END = """
import sys, threading
import tensor_pool as tp
pool = tp.connect(embedded=True)
out = pool.producer("a", dtype="u1", shape=(4,))
inp, other = pool.consumer("a", wait_s=5), pool.consumer("b")
uses = {
    "poll": lambda: inp.poll(timeout=5),
    "poll at once": inp.poll,
    "poll without a stream": lambda: other.poll(timeout=5),
    "latest": inp.latest,
    "wait": lambda: tp.wait([inp, other], timeout=5),
    "publish": lambda: out.publish(bytes(4)),
    "streams": pool.streams,
}
begun = threading.Event()

def loop(use):
    use()
    begun.set()
    while True:
        use()

threading.Thread(target=loop, args=(uses[sys.argv[1]],), daemon=True).start()
if sys.argv[1] not in ("poll", "wait", "poll without a stream"):
    begun.wait()
"""


@pytest.mark.parametrize(
    "use", ["poll", "poll at once", "poll without a stream", "latest", "wait", "publish", "streams"]
)
def test_a_daemon_thread_that_uses_a_pool_to_the_end_of_the_program_ends_silently(
    base: Path, use: str
) -> None:
    run(USED_TO_THE_END, use, base=base)


def test_the_main_thread_is_told_that_the_end_of_the_program_has_closed_its_pool(base: Path) -> None:
    script = """
import atexit
import tensor_pool as tp
from tensor_pool import _native  # whose own hook comes later then

def ask():
    try:
        inp.poll()
    except tp.ClosedError as e:
        print(e)

atexit.register(ask)  # called when the hook of the pools has been
pool = tp.connect(embedded=True)
inp = pool.consumer("a")
"""
    assert run(script, base=base) == "the consumer of stream 'a' was closed\n"

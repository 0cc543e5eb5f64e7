"""Programs that are killed between any two steps: the others go on, and nothing is left of them.

Reliability 4 and 5; `make faults` does it in a deployment with one stream for everything too.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from pool_hosts import LEASE_S, Ear, epochs_of, half_made, open_files, quick_host
from tensor_pool.errors import AttachRefusedError
from tensor_pool.pool.consumer import Consumer
from tensor_pool.pool.pool import Pool
from tensor_pool.pool.producer import Producer
from tensor_pool.testing import Cluster, Process, wait_until
from tensor_pool.wire.messages import Role, ShmPoolAnnounce


@pytest.fixture(scope="module", params=["separate", pytest.param("one-stream", marks=pytest.mark.slow)])
def host(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with quick_host(request.param) as cluster:
        yield cluster


SHAPE = (1000,)
_SLACK_S = 2.0
"""What a shared machine may add to a time."""

DIE = "os.kill(os.getpid(), signal.SIGKILL)"
HEAD = "import os, signal\n"
ATTACH = HEAD + 'out = pool.producer({name!r}, dtype="uint32", shape=(1000,))\nprint(out.epoch)\n'

PRODUCERS = {
    "attach sent": ("producer.attach_sent", ATTACH),
    "lease got": ("producer.lease_got", ATTACH),
    "mapped": ("producer.mapped", ATTACH),
    "in detach": ("producer.in_detach", ATTACH + "out.close()"),
    "in keepalive": ("", ATTACH + f"time.sleep(0.3); {DIE}"),
    "after in-progress": ("", ATTACH + f'slot = out.claim((1000,), "uint32"); {DIE}'),
    "mid-payload": ("", ATTACH + f'slot = out.claim((1000,), "uint32"); slot.array[:500] = 13; {DIE}'),
    "before commit": ("", ATTACH + f'slot = out.claim((1000,), "uint32"); slot.array[:] = 13; {DIE}'),
    "before descriptor": (
        "",
        ATTACH
        + "from tensor_pool import _native\n"
        + "address = out._session.writer.address; out._session.writer.close()\n"
        + 'silent = _native.RingWriter(address, base_dirs=[settings["shm.shm_base_dir"]])\n'
        + f'silent.publish(np.full(1000, 7, "uint32"), ring=False); {DIE}',
    ),
    "after descriptor": ("", ATTACH + f'out.publish(np.full(1000, 7, "uint32")); {DIE}'),
    "in progress reports": (
        "",
        ATTACH
        + 'slot = out.claim((1000,), "uint32", progress=True); slot.array[:500] = 13\n'
        + f"slot.progress(bytes_filled=2000); {DIE}",
    ),
}
PUBLISHED = {"before descriptor": 7, "after descriptor": 7}
"""What consumers may still get of a dead producer: frames that it committed."""


def frame(value: int) -> np.ndarray:
    return np.full(SHAPE, value, "uint32")


def attached(pool: Pool, name: str) -> Producer:
    """A producer, as soon as the lease of the dead one is over."""

    def try_it() -> Producer | None:
        try:
            return pool.producer(name, dtype="uint32", shape=SHAPE)
        except AttachRefusedError:
            return None

    return wait_until(try_it, LEASE_S + 10, what="a free stream")


def assert_killed(process: Process) -> None:
    assert process.wait() == -signal.SIGKILL, process.errors()


@pytest.mark.parametrize("place", list(PRODUCERS))
def test_a_killed_producer(host: Cluster, pool: Pool, ear: Ear, name: str, place: str) -> None:
    fault, script = PRODUCERS[place]
    inp = pool.consumer(name, start="oldest")
    wait_until(lambda: inp.stream_id)
    assert inp.stream_id is not None
    process = host.run_python(
        script.format(name=name), environ={"TENSOR_POOL_FAULT": fault and f"{fault}:kill"}
    )
    assert_killed(process)
    died_at = time.monotonic()
    before = ear.await_one(ShmPoolAnnounce, stream_id=inp.stream_id)

    # The epoch is over as soon as the lease is.
    def successor() -> ShmPoolAnnounce | None:
        later = [a for a in ear.all_of(ShmPoolAnnounce, stream_id=inp.stream_id) if a.epoch > before.epoch]
        return later[0] if later else None

    bumped = wait_until(successor, what="another epoch")
    assert time.monotonic() - died_at < LEASE_S + _SLACK_S
    assert bumped.producer_id == 0

    # Consumers have seen what was committed and nothing else; they go on with the next one.
    out = attached(pool, name)
    assert out.epoch > bumped.epoch
    out.publish(frame(42))
    seen = _values(inp, until=42)
    assert seen[-1] == 42
    assert seen[:-1] in ([], [PUBLISHED.get(place)])
    assert_nothing_left(host, pool, ear, out, consumers=1)


def _values(inp: Consumer, *, until: int) -> list[int]:
    seen: list[int] = []
    while until not in seen:
        found = inp.poll(timeout=5)
        assert found is not None, (seen, inp.stats)
        with found as values:
            assert values.min() == values.max(), "torn"
            seen.append(int(values[0]))
    return seen


def assert_nothing_left(host: Cluster, pool: Pool, ear: Ear, out: Producer, *, consumers: int) -> None:
    """No lease, no file and no descriptor of the dead."""
    with ear.admin() as admin:

        def roles() -> list[Role]:
            return sorted(lease.role for lease in admin.leases(out.stream_id))

        wait_until(lambda: roles() == [Role.PRODUCER] + [Role.CONSUMER] * consumers, what="leases end")
    wait_until(lambda: epochs_of(host)[out.stream_id] == [out.epoch], what="old epochs are collected")
    wait_until(lambda: not half_made(host), what="nothing half removed")
    assert open_files(host.driver.pid) < 80
    assert pool.driver_status().stream_count > 0


CONSUME = HEAD + "inp = pool.consumer({name!r}, own_stream=True, wait_s=5)\nprint(inp.session.consumer_id)\n"
TAKE = CONSUME + "frame = inp.poll(timeout=5); print(frame.seq)\n"

CONSUMERS = {
    "before hello": ("consumer.before_hello", CONSUME + "time.sleep(60)"),
    "after hello": ("consumer.after_hello", CONSUME + "time.sleep(60)"),
    "lease got": ("consumer.lease_got", CONSUME),
    "mapped": ("consumer.mapped", CONSUME),
    "in detach": ("consumer.in_detach", CONSUME + "inp.close()"),
    "holding a view": ("", TAKE + f"view = frame.array; {DIE}"),
    "mid-copy": (
        "",
        TAKE + f"import threading; threading.Timer(0.02, lambda: {DIE}).start()\nwhile True: frame.copy()",
    ),
    "private stream": ("", CONSUME + f"while not inp.session.streams.private: time.sleep(0.01)\n{DIE}"),
}


@pytest.mark.req("WIRE-5-10")
@pytest.mark.parametrize("place", list(CONSUMERS))
def test_a_killed_consumer(host: Cluster, pool: Pool, ear: Ear, name: str, place: str) -> None:
    fault, script = CONSUMERS[place]
    out = attached(pool, name)
    inp = pool.consumer(name, wait_s=5)
    process = host.run_python(
        script.format(name=name), environ={"TENSOR_POOL_FAULT": fault and f"{fault}:kill"}
    )
    published = 0
    while process.exit_code is None:
        out.publish(frame(published))
        assert inp.poll(timeout=5).copy()[0] == published
        published += 1
        time.sleep(0.005)
    assert_killed(process)
    # The producer and its other consumer notice nothing, and nothing stays open for the dead one.
    for value in range(published, published + 50):
        out.publish(frame(value))
        assert inp.poll(timeout=5).copy()[0] == value
    assert (inp.stats.drops, inp.stats.remaps, out.stats.lease_losses) == (0, 0, 0)
    wait_until(lambda: out._session.private_sinks is None, what="private publications are closed")
    assert_nothing_left(host, pool, ear, out, consumers=1)


def test_a_consumer_that_is_stopped_and_then_killed(host: Cluster, pool: Pool, ear: Ear, name: str) -> None:
    out = attached(pool, name)
    inp = pool.consumer(name, wait_s=5)
    process = host.run_python((TAKE + "time.sleep(60)").format(name=name))
    process.read_line()
    out.publish(frame(0))
    process.read_line()
    assert inp.poll(timeout=5).copy()[0] == 0
    process.stop()
    for value in range(1, 50):
        out.publish(frame(value))
        assert inp.poll(timeout=5).copy()[0] == value
        time.sleep(0.02)
    process.kill()
    out.publish(frame(99))
    assert inp.poll(timeout=5).copy()[0] == 99
    assert (inp.stats.drops, out.stats.lease_losses) == (0, 0)
    wait_until(lambda: out._session.private_sinks is None, what="private publications are closed")
    assert_nothing_left(host, pool, ear, out, consumers=1)

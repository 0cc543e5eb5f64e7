"""Programs that are stopped, slow, or live by another clock; reliability 17 and 18."""

from __future__ import annotations

import os
import subprocess
import time

import numpy as np
import pytest

from pool_hosts import LEASE_S, Ear
from tensor_pool.errors import AttachRefusedError
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import Role

_UNSHARE = ("unshare", "--time", "--monotonic", "100000")


def frame(value: int) -> np.ndarray:
    return np.full(64, value, "uint32")


def has_time_namespaces() -> bool:
    try:
        return subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


PRODUCER = """
    out = pool.producer({name!r}, dtype="uint32", shape=(64,))
    print(out.epoch)
    while True:
        out.publish(np.full(64, 1, "uint32"))
        time.sleep(0.01)
"""


@pytest.mark.req("DRV-3-9")
def test_a_stopped_producer_never_writes_beside_its_successor(
    host: Cluster, pool: Pool, ear: Ear, name: str
) -> None:
    """It is stopped for longer than its lease; when it goes on, the stream belongs to another."""
    stopped = host.run_python(PRODUCER.format(name=name))
    epoch = int(stopped.read_line())
    inp = pool.consumer(name, wait_s=5)
    assert inp.poll(timeout=5).copy()[0] == 1
    stopped.stop()

    def attached():
        try:
            return pool.producer(name, dtype="uint32", shape=(64,))
        except AttachRefusedError:
            return None

    out = wait_until(attached, LEASE_S + 10, what="the stopped one loses its lease")
    assert out.epoch > epoch
    stopped.go_on()
    ends = time.monotonic() + 1.5
    value = 100
    while time.monotonic() < ends:
        out.publish(frame(value))
        value += 1
        time.sleep(0.01)
    seen = []
    while (found := inp.poll(timeout=0.2)) is not None:
        if found.info.epoch != epoch:
            assert found.info.epoch == out.epoch
            seen.append(int(found.copy()[0]))
    assert seen == list(range(100, value)), inp.stats
    of_the_new_epoch = inp.stats.drops - inp.stats.drops_by_reason.get("epoch_ended", 0)
    assert (of_the_new_epoch, out.stats.lease_losses) == (0, 0)
    with ear.admin() as admin:
        (lease,) = [entry for entry in admin.leases(out.stream_id) if entry.role is Role.PRODUCER]
        assert lease.epoch == out.epoch
    # It asks for the stream all the time, and has it again as soon as it is free.
    out.close()
    wait_until(lambda: inp.stats.epoch not in (None, epoch, out.epoch) and inp.poll(timeout=0.1))
    assert "lost the lease" in stopped.errors()


def test_a_stopped_consumer_goes_on_where_the_stream_is(host: Cluster, pool: Pool, name: str) -> None:
    out = pool.producer(name, dtype="uint32", shape=(64,), slots=16)
    follower = host.run_python(
        f"""
        inp = pool.consumer({name!r}, wait_s=5)
        print("ready")
        for frame in inp:
            try:
                with frame as values: value = int(values[0])
                print(value)
            except tp.FrameOverwrittenError:
                pass  # its lease ended meanwhile, and the frame with it
        """
    )
    follower.read_line()
    out.publish(frame(0))
    assert follower.read_line() == "0"
    follower.stop()
    for value in range(1, 200):
        out.publish(frame(value))
        time.sleep(LEASE_S / 100)
    follower.go_on()
    wait_until(lambda: (out.publish(frame(1000)), out.stats.consumers)[1], what="it is back")
    while follower.read_line() != "1000":
        pass


@pytest.mark.skipif(not has_time_namespaces(), reason="needs time namespaces")
def test_a_program_with_another_monotonic_clock_is_told(host: Cluster, pool: Pool, name: str) -> None:
    """Times of leases are the driver's own; what can't be compared is refused with words, not believed."""
    out = pool.producer(name, dtype="uint32", shape=(64,))
    out.publish(frame(1))
    script = f"""
import tensor_pool as tp
config = tp.load_config(overrides={host.settings!r}, environ={{}}, search=False)
try:
    with tp.connect(config=config) as pool:
        frame = pool.consumer({name!r}, wait_s=1).poll(timeout=1)
        print("frame", frame)
except tp.TensorPoolError as e:
    print(type(e).__name__, e)
"""
    import sys

    done = subprocess.run(
        [*_UNSHARE, "--fork", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "frame" not in done.stdout.split()
    assert "Error" in done.stdout, done
    out.publish(frame(2))
    assert (out.stats.lease_losses, pool.driver_status().code) == (0, 0)


class TestSlowConsumers:
    """Producers never wait; who is late is told how much it missed, and why."""

    def test_a_ring_later(self, pool: Pool, name: str) -> None:
        """Ten rings pass while it sleeps: most frames are gone, what is there is whole."""
        out = pool.producer(name, dtype="uint32", shape=(64,), slots=8)
        inp = pool.consumer(name, start="oldest", max_outstanding_seq_gap=0, wait_s=5)
        out.publish(frame(0))
        held = inp.poll(timeout=5)
        for value in range(1, 81):
            out.publish(frame(value))
        assert not held.still_valid()
        seen = []
        while (found := inp.poll()) is not None:
            seen.append(int(found.copy()[0]))
        assert seen == list(range(81 - len(seen), 81))
        assert 1 <= len(seen) <= 8
        stats = inp.stats
        assert stats.delivered == stats.validated + stats.overwritten == 1 + len(seen)
        assert stats.overwritten == 1
        assert stats.drops_gap + stats.drops_late == 80 - len(seen)

    def test_one_of_eight_is_slow(self, pool: Pool, name: str) -> None:
        out = pool.producer(name, dtype="uint32", shape=(64,), slots=64)
        inps = [pool.consumer(name, wait_s=5) for _ in range(8)]
        for value in range(1_000):
            out.publish(frame(value))
            for inp in inps[1:]:
                assert inp.poll(timeout=5).copy()[0] == value
        assert [inp.stats.drops for inp in inps[1:]] == [0] * 7
        found = inps[0].latest()
        assert found.copy()[0] == 999
        assert inps[0].stats.drops_late == 0

    @pytest.mark.req("WIRE-15.4-4")
    def test_resync(self, pool: Pool, name: str) -> None:
        out = pool.producer(name, dtype="uint32", shape=(64,), slots=1024)
        inp = pool.consumer(name, start="oldest", max_outstanding_seq_gap=100, wait_s=5)
        for value in range(900):
            out.publish(frame(value))
        seen = []
        while (found := inp.poll()) is not None:
            seen.append(found.seq)
        assert seen[-1] == 899
        assert len(seen) < 300
        assert inp.stats.resyncs == 1
        assert inp.stats.drops_gap == 900 - len(seen)
        assert inp.stats.drops_late == 0

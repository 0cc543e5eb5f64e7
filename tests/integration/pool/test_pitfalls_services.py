"""Mistakes that others made with control messages and idle services, each shown to be none of ours."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path

import numpy as np
import pytest

from pool_hosts import LAYOUTS, Ear, cpu_seconds, quick_host
from tensor_pool.errors import NoDriverError
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import (
    ClockDomain,
    ConsumerConfig,
    ConsumerHello,
    DataSourceAnnounce,
    QosProducer,
    ResolveStream,
    Role,
    ShmAttachResponse,
    ShmPoolAnnounce,
)

_MTU = 1408


def frame(value: int) -> np.ndarray:
    return np.full(4, value, "uint32")


def test_answers_and_announces_may_be_longer_than_one_packet(pool: Pool, ear: Ear, name: str) -> None:
    """Pitfall 21: many pools in one announce arrive whole, and so does the stream that they make."""
    out = pool.producer(name, pools=[64 << step for step in range(16)], slots=2)
    inp = pool.consumer(name, wait_s=5)
    announce = ear.await_one(ShmPoolAnnounce, stream_id=out.stream_id, epoch=out.epoch)
    answer = ear.await_one(ShmAttachResponse, stream_id=out.stream_id)
    uris = sum(len(pool.region_uri) for pool in announce.payload_pools)
    assert uris > _MTU
    assert announce.payload_pools == answer.payload_pools
    for nbytes in (1, 65, 4097, 1 << 20):
        out.publish(np.arange(nbytes, dtype="uint8"))
        assert inp.poll(timeout=5).copy().nbytes == nbytes


def test_a_thousand_streams_are_listed(pool: Pool, ear: Ear) -> None:
    """Pitfall 21: listings are far longer than a packet, and none is cut short."""
    ids = itertools.count(2**40)

    def ask_for_missing() -> int:
        """So many at once are more than the driver takes in a second, once others asked too."""
        missing = {f"listed-{number}" for number in range(1_000)}
        missing -= {stream.name for stream in pool.streams(ended=True)}
        for name in missing:
            ear.say(ResolveStream(correlation_id=next(ids), client_id=9, role=Role.CONSUMER, name=name))
        return len(missing)

    wait_until(lambda: ask_for_missing() == 0, what="all streams")


@pytest.mark.req("WIRE-10.1.3-8")
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_declined_consumer_stays_on_the_shared_stream(layout: str) -> None:
    """Pitfall 24: there is one private stream for two who want one; frames go on for both."""
    with (
        quick_host(layout, driver__descriptor_stream_id_range="31000-31000") as host,
        Ear(host) as ear,
        host.connect() as pool,
    ):
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        inps = [pool.consumer("camera-1", own_stream=True, wait_s=5) for _ in range(2)]
        consumer_ids = {inp.session.consumer_id for inp in inps}

        def configured() -> dict[int, int]:
            return {c.consumer_id: c.descriptor_stream_id for c in ear.all_of(ConsumerConfig)}

        wait_until(lambda: set(configured()) == consumer_ids, what="both were answered")
        assert sorted(configured().values()) == [0, 31_000]
        wait_until(lambda: any(inp.session.streams.private for inp in inps))
        time.sleep(0.2)  # the declined one had time to do something wrong
        for value in range(30):
            out.publish(frame(value))
        for inp in inps:
            assert [int(inp.poll(timeout=5).copy()[0]) for _ in range(30)] == list(range(30))
            assert inp.stats.drops == 0


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("authority", ["producer", "driver"])
def test_a_hello_is_answered_once(layout: str, authority: str) -> None:
    """Pitfall 34: whoever the authority is, everybody else stays silent (decision D14)."""
    with (
        quick_host(layout, driver__hello_authority=authority) as host,
        Ear(host) as ear,
        host.connect() as pool,
    ):
        pool.producer("camera-1", dtype="uint32", shape=(4,))
        pool.consumer("camera-1", wait_s=5)
        wait_until(lambda: len(ear.all_of(ConsumerHello)) >= 5, what="five hellos")
        wait_until(lambda: len(ear.all_of(ConsumerConfig)) >= 5, what="five answers")
        time.sleep(0.2)  # a second answer would be here by now
        hellos, configs = len(ear.all_of(ConsumerHello)), len(ear.all_of(ConsumerConfig))
        assert hellos - 1 <= configs <= hellos, "the last one may still be on its way"


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_announces_in_real_time_are_judged_by_real_time(layout: str) -> None:
    """Pitfall 32: a stream stays mapped for many freshness windows, and frames flow."""
    settings = {
        "driver__announce_clock_domain": "realtime_synced",
        "driver__clock_error_budget_ms": 1,
        "client__announce_freshness_ms": 300,
    }
    with quick_host(layout, **settings) as host, Ear(host) as ear, host.connect() as pool:
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        inp = pool.consumer("camera-1", wait_s=5)
        started = time.monotonic()
        value = 0
        while time.monotonic() - started < 1.5:
            out.publish(frame(value))
            assert inp.poll(timeout=5).copy()[0] == value
            value += 1
            time.sleep(0.02)
        assert (inp.stats.remaps, inp.stats.reconnects, out.stats.lease_losses) == (0, 0, 0)
        announces = ear.all_of(ShmPoolAnnounce, stream_id=out.stream_id)
        assert {a.announce_clock_domain for a in announces} == {ClockDomain.REALTIME_SYNCED}
        assert abs(announces[-1].announce_timestamp_ns - time.time_ns()) < 2e9


class TestIdle:
    """Pitfall 25: waiting costs (nearly) nothing, whatever is waited for."""

    BUSY = 0.25
    """A busy loop takes a whole core; what is measured here is a few percent of one."""

    def test_services_and_clients(self, host: Cluster, name: str) -> None:
        program = host.run_python(
            f"""
            out = pool.producer({name!r}, dtype="uint32", shape=(4,))
            inps = [pool.consumer({name!r}, wait_s=5) for _ in range(2)] + [pool.consumer("not there")]
            print("idle")
            for frame in inps[0]: pass
            """
        )
        program.read_line()
        pids = {"driver": host.driver.pid, "client": program.pid}
        before = {who: cpu_seconds(pid) for who, pid in pids.items()}
        started = time.monotonic()
        time.sleep(1.5)
        elapsed = time.monotonic() - started
        used = {who: (cpu_seconds(pid) - before[who]) / elapsed for who, pid in pids.items()}
        program.kill()
        assert max(used.values()) < self.BUSY, used

    def test_while_there_is_no_driver(self) -> None:
        with quick_host(driver=False, client__attach_timeout_ms=1_000) as host:
            before, started = time.process_time(), time.monotonic()
            with pytest.raises(NoDriverError, match="tpool up"):
                host.connect()
            assert (time.process_time() - before) / (time.monotonic() - started) < self.BUSY

    def test_after_the_driver_died(self) -> None:
        with quick_host() as host:
            program = host.run_python(
                """
                out = pool.producer("camera-1", dtype="uint32", shape=(4,))
                inp = pool.consumer("camera-1", wait_s=5)
                print("ready")
                while inp.mapped: time.sleep(0.01)
                before, started = time.process_time(), time.monotonic()
                time.sleep(1.5)
                print((time.process_time() - before) / (time.monotonic() - started))
                """
            )
            program.read_line()
            host.driver.kill()
            assert float(program.read_line()) < self.BUSY


def test_streams_cost_no_term_buffers(host: Cluster, pool: Pool, ear: Ear, name: str) -> None:
    """Pitfall 22: twenty streams share their publications, and no log has terms of 64 MiB."""
    first = pool.producer(f"{name}-first", dtype="uint32", shape=(4,))
    first.publish(frame(0))
    for opened in (QosProducer, DataSourceAnnounce):
        ear.await_one(opened, stream_id=first.stream_id)
    before = _logs(host)
    rss = _resident_bytes(host.driver.pid)
    outs = [pool.producer(f"{name}-{i}", dtype="uint32", shape=(4,)) for i in range(20)]
    for out in outs:
        out.publish(frame(1))
    after = _logs(host)
    assert set(after) <= set(before), "no log is new"
    assert max(after.values()) < 13 << 20  # three terms of 4 MiB
    assert _resident_bytes(host.driver.pid) - rss < 20 << 20


def _logs(host: Cluster) -> dict[str, int]:
    """The sizes of all logs; those of earlier tests linger, and may go at any moment."""
    found = {}
    for path in (Path(host.aeron_dir) / "publications").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[path.name] = path.stat().st_size
    return found


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * 4096

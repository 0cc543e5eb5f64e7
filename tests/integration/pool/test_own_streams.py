"""Consumers whom more than the ring tells what comes: no stream yet, their own stream, strangers."""

from __future__ import annotations

import asyncio
import itertools
import select
import tempfile
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import tensor_pool as tp
from pool_hosts import Ear, quick_host
from tensor_pool.testing import wait_until
from tensor_pool.wire.messages import QosConsumer


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def pool(host):
    with host.connect() as pool:
        yield pool


@pytest.fixture
def name(request):
    return request.node.name


@contextmanager
def publishing(out, rate_hz):
    """Publishes from a thread of its own."""
    stop = threading.Event()

    def publish():
        while not stop.wait(1 / rate_hz):
            out.publish(np.zeros(4, "uint8"))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cpu_share(work):
    """How much of a core this process takes while `work` runs."""
    cpu, wall = time.process_time(), time.monotonic()
    work()
    return (time.process_time() - cpu) / (time.monotonic() - wall)


def feeds_privately(out):
    """Whether the producer feeds a private stream."""
    return out._session.private_sinks is not None


BUSY = 0.5
"""Between a loop that never rests and one that does; the machine may be busy with other things."""


class TestWithoutAStream:
    def test_a_descriptor_is_readable_once_and_not_for_ever(self, pool, name):
        inp = pool.consumer(name)
        inp.fileno()  # readable at first: what came before is worth a look
        assert inp.poll() is None
        assert select.select([inp], [], [], 0)[0] == []
        with pool.producer(name, dtype="uint8", shape=(4,)) as out:
            wait_until(lambda: inp.stats.epoch == out.epoch)
            out.publish(np.ones(4, "uint8"))
            assert select.select([inp], [], [], 30)[0] == [inp]
            assert wait_until(inp.poll).seq == 0
        wait_until(lambda: inp.poll() is None and not select.select([inp], [], [], 0)[0])

    def test_an_event_loop_rests(self, pool, name):
        async def read(inp):
            async for _ in inp:
                pass

        async def main():
            inp = pool.consumer(name)
            reading = asyncio.create_task(read(inp))
            await asyncio.sleep(1.0)
            inp.close()
            await reading

        assert cpu_share(lambda: asyncio.run(main())) < BUSY


class TestOwnStream:
    @pytest.mark.parametrize("rate_hz", [300, 2_000])
    def test_no_frame_is_missing_or_comes_twice_when_it_begins(self, host, pool, name, rate_hz):
        with (
            host.connect() as other,
            other.producer(name, dtype="uint8", shape=(4,), slots=1024) as out,
            publishing(out, rate_hz),
        ):
            for _ in range(5):
                with pool.consumer(name, own_stream=True) as inp:
                    wait_until(lambda inp=inp: inp.session.streams.private is not None)
                    seqs = [inp.poll(timeout=5.0).seq for _ in range(100)]
                assert seqs == list(range(seqs[0], seqs[0] + 100))

    def test_it_reports_how_far_it_is_also_while_more_is_waiting(self, host, pool, name):
        with (
            host.connect() as other,
            other.producer(name, dtype="uint8", shape=(4,), slots=256) as out,
            pool.consumer(name, own_stream=True, wait_s=10) as inp,
            Ear(host, ["qos"]) as ear,
        ):
            wait_until(lambda: inp.session.streams.private is not None)
            wait_until(lambda: feeds_privately(out))
            for _ in range(100):
                out.publish(np.zeros(4, "uint8"))
            seqs = [inp.poll(timeout=5.0).seq for _ in range(50)]
            assert seqs == list(range(50))
            assert inp.session.reader.next_seq == 50
            ear.await_one(QosConsumer, consumer_id=inp.session.consumer_id, last_seq_seen=49)

    @pytest.mark.quiet
    @pytest.mark.parametrize("max_rate_hz", [5, 50])
    def test_a_limited_rate_takes_no_core(self, host, pool, name, max_rate_hz):
        with (
            host.connect() as other,
            other.producer(name, dtype="uint8", shape=(4,), slots=64) as out,
            publishing(out, 200),
            pool.consumer(name, mode="rate_limited", max_rate_hz=max_rate_hz, wait_s=10) as inp,
        ):
            wait_until(lambda: inp.session.streams.private is not None)
            seqs, waits = [], 0

            def read():
                nonlocal waits
                deadline = time.monotonic() + 1.0
                while time.monotonic() < deadline:
                    waits += 1
                    frame = inp.poll(timeout=0.2) if waits % 2 else None
                    if tp.wait([inp], timeout=0.2) and frame is None:
                        frame = inp.poll()
                    seqs.extend([] if frame is None else [frame.seq])

            share = cpu_share(read)
        assert share < BUSY
        assert waits < 4 * max_rate_hz + 20
        assert seqs == sorted(set(seqs))
        assert 1 <= len(seqs) <= 2 * max_rate_hz + 5


LIMITED = {"mode": "rate_limited", "max_rate_hz": 1_000}
FRAME = np.zeros(4, "uint8")


def has_own_stream(inp):
    return inp.session.streams.private is not None


@contextmanager
def own_stream(pool, name, *, slots, **options):
    """A producer, and a consumer that it feeds a stream of its own."""
    with (
        pool.producer(name, max_bytes=64, slots=slots) as out,
        pool.consumer(name, own_stream=True, wait_s=5, **options) as inp,
    ):
        wait_until(lambda: has_own_stream(inp))
        wait_until(lambda: feeds_privately(out))
        yield out, inp


class TestBeforeItBegins:
    """A producer has to be asked for the stream; the ring is there at once."""

    @pytest.mark.parametrize(("start", "first"), [("latest", 4), ("oldest", 0), (2, 2)])
    def test_what_is_there_is_read(self, pool, name, start, first):
        with pool.producer(name, max_bytes=64, slots=16) as out:
            for _ in range(5):
                out.publish(FRAME)
            with pool.consumer(name, **LIMITED, start=start, wait_s=5) as inp:
                wait_until(lambda: has_own_stream(inp))
                assert inp.poll(timeout=5).seq == first

    def test_the_first_frame_of_each_producer_comes(self, pool, name):
        with pool.consumer(name, **LIMITED) as inp:
            seen = []
            for run in range(4):
                with pool.producer(name, max_bytes=64, slots=16) as out:
                    out.publish(np.full(4, run, "uint8"))
                    seen.append(int(inp.poll(timeout=5).copy()[0]))
            assert seen == [0, 1, 2, 3]

    def test_the_rate_is_kept_when_it_begins(self, pool, name):
        """What was taken from the ring a moment ago counts, although the producer does not know of it."""
        period_ns = 10_000_000
        with (
            pool.producer(name, max_bytes=64, slots=64) as out,
            pool.consumer(name, mode="rate_limited", max_rate_hz=5, wait_s=5) as inp,
        ):
            taken = []
            for number in range(100):
                out.publish(FRAME, timestamp_ns=(1 + number) * period_ns)
                frame = inp.poll()
                while frame is not None:
                    taken.append(frame.info.timestamp_ns)
                    frame = inp.poll()
                if number == 3:
                    wait_until(lambda: has_own_stream(inp))
                    wait_until(lambda: feeds_privately(out))
                time.sleep(0.001)
            wait_until(lambda: inp.poll() is None)
            assert len(taken) >= 4
            gaps = [later - earlier for earlier, later in itertools.pairwise(taken)]
            assert min(gaps) >= 0.9e9 / 5


class TestTooLate:
    @pytest.mark.parametrize("options", [{}, LIMITED], ids=["all", "limited"])
    def test_what_is_forgotten_before_it_is_read_is_counted(self, pool, name, options):
        with own_stream(pool, name, slots=16, **options) as (out, inp):
            log = inp.session.streams.private.log
            for count in (3, 100, 1, 50):
                for _ in range(count):
                    last = out.publish(FRAME)
                    time.sleep(0.002)  # within its rate
                wait_until(lambda last=last: log.find(out.epoch, last) is not None)
                while inp.poll() is not None:
                    pass
            stats = inp.stats
            assert stats.drops_gap > 100
            assert stats.delivered + stats.drops == out.stats.frames == 154

    @pytest.mark.parametrize("options", [{}, LIMITED], ids=["all", "limited"])
    def test_latest_is_the_newest_and_nothing_is_lost_by_it(self, pool, name, options):
        with own_stream(pool, name, slots=64, **options) as (out, inp):
            out.publish(FRAME)
            assert wait_until(inp.poll).seq == 0
            for _ in range(20):
                time.sleep(0.002)
                last = out.publish(FRAME)
            wait_until(lambda: inp.session.streams.private.log.find(out.epoch, last) is not None)
            assert inp.latest().seq == last
            time.sleep(0.002)
            out.publish(FRAME)
            assert wait_until(inp.poll).seq == last + 1
            assert inp.stats.drops == 0


class TestStrangers:
    def test_without_a_driver_nobody_gets_a_stream_of_the_driver(self, pool, host, name):
        out = pool.producer(name, dtype="uint8", shape=(4,))
        with host.connect() as other, pytest.raises(tp.RegionError, match=f"serves stream {out.stream_id}"):
            other.producer(out.stream_id, dtype="uint8", shape=(4,), attach=False)

    def test_without_a_driver_a_second_one_is_told_of_the_first(self, pool, host):
        """Also beside a driver, which has nothing to do with it."""
        said = "another producer of stream 10900 without a driver"
        with (
            host.connect() as other,
            pool.producer(10_900, max_bytes=64, attach=False),
            pytest.raises(tp.RegionError, match=said),
        ):
            other.producer(10_900, max_bytes=64, attach=False)

    def test_whoever_announces_the_stream_of_a_driver_is_not_believed(self, pool, host, name):
        out = pool.producer(name, dtype="uint8", shape=(4,))
        inp = pool.consumer(name, wait_s=10)
        elsewhere = tempfile.TemporaryDirectory(dir="/dev/shm")
        settings = host.settings | {"shm.shm_base_dir": elsewhere.name}
        with (
            elsewhere,
            Ear(host, ["announce"]) as ear,
            tp.connect(host.aeron_dir, driver=False, settings=settings) as other,
            other.producer(out.stream_id, dtype="uint8", shape=(4,), attach=False) as stranger,
        ):
            assert stranger.epoch > out.epoch
            wait_until(
                lambda: [a for a in ear.heard if getattr(a[1], "epoch", 0) == stranger.epoch] or ear.listen()
            )
            for value in range(20):
                stranger.publish(np.full(4, 255, "uint8"))
                out.publish(np.full(4, value, "uint8"))
                assert int(inp.poll(timeout=5.0).copy()[0]) == value
        out.publish(np.full(4, 77, "uint8"))
        assert int(inp.poll(timeout=5.0).copy()[0]) == 77

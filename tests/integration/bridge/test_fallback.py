"""Consumers without shared memory: the same frames in every way to read them, from chunks of a bridge."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tensor_pool as tp
from bridges import SOURCE
from pool_hosts import cpu_seconds, mapped_regions, open_files
from tensor_pool import wire
from tensor_pool.bridging.udp import for_chunks_in, for_chunks_out
from tensor_pool.closing import Closing
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient
from tensor_pool.wire.messages import ConsumerConfig, Mode

SIZE = 100_001


@pytest.fixture
def uri(settings: dict[str, Any]) -> str:
    return str(settings["bridge.payload_channel"])


@pytest.fixture
def send(bridge: Callable[..., BridgeService]) -> Callable[..., BridgeService]:
    """Starts the sender of the stream; keyword arguments are more settings."""
    return partial(bridge, role="sender")


@pytest.fixture
def out(pool: tp.Pool, uri: str) -> Iterator[tp.Producer]:
    with pool.producer(
        SOURCE,
        name="camera",
        dtype="uint8",
        shape=(SIZE,),
        slots=16,
        metadata={"gain": 7},
        fallback_uri=uri,
    ) as out:
        yield out


def publish(out: tp.Producer, **more: Any) -> int:
    return out.publish(np.full(SIZE, out.stats.frames % 251, np.uint8), **more)


def check(frame: tp.Frame | None) -> int:
    """That a frame is whole; its number."""
    assert frame is not None
    values = frame.copy()
    assert values.shape == (SIZE,)
    assert (values == frame.seq % 251).all()
    return int(frame.seq)


def carries(out: tp.Producer, inp: tp.Consumer) -> bool:
    """Publishes a frame; whether it came."""
    seq = publish(out)
    while (frame := inp.poll(timeout=0.1)) is not None:
        if frame.seq == seq:
            return True
    return False


def follows(inp: tp.Consumer, out: tp.Producer) -> bool:
    return inp.stats.state == "fallback" and inp.stats.epoch == out.epoch and inp.mapped


@contextlib.contextmanager
def publishing(out: tp.Producer) -> Iterator[None]:
    """Publishes fifty frames a second on the side."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.02):
            publish(out)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def inp(pool: tp.Pool, out: tp.Producer, send: Callable[..., BridgeService]) -> tp.Consumer:
    """A consumer without shared memory to which frames come."""
    send(dialect="newer")
    inp = pool.consumer(SOURCE, shm=False, wait_s=5)
    wait_until(lambda: carries(out, inp))
    return inp


@pytest.mark.req("WIRE-15.12-3", "WIRE-10.1.3-5")
def test_frames_come_whole_with_all_that_belongs_to_them(
    host: Cluster, out: tp.Producer, inp: tp.Consumer
) -> None:
    assert follows(inp, out)
    before = inp.stats
    for number in range(20):
        seq = publish(out, trace_id=1_000 + number, timestamp_ns=5_000 + number)
        frame = inp.poll(timeout=5.0)
        assert check(frame) == seq
        assert (frame.stream_id, frame.epoch, frame.timestamp_ns) == (SOURCE, out.epoch, 5_000 + number)
        assert frame.descriptor.trace_id == 1_000 + number
        assert frame.meta_version == out.metadata.meta_version
        assert frame.still_valid()
    wait_until(lambda: dict(inp.metadata).get("gain") == 7)

    stats = inp.stats
    assert (stats.delivered - before.delivered, stats.drops) == (20, before.drops)
    assert stats.last_seq == seq
    assert stats.fallback.frames >= 20
    assert "fallback" in str(stats)
    assert "fallback" in repr(inp)


def test_a_program_maps_none_of_the_stream(host: Cluster, out: tp.Producer, send: Any) -> None:
    send()
    reader = host.run_python(
        f"""
        inp = pool.consumer({SOURCE}, shm=False, wait_s=10)
        print("there")
        print(inp.poll(timeout=10).copy().shape)
        sys.stdin.readline()
        print(inp.stats.state)
        """
    )
    assert reader.read_line() == "there"
    with publishing(out):
        assert reader.read_line() == f"({SIZE},)"
    assert not [path for path in mapped_regions(reader.pid, host) if f"/{SOURCE}/" in path]
    reader.say("")
    assert reader.read_line() == "fallback"


def test_every_way_to_read(pool: tp.Pool, out: tp.Producer, inp: tp.Consumer) -> None:
    numbers = [publish(out) for _ in range(3)]
    wait_until(lambda: inp.session.reader.newest() == numbers[-1])
    assert check(inp.latest()) == numbers[-1]
    assert inp.latest() is None

    seq = publish(out)
    assert tp.wait([inp], timeout=5.0) == [inp]
    assert check(inp.poll()) == seq
    assert tp.wait([inp], timeout=0.05) == []

    seq = publish(out)
    assert check(next(iter(inp))) == seq

    fd = inp.fileno()
    while inp.poll() is not None:
        pass
    assert select.select([fd], [], [], 0.0)[0] == []
    seq = publish(out)
    assert select.select([fd], [], [], 5.0)[0] == [fd]
    assert check(wait_until(inp.poll)) == seq

    async def one() -> int:
        async for frame in inp:
            return check(frame)
        raise AssertionError("closed")

    seq = publish(out)
    assert asyncio.run(asyncio.wait_for(one(), 5.0)) == seq

    seen: queue.Queue[int] = queue.Queue()
    with inp.on_frame(lambda frame: seen.put(frame.seq)):
        seq = publish(out)
        assert seen.get(timeout=5.0) == seq


def test_it_begins_with_the_first_frame_that_comes(
    pool: tp.Pool, out: tp.Producer, send: Callable[..., BridgeService]
) -> None:
    for _ in range(300):
        publish(out)
    send()
    inp = pool.consumer(SOURCE, shm=False, wait_s=5)
    wait_until(lambda: carries(out, inp))
    assert inp.stats.delivered
    assert (inp.stats.drops, inp.stats.resyncs) == (0, 0)


def test_it_begins_where_it_is_told_to(
    pool: tp.Pool, out: tp.Producer, send: Callable[..., BridgeService]
) -> None:
    send()
    inp = pool.consumer(SOURCE, shm=False, wait_s=5, start=100)
    first = None
    while first is None:
        publish(out)
        first = inp.poll(timeout=0.02)
    assert first.seq >= 100
    assert inp.stats.drops == 0


def tell(inp: tp.Consumer, *, use_shm: bool, uri: str) -> None:
    """What the stream's authority may say at any time."""
    session = inp.session
    session._hello_timer.next_ns = 2**62  # the producer would answer otherwise
    config = ConsumerConfig(
        SOURCE, session.consumer_id, use_shm=use_shm, mode=Mode.STREAM, payload_fallback_uri=uri
    )
    session.context.submit(lambda: session.agent.send(config))


@pytest.mark.req("WIRE-10.1.3-5", "WIRE-15.12-3")
def test_a_consumer_goes_to_chunks_and_back_without_a_frame_lost_or_given_twice(
    pool: tp.Pool, out: tp.Producer, uri: str, send: Callable[..., BridgeService]
) -> None:
    send()
    inp = pool.consumer(SOURCE, wait_s=5)
    keeps_the_bridge_busy = pool.consumer(SOURCE, shm=False, wait_s=5)
    wait_until(lambda: carries(out, keeps_the_bridge_busy))
    while inp.poll() is not None:
        pass
    before = inp.stats.drops
    came = []
    for use_shm in (False, True, False, True):
        tell(inp, use_shm=use_shm, uri=uri)
        state = "mapped" if use_shm else "fallback"
        wait_until(lambda state=state: inp.stats.state == state and inp.mapped)
        if not use_shm:
            time.sleep(0.1)  # the subscription is opened on the side; nothing tells when
        for _ in range(5):
            seq = publish(out)
            assert check(inp.poll(timeout=5.0)) == seq
            came.append(seq)
    assert came == list(range(came[0], came[0] + 20))
    assert inp.stats.drops == before
    assert inp.stats.fallback is None


@pytest.mark.req("WIRE-15.22-17", "WIRE-15.12-3", "WIRE-15.1-7")
def test_memory_that_is_refused_leads_to_chunks(
    host: Cluster, out: tp.Producer, uri: str, send: Callable[..., BridgeService], tmp_path: Path
) -> None:
    send()
    elsewhere = {"shm.shm_base_dir": str(tmp_path), "shm.allowed_base_dirs": [str(tmp_path)]}
    with tp.connect(config=host.config.replace(elsewhere)) as pool:
        inp = pool.consumer(SOURCE, fallback_uri=uri)
        assert follows(inp, out)
        wait_until(lambda: carries(out, inp))
        with pytest.raises(tp.RegionError):
            pool.consumer(SOURCE)


@pytest.mark.req("WIRE-15.22-17", "WIRE-15.12-3")
def test_memory_that_is_not_there_leads_to_chunks_until_it_is(
    host: Cluster, pool: tp.Pool, out: tp.Producer, uri: str, send: Callable[..., BridgeService]
) -> None:
    """As in a container that does not share the directory; there the authority tells of the fallback."""
    send()
    directory = next(Path(str(host.settings["shm.shm_base_dir"])).glob(f"tensorpool-*/*/{SOURCE}"))
    hidden = directory.rename(directory.with_name("hidden"))
    try:
        inp = pool.consumer(SOURCE)
        wait_until(lambda: follows(inp, out))
        wait_until(lambda: carries(out, inp))
    finally:
        hidden.rename(directory)
    wait_until(lambda: inp.stats.state == "mapped", what="shared memory is better whenever it works")
    assert carries(out, inp)


class Eavesdropper(Closing):
    """Somebody else on the chunks' channel, who hears all of them and says what they like."""

    def __init__(self, host: Cluster, uri: str) -> None:
        self._client = AeronClient.connect(host.aeron_dir)
        self._subscription = self._client.add_subscription(for_chunks_in(uri), 3000)
        self._publication = self._client.add_publication(for_chunks_out(uri), 3000)

    def heard(self) -> list[bytes]:
        """Chunks that came since the last call."""
        return self._subscription.receive(1_000)

    def say(self, chunk: bytes) -> None:
        """Sends it as it is."""
        wait_until(lambda: self._publication.offer(chunk))

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def eavesdropper(host: Cluster, uri: str) -> Iterator[Eavesdropper]:
    with Eavesdropper(host, uri) as eavesdropper:
        yield eavesdropper


def test_each_epoch_of_the_source_is_followed_and_nothing_of_an_older_one_comes(
    pool: tp.Pool, uri: str, eavesdropper: Eavesdropper, send: Callable[..., BridgeService]
) -> None:
    send()
    inp = pool.consumer(SOURCE, shm=False)
    before: list[bytes] = []
    for _ in range(3):
        with pool.producer(SOURCE, dtype="uint8", shape=(SIZE,), slots=16, fallback_uri=uri) as out:
            wait_until(lambda out=out: follows(inp, out))
            wait_until(lambda out=out: carries(out, inp))
            frames = inp.stats.fallback.frames
            for each in before:
                eavesdropper.say(each)
            wait_until(partial(unused, inp, "old_epoch", len(before)))
            assert carries(out, inp)
            assert inp.stats.fallback.frames == frames + 1
            before = eavesdropper.heard()[:5]
            assert before
    assert inp.stats.fallback.frames_lost == {}


def unused(inp: tp.Consumer, reason: str, count: int) -> bool:
    """Whether so many chunks were left unused for a reason."""
    return inp.stats.fallback.chunks_unused.get(reason, 0) >= count


def test_nothing_comes_of_an_epoch_that_nobody_announced(
    pool: tp.Pool, out: tp.Producer, inp: tp.Consumer, eavesdropper: Eavesdropper
) -> None:
    publish(out)
    assert inp.poll(timeout=5.0)
    later = [
        wire.encode(msgspec.structs.replace(wire.decode(each), epoch=out.epoch + 1))
        for each in wait_until(eavesdropper.heard)
    ]
    for each in later:
        eavesdropper.say(each)
    wait_until(lambda: inp.stats.fallback.chunks_unused.get("not_announced") == len(later))
    assert inp.poll() is None
    assert carries(out, inp)


def test_a_sender_that_starts_again_is_followed(
    pool: tp.Pool, out: tp.Producer, send: Callable[..., BridgeService]
) -> None:
    first = send()
    inp = pool.consumer(SOURCE, shm=False, wait_s=5)
    wait_until(lambda: carries(out, inp))
    epoch = inp.stats.epoch
    first.close()
    lost = [publish(out) for _ in range(3)]
    send()
    wait_until(lambda: carries(out, inp))
    assert inp.stats.epoch == epoch
    assert inp.stats.drops_gap >= len(lost) - 1, "the newest one is sent by the next sender"


def test_a_driver_that_starts_again_is_followed(host: Cluster, out: tp.Producer, inp: tp.Consumer) -> None:
    before = inp.stats.epoch
    host.driver.kill()
    host.start_driver()
    wait_until(lambda: carries(out, inp) and inp.stats.epoch > before, 20)  # the old one lasts for a moment
    assert inp.stats.epoch == out.epoch
    assert inp.stats.state == "fallback"


def test_bad_chunks_are_counted_and_the_next_frame_passes(
    out: tp.Producer, inp: tp.Consumer, eavesdropper: Eavesdropper
) -> None:
    publish(out)
    assert inp.poll(timeout=5.0)
    good = wire.decode(wait_until(eavesdropper.heard)[0])
    seq = out.stats.last_seq + 10_000
    changed = partial(msgspec.structs.replace, good, seq=seq)
    bad = {
        "malformed": [b"", b"nonsense", bytes(100), os.urandom(500), wire.encode(good)[:-1]],
        "other_stream": [wire.encode(msgspec.structs.replace(good, stream_id=77))],
        "payload_too_long": [wire.encode(changed(payload_length=1 << 29, chunk_count=65_535))],
    }
    for messages in bad.values():
        for each in messages:
            eavesdropper.say(each)
    for reason, messages in bad.items():
        wait_until(partial(unused, inp, reason, len(messages)), what=reason)
    assert carries(out, inp)
    assert inp.stats.drops_by_reason == {}


@pytest.mark.parametrize(
    ("more", "complains"),
    [("", False), ("|interface=203.0.113.77", True)],
    ids=["nobody sends", "Aeron refuses"],
)
def test_a_dead_channel_brings_nothing_and_hangs_nobody(
    pool: tp.Pool, out: tp.Producer, uri: str, more: str, complains: bool
) -> None:
    inp = pool.consumer(SOURCE, shm=False, fallback_uri=uri)
    wait_until(lambda: follows(inp, out))
    tell(inp, use_shm=False, uri=uri + more)
    # Between two channels there is none for a moment.
    wait_until(lambda: (feed := inp.stats.fallback) is not None and feed.uri.startswith(uri + more))
    publish(out)
    started = time.monotonic()
    assert inp.poll(timeout=0.3) is None
    assert tp.wait([inp], timeout=0.1) == []
    assert time.monotonic() - started < 3.0
    if complains:
        wait_until(lambda: inp.stats.fallback.error)
    assert pool.consumer(SOURCE, wait_s=5).mapped, "others notice nothing"
    started = time.monotonic()
    inp.close()
    assert time.monotonic() - started < 3.0


@pytest.mark.req("WIRE-10.1.3-2")
def test_a_producer_offers_only_what_consumers_can_use(pool: tp.Pool, uri: str) -> None:
    for bad in ("bridge://7", "aeron:udp", "aeron:udp?endpoint=a:1|stream-id=0", 7):
        with pytest.raises(tp.ConfigError, match="fallback_uri") as caught:
            pool.producer(SOURCE, dtype="uint8", shape=(4,), fallback_uri=bad)
        assert caught.value.hint
    with pool.producer(SOURCE, dtype="uint8", shape=(4,)):
        inp = pool.consumer(SOURCE, shm=False)
        with pytest.raises(tp.NoStreamError, match="no other way is offered"):
            wait_until(lambda: inp.poll() is not None)


def test_the_configuration_may_name_it_and_may_forbid_to_be_sent_elsewhere(
    host: Cluster, uri: str, send: Callable[..., BridgeService]
) -> None:
    send()
    own = host.config.replace({"client.fallback_uri": uri, "client.allow_fallback": False})
    careful = host.config.replace({"client.allow_fallback": False})
    with tp.connect(config=own) as pool, tp.connect(config=careful) as other:
        out = pool.producer(SOURCE, dtype="uint8", shape=(SIZE,), slots=16)
        inp = pool.consumer(SOURCE, shm=False, wait_s=5)
        wait_until(lambda: carries(out, inp))
        refused = other.consumer(SOURCE, shm=False)
        with pytest.raises(tp.NoStreamError, match="not followed") as caught:
            wait_until(lambda: refused.poll() is not None)
        assert "client.allow_fallback" in caught.value.hint


def test_frames_are_thinned_out_to_a_rate(pool: tp.Pool, out: tp.Producer, inp: tp.Consumer) -> None:
    slow = pool.consumer(SOURCE, shm=False, mode="rate_limited", max_rate_hz=10, wait_s=5)
    wait_until(lambda: carries(out, slow))
    before, start_ns = slow.stats, time.monotonic_ns() + 10**9
    for number in range(21):
        seq = publish(out, timestamp_ns=start_ns + number * 10**7)
        wait_until(lambda seq=seq: slow.session.reader.newest() == seq)
        slow.poll()
    assert (slow.stats.thinned - before.thinned, slow.stats.drops) == (18, 0)


def test_memory_is_bounded_and_what_does_not_fit_is_counted(
    host: Cluster, uri: str, send: Callable[..., BridgeService]
) -> None:
    send()
    with tp.connect(config=host.config.replace({"client.fallback_max_bytes": "256k"})) as pool:
        out = pool.producer(SOURCE, max_bytes=1 << 20, slots=64, fallback_uri=uri)
        inp = pool.consumer(SOURCE, shm=False, wait_s=5)

        def small_one_comes() -> bool:
            out.publish(np.zeros(1_000, np.uint8))
            return inp.poll(timeout=0.1) is not None

        wait_until(small_one_comes)
        assert sum(size for _, _, size in inp.session.reader.payload_mappings()) <= 256 << 10
        out.publish(np.zeros(1 << 20, np.uint8))
        wait_until(lambda: inp.stats.fallback.chunks_unused.get("payload_too_long"))
        wait_until(small_one_comes)
        assert inp.stats.drops_gap == 1


def test_closing_leaves_nothing(host: Cluster, pool: tp.Pool, out: tp.Producer, inp: tp.Consumer) -> None:
    base = Path(str(host.settings["shm.shm_base_dir"]))

    def used() -> tuple[int, int, int, list[str]]:
        return (
            open_files(os.getpid()),
            threading.active_count(),
            len(mapped_regions(os.getpid(), host)),
            [path.name for path in base.iterdir() if "private" in path.name],
        )

    before = used()
    assert before[-1] == [], "files are gone as soon as they are mapped"
    for _ in range(5):
        another = pool.consumer(SOURCE, shm=False, wait_s=5)
        another.fileno()
        wait_until(lambda another=another: carries(out, another))
        another.close()
    while inp.poll() is not None:
        pass
    wait_until(lambda: used() == before, what=f"{before}, not {used()}")


def test_a_consumer_that_hears_nothing_costs_next_to_nothing(host: Cluster, out: tp.Producer) -> None:
    reader = host.run_python(
        f"""
        inps = [pool.consumer({SOURCE}, shm=False, wait_s=10) for _ in range(4 * int(sys.stdin.readline()))]
        print("waits")
        [inp.poll(timeout=60) for inp in inps]
        """
    )
    reader.say("1")
    assert reader.read_line() == "waits"
    time.sleep(1.0)  # it looks often at first
    before, started = cpu_seconds(reader.pid), time.monotonic()
    time.sleep(2.0)
    used = (cpu_seconds(reader.pid) - before) / (time.monotonic() - started)
    assert used < 0.15, f"four of them took {used:.0%} of a core"

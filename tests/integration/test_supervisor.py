"""A supervisor on a real host: slow consumers are moved and come back, the dead are noticed."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, free_endpoints
from pool_hosts import LAYOUTS, Ear, quick_host
from tensor_pool.control.supervisor.view import ConsumerHealth, StreamHealth
from tensor_pool.host.bridge import BridgeService
from tensor_pool.host.limiter import RateLimiter
from tensor_pool.host.supervisor import Supervisor
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.testing.cluster import Process
from tensor_pool.wire.messages import ConsumerConfig, Mode, QosConsumer

RATE_HZ = 400
PATIENCE_S = 30
QUICK = {
    "driver__hello_authority": "supervisor",
    "client__limited_rate_hz": 20,
    "supervisor__window_ms": 300,
    "supervisor__slow_for_ms": 700,
    "supervisor__healthy_for_ms": 1_000,
    "supervisor__forget_after_ms": 20_000,
}
CONSUMER = """
    import threading
    inp = pool.consumer("camera", wait_s=10)
    print(inp.session.consumer_id)
    pause_s = [0.0]
    def obey():
        for line in sys.stdin:
            pause_s[0] = float(line)
    threading.Thread(target=obey, daemon=True).start()
    while True:
        frame = inp.poll(timeout=1.0)
        if frame is not None:
            frame.copy()
            time.sleep(pause_s[0])
"""
SLOW_S = "0.3"
"""So long a consumer takes for a frame while the ring goes round twice."""


@contextlib.contextmanager
def publishing(out: tp.Producer) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(1 / RATE_HZ):
            out.publish(np.zeros(16, "uint8"))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Scene:
    """A host with a camera of 64 slots, and a supervisor."""

    def __init__(self, resources: contextlib.ExitStack, layout: str = "separate", **keys: Any) -> None:
        self.host: Cluster = resources.enter_context(quick_host(layout, **{**QUICK, **keys}))
        self.pool = resources.enter_context(self.host.connect())
        self.out = resources.enter_context(
            self.pool.producer(SOURCE, name="camera", dtype="uint8", shape=(16,), slots=64)
        )
        resources.enter_context(publishing(self.out))
        self.supervisor = resources.enter_context(Supervisor(self.host.config))

    def consumer(self) -> tuple[Process, int]:
        """A program that reads the camera, as slowly as it is told to."""
        process = self.host.run_python(CONSUMER)
        return process, int(process.read_line())

    def health(self, consumer_id: int) -> ConsumerHealth | None:
        found = [each for each in self.supervisor.view().consumers if each.consumer_id == consumer_id]
        return found[0] if found else None

    def is_so(self, consumer_id: int, **values: str) -> Callable[[], bool]:
        """Whether a consumer is shown with these values."""

        def look() -> bool:
            health = self.health(consumer_id)
            return health is not None and all(getattr(health, key) == each for key, each in values.items())

        return look

    @property
    def stream(self) -> StreamHealth | None:
        found = [each for each in self.supervisor.view().streams if each.stream_id == SOURCE]
        return found[0] if found else None

    @property
    def moves(self) -> list[tuple[str, str]]:
        entries = self.supervisor.journal.entries()
        return [(entry.before, entry.after) for entry in entries if entry.is_decision]


@pytest.fixture
def scene() -> Iterator[Callable[..., Scene]]:
    with contextlib.ExitStack() as resources:
        yield lambda *arguments, **keys: Scene(resources, *arguments, **keys)


@pytest.mark.req("WIRE-10.1.3-4", "WIRE-10.5-1", "WIRE-10.5-2", "WIRE-15.4-2")
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_slow_consumer_is_limited_and_let_go_again(scene: Callable[..., Scene], layout: str) -> None:
    s = scene(layout)
    (slow, slow_id), (_, other_id) = s.consumer(), s.consumer()
    wait_until(s.is_so(slow_id, condition="healthy", mode="stream"), PATIENCE_S)
    slow.say(SLOW_S)
    # What it says it does is what it does.
    wait_until(s.is_so(slow_id, remedy="rate_limited", mode="rate_limited"), PATIENCE_S)
    wait_until(s.is_so(slow_id, condition="healthy"), PATIENCE_S, what="limited, it loses nothing")
    slow.say("0")
    wait_until(s.is_so(slow_id, remedy="none", mode="stream", condition="healthy"), PATIENCE_S)
    assert s.moves[:2] == [("none", "rate_limited"), ("rate_limited", "none")]
    assert {entry.consumer_id for entry in s.supervisor.journal.entries() if entry.is_decision} == {slow_id}
    assert s.health(other_id).remedy == "none"
    stream = s.stream
    assert stream is not None
    assert (stream.name, stream.state, stream.consumers, stream.slots) == ("camera", "live", 2, 64)
    assert stream.rate_hz == pytest.approx(RATE_HZ, rel=0.5)
    assert stream.meta_version is not None
    (watched,) = s.supervisor._agent._overseer.board.streams.values()
    assert watched.activity_ns is not None, "also its superblock is looked at"


class Reader:
    """Reads in a thread of this process, so that a test can look at the consumer."""

    def __init__(self, inp: tp.Consumer) -> None:
        self.inp = inp
        self.pause_s = 0.0
        self.holds_frames = False
        self.seqs: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            frame = self.inp.poll(timeout=0.1)
            if frame is not None:
                self.seqs.append(frame.seq)
                if not self.holds_frames:
                    frame.copy()
                time.sleep(self.pause_s)
                with contextlib.suppress(tp.FrameOverwrittenError):
                    frame.copy()

    def count(self, seconds: float) -> float:
        """Frames a second from now on."""
        before, started = len(self.seqs), time.monotonic()
        time.sleep(seconds)
        return (len(self.seqs) - before) / (time.monotonic() - started)


def test_a_limited_consumer_gets_the_limited_rate(scene: Callable[..., Scene]) -> None:
    s = scene(supervisor__healthy_for_ms=3_600_000)
    with s.host.connect() as pool, Reader(pool.consumer("camera", wait_s=10)) as reader:
        consumer_id = reader.inp.session.consumer_id
        wait_until(lambda: len(reader.seqs) > RATE_HZ / 4, PATIENCE_S)
        reader.pause_s = float(SLOW_S)
        wait_until(s.is_so(consumer_id, mode="rate_limited"), PATIENCE_S)
        reader.pause_s = 0.0
        wait_until(lambda: reader.inp.stats.thinned > 0)
        assert 5 < reader.count(1.0) < 40, "twenty, give or take"
        assert reader.seqs == sorted(set(reader.seqs))


@pytest.mark.req("WIRE-10.1.3-4", "WIRE-5-10")
def test_a_slow_consumer_gets_a_stream_of_its_own_and_gives_it_back(scene: Callable[..., Scene]) -> None:
    s = scene(supervisor__remedies=["rate_limited", "own_stream"])
    with s.host.connect() as pool, Reader(pool.consumer("camera", wait_s=10)) as reader:
        consumer_id = reader.inp.session.consumer_id
        streams = reader.inp.session.streams
        wait_until(s.is_so(consumer_id, condition="healthy"), PATIENCE_S)
        reader.pause_s = float(SLOW_S)
        wait_until(s.is_so(consumer_id, remedy="rate_limited", mode="rate_limited"), PATIENCE_S)
        reader.holds_frames = True  # longer than the ring does
        wait_until(s.is_so(consumer_id, remedy="own_stream"), PATIENCE_S)
        wait_until(lambda: streams.private is not None, PATIENCE_S)
        reader.pause_s = 0.0
        assert streams.private.endpoint[1] in range(31_000, 32_000)
        wait_until(lambda: s.out._session.private_sinks is not None, PATIENCE_S)
        read = len(reader.seqs)
        wait_until(lambda: len(reader.seqs) > read + 5, PATIENCE_S, what="frames come by its own stream")
        wait_until(s.is_so(consumer_id, remedy="none", mode="stream"), PATIENCE_S)
        wait_until(lambda: streams.private is None, PATIENCE_S)
        wait_until(lambda: s.out._session.private_sinks is None, PATIENCE_S)
        read = len(reader.seqs)
        wait_until(lambda: len(reader.seqs) > read + RATE_HZ / 4, PATIENCE_S)
        assert reader.seqs == sorted(set(reader.seqs)), "nothing came twice"


def test_who_has_all_frames_of_a_limited_stream_is_not_slow(scene: Callable[..., Scene]) -> None:
    """Its numbers have gaps on purpose. Of the source, somebody loses frames."""
    s = scene()
    slow, slow_id = s.consumer()
    with (
        # So many slots that a hiccup of the machine is no lag.
        RateLimiter(s.host.config, "camera", "preview", max_rate_hz=50, slots=1_024),
        s.host.connect() as pool,
        Reader(pool.consumer("preview", wait_s=10)) as reader,
    ):
        prompt_id = reader.inp.session.consumer_id
        wait_until(s.is_so(prompt_id, condition="healthy"), PATIENCE_S)
        slow.say(SLOW_S)
        wait_until(s.is_so(slow_id, remedy="rate_limited"), PATIENCE_S)
        missing = reader.inp.stats.drops_gap
        time.sleep(2.0)  # long enough to be moved twice
        assert reader.inp.stats.drops_gap > missing + RATE_HZ / 2, "its reports tell of gaps"
        assert s.health(prompt_id).remedy == "none"
        moved = {entry.consumer_id for entry in s.supervisor.journal.entries() if entry.is_decision}
        assert moved == {slow_id}


@pytest.mark.req("WIRE-10.1.3-5")
def test_a_slow_consumer_is_moved_to_chunks_and_back(scene: Callable[..., Scene]) -> None:
    payload, control, metadata = (f"aeron:udp?endpoint={each}" for each in free_endpoints(3))
    s = scene(supervisor__remedies=["fallback"], supervisor__fallback_uri=payload)
    bridge = {
        "bridge.instance_id": "test",
        "bridge.role": "sender",
        "bridge.payload_channel": payload,
        "bridge.control_channel": control,
        "bridge.metadata_channel": metadata,
        "bridge.mappings": [{"source_stream_id": SOURCE, "dest_stream_id": DEST, "name": "copy"}],
    }
    with (
        BridgeService(s.host.config.replace(bridge)),
        s.host.connect() as pool,
        Reader(pool.consumer("camera", wait_s=10)) as reader,
    ):
        consumer_id = reader.inp.session.consumer_id
        wait_until(s.is_so(consumer_id, condition="healthy"), PATIENCE_S)
        assert reader.inp.stats.state == "mapped"
        reader.pause_s = float(SLOW_S)
        wait_until(s.is_so(consumer_id, remedy="fallback"), PATIENCE_S)
        wait_until(lambda: reader.inp.stats.state == "fallback", PATIENCE_S)
        reader.pause_s = 0.0
        wait_until(lambda: reader.inp.stats.fallback and reader.inp.stats.fallback.frames > 5, PATIENCE_S)
        wait_until(s.is_so(consumer_id, remedy="none"), PATIENCE_S)
        wait_until(lambda: reader.inp.stats.state == "mapped", PATIENCE_S)
        read = len(reader.seqs)
        wait_until(lambda: len(reader.seqs) > read + RATE_HZ / 4, PATIENCE_S)
        assert reader.seqs == sorted(set(reader.seqs))


def test_a_dry_run_changes_nothing(scene: Callable[..., Scene]) -> None:
    s = scene(supervisor__dry_run=True)
    slow, slow_id = s.consumer()
    with Ear(s.host) as ear:
        slow.say(SLOW_S)
        wait_until(lambda: s.moves, PATIENCE_S)
        seen = len(ear.all_of(ConsumerConfig, consumer_id=slow_id))
        wait_until(lambda: len(ear.all_of(ConsumerConfig, consumer_id=slow_id)) > seen + 5, PATIENCE_S)
        assert {(c.mode, c.use_shm) for c in ear.all_of(ConsumerConfig)} == {(Mode.STREAM, True)}
        assert [entry.outcome for entry in s.supervisor.journal.entries() if entry.is_decision] == ["dry_run"]
        assert s.health(slow_id).mode == "stream"
        s.supervisor.dry_run = False
        wait_until(s.is_so(slow_id, mode="rate_limited"), PATIENCE_S)


def test_where_the_producer_is_the_authority_it_only_watches(scene: Callable[..., Scene]) -> None:
    s = scene(driver__hello_authority="producer")
    slow, slow_id = s.consumer()
    with Ear(s.host, ["control"]) as ear:
        slow.say(SLOW_S)
        wait_until(lambda: s.moves, PATIENCE_S)
        ear.await_one(ConsumerConfig, consumer_id=slow_id)
        assert {c.mode for c in ear.all_of(ConsumerConfig)} == {Mode.STREAM}
    assert [e.outcome for e in s.supervisor.journal.entries() if e.is_decision] == ["not_authority"]


@pytest.mark.req("WIRE-15.14-2")
def test_the_killed_are_noticed(scene: Callable[..., Scene]) -> None:
    s = scene()
    consumer, consumer_id = s.consumer()
    camera = s.host.run_python(
        'out = pool.producer(10_001, dtype="uint8", shape=(4,))\n'
        "print(out.epoch)\n"
        "while True:\n    out.publish(np.zeros(4, 'uint8')); time.sleep(0.01)"
    )
    epoch = int(camera.read_line())

    def state() -> tuple[str, int] | None:
        found = [each for each in s.supervisor.view().streams if each.stream_id == 10_001]
        return (found[0].state, found[0].epoch) if found else None

    wait_until(lambda: state() == ("live", epoch), PATIENCE_S)
    wait_until(s.is_so(consumer_id, condition="healthy"), PATIENCE_S)
    camera.kill()
    consumer.kill()
    wait_until(lambda: state() == ("dead", epoch), PATIENCE_S)
    kinds = {(entry.stream_id, entry.kind) for entry in s.supervisor.journal.entries()}
    assert (10_001, "dead") in kinds
    # The driver takes its lease away: then it is not stale but gone.
    wait_until(lambda: (s.health(consumer_id) or ConsumerGone).condition in ("stale", "gone"), PATIENCE_S)

    def attach() -> tp.Producer | None:
        with contextlib.suppress(tp.AttachRefusedError):  # the lease of the killed one may still last
            return s.pool.producer(10_001, dtype="uint8", shape=(4,))
        return None

    with wait_until(attach, PATIENCE_S) as again:
        wait_until(lambda: state() == ("live", again.epoch), PATIENCE_S, what="it lives in a new epoch")


class ConsumerGone:
    condition = "gone"


def test_a_stopped_consumer_is_stale_and_comes_back(scene: Callable[..., Scene]) -> None:
    s = scene(driver__keepalive_interval_ms=10_000)
    consumer, consumer_id = s.consumer()
    wait_until(s.is_so(consumer_id, condition="healthy"), PATIENCE_S)
    consumer.stop()
    wait_until(s.is_so(consumer_id, condition="stale"), PATIENCE_S)
    consumer.go_on()
    wait_until(lambda: s.health(consumer_id).condition != "stale", PATIENCE_S)


def test_a_flood_of_forged_reports_is_bounded(scene: Callable[..., Scene]) -> None:
    s = scene(supervisor__max_consumers=100)
    slow, slow_id = s.consumer()
    wait_until(s.is_so(slow_id, condition="healthy"), PATIENCE_S)
    epoch, ids = s.out.epoch or 0, itertools.count(1)

    def lie() -> bool:
        """Who sends as much as this is not heard to the end: what does not fit is dropped before."""
        for consumer_id in itertools.islice(ids, 200):
            liar.say(QosConsumer(SOURCE, consumer_id, epoch, 2**60, 0, 0, Mode.STREAM), "qos")
            liar.say(QosConsumer(consumer_id, 1, 1, 0, 0, 0, Mode.STREAM), "qos")
        liar.say(QosConsumer(SOURCE, slow_id, epoch, 0, 2**60, 0, Mode.STREAM), "qos")
        refused = s.supervisor.view().refused
        return all(refused.get(reason, 0) >= 1_000 for reason in ("too_many_consumers", "unknown_stream"))

    with Ear(s.host, []) as liar:
        wait_until(lie, PATIENCE_S)
        wait_until(lambda: s.supervisor.view().refused.get("another_session", 0) >= 1, PATIENCE_S)
        view = s.supervisor.view()
        assert len(view.consumers) == 100
        slow.say(SLOW_S)
        # It may have another id by now: somebody else reported under its own.
        modes = lambda: {each.mode for each in s.supervisor.view().consumers}  # noqa: E731
        wait_until(lambda: "rate_limited" in modes(), PATIENCE_S, what="the real one is looked after")

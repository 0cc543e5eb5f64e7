"""One stream again as another one with fewer frames: source, limiter and readers as real processes."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensor_pool as tp
from pool_hosts import Ear, quick_host
from tensor_pool.host.limiter import RateLimiter
from tensor_pool.ops.cli.exit_codes import OK
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.testing.cluster import Process
from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta, Role

HARDLY_EVER = 0.01
"""A rate at which only the first frame passes while a test runs."""
NUMBERS = itertools.count()
Start = Callable[..., Process]


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def pool(host: Cluster) -> Iterator[tp.Pool]:
    with host.connect() as pool:
        yield pool


@pytest.fixture
def names() -> tuple[str, str]:
    """Of two streams that no other test has."""
    number = next(NUMBERS)
    return f"camera-{number}", f"preview-{number}"


@pytest.fixture
def limit(host: Cluster, names: tuple[str, str]) -> Iterator[Start]:
    """Starts ``tpool limit`` between the two streams."""
    with contextlib.ExitStack() as running:

        def start(max_rate_hz: float, *options: str) -> Process:
            process = host.start("limit", *names, "--max-rate-hz", str(max_rate_hz), *options)
            running.enter_context(process).read_line()
            return process

        yield start


@pytest.fixture
def limiter(host: Cluster, names: tuple[str, str]) -> Iterator[Callable[..., RateLimiter]]:
    """A limiter in this process, to look into."""
    with contextlib.ExitStack() as running:

        def start(max_rate_hz: float, **options: Any) -> RateLimiter:
            return running.enter_context(RateLimiter(host.config, *names, max_rate_hz=max_rate_hz, **options))

        yield start


def camera(pool: tp.Pool, name: str, **options: Any) -> tp.Producer:
    return pool.producer(name, **{"dtype": "uint8", "shape": (4,), "slots": 16, **options})


def values(number: int) -> np.ndarray:
    return np.full(4, number, np.uint8)


def next_frame(inp: tp.Consumer) -> tp.Frame:
    frame = inp.poll(timeout=10.0)
    assert frame is not None, "no frame came"
    return frame


class TestWhatPasses:
    def test_exactly_the_newest_frame_when_a_slot_opens(
        self, host: Cluster, pool: tp.Pool, names: tuple[str, str], limit: Start
    ) -> None:
        with camera(pool, names[0]) as out:
            limit(HARDLY_EVER)
            inp = pool.consumer(names[1], wait_s=10)
            out.publish(values(0))
            first = next_frame(inp)
            assert (first.seq, first.copy()[0]) == (0, 0)
            for number in range(1, 10):
                out.publish(values(number))
            with tp.ControlClient(config=host.config) as control:
                control.send("limiter", "max_rate_hz", 10.0)
            second = next_frame(inp)
            assert (second.seq, second.copy()[0]) == (9, 9)
            assert inp.poll(timeout=0.5) is None, "nothing is published twice, and nothing late"

    @pytest.mark.quiet
    @pytest.mark.parametrize("max_rate_hz", [5, 40])
    def test_the_rate_is_kept_and_reached(
        self, host: Cluster, pool: tp.Pool, names: tuple[str, str], limit: Start, max_rate_hz: float
    ) -> None:
        limit(max_rate_hz)
        source = host.run_python(f"""
            out = pool.producer("{names[0]}", dtype="uint64", shape=(4,), slots=64)
            while True:
                out.publish(np.zeros(4, np.uint64))
                time.sleep(0.002)
        """)
        with source:
            inp = pool.consumer(names[1], wait_s=10)
            came = []
            while not came or came[-1] - came[0] < 2.0:
                next_frame(inp)
                came.append(time.monotonic())
        rate_hz = (len(came) - 1) / (came[-1] - came[0])
        assert 0.9 * max_rate_hz <= rate_hz <= 1.05 * max_rate_hz

    @pytest.mark.quiet
    @pytest.mark.parametrize("command", ["hz", "bw"])
    def test_the_rate_of_the_frames_that_pass_is_measured(
        self, host: Cluster, names: tuple[str, str], limit: Start, command: str
    ) -> None:
        limit(5, "--slots", "8")
        source = host.run_python(f"""
            out = pool.producer("{names[0]}", dtype="uint8", shape=(4,), slots=64)
            print("open")
            while True:
                out.publish(np.zeros(4, np.uint8))
                time.sleep(0.01)
        """)
        with source, host.connect() as pool:
            source.read_line()
            next_frame(pool.consumer(names[1], wait_s=10))
            options = ("--count", "8", "--window", "60", "--format", "jsonl")
            with host.start(command, names[1], *options) as measured:
                total = json.loads(measured.read_line())
        assert total["rate_hz"] == pytest.approx(5, rel=0.3), "not that of the source"
        assert (total["frames"], total["missed"]) == (8, 0)

    def test_a_frame_keeps_what_it_says(self, pool: tp.Pool, names: tuple[str, str], limit: Start) -> None:
        with camera(pool, names[0], dtype="float32", shape=(3, 5), metadata={"gain": 1}) as out:
            limit(0)
            inp = pool.consumer(names[1], wait_s=10)
            for number in range(5):
                out.metadata["gain"] = 1 + number
                with out.claim(
                    (3, 5), "float32", order="F", timestamp_ns=1_000 + number, trace_id=77 + number
                ) as slot:
                    slot.array[...] = np.arange(15).reshape(3, 5) + number
                frame = next_frame(inp)
                info, version = frame.info, out.metadata.meta_version
                assert (frame.copy() == np.arange(15).reshape(3, 5) + number).all()
                assert (info.seq, info.timestamp_ns, info.trace_id) == (number, 1_000 + number, 77 + number)
                assert (info.meta_version, info.dtype, info.order) == (version, "float32", "F")
                assert (info.stream_id, info.epoch) == (inp.stream_id, inp.stats.epoch)
                assert info.stream_id != out.stream_id

    def test_at_rate_0_every_frame(self, pool: tp.Pool, names: tuple[str, str], limiter: Callable) -> None:
        """Also of a burst: as long as they are in the ring, being late is no reason to skip any."""
        count = 5_000
        with camera(pool, names[0], slots=8_192) as out:
            running = limiter(0)
            inp = pool.consumer(names[1], wait_s=10, max_outstanding_seq_gap=0)
            for number in range(count):
                out.publish(values(number % 256))
            assert [next_frame(inp).seq for _ in range(count)] == list(range(count))
            stats = running.stats
            assert (stats.frames_seen, stats.frames_passed, stats.frames_overtaken) == (count, count, 0)

    def test_no_frame_that_is_still_being_filled(
        self, pool: tp.Pool, names: tuple[str, str], limit: Start
    ) -> None:
        with camera(pool, names[0]) as out:
            limit(0)
            inp = pool.consumer(names[1], wait_s=10, progress=True)
            with out.claim((4,), "uint8", progress=True) as slot:
                slot.array[:2] = 7
                slot.progress(bytes_filled=2)
                assert inp.poll(timeout=0.3) is None
                assert inp.poll_progress(timeout=0.1) is None
                slot.array[2:] = 7
            assert next_frame(inp).copy().tolist() == [7] * 4
            out.claim((4,), "uint8").abort()
            out.publish(values(8))
            assert next_frame(inp).seq == 2, "one that was given up leaves a gap here too"

    def test_frames_are_counted(self, pool: tp.Pool, names: tuple[str, str], limiter: Callable) -> None:
        with camera(pool, names[0]) as out:
            running = limiter(4)
            inp = pool.consumer(names[1], wait_s=10)
            out.publish(values(0))
            next_frame(inp)
            for number in range(1, 10):
                out.publish(values(number))
            while next_frame(inp).seq < 9:
                pass
            wait_until(lambda: running.stats.frames_seen == 10)
            stats = running.stats
            assert stats.frames_passed + stats.frames_thinned == 10
            assert 2 <= stats.frames_passed <= 3, "the slot may open while they are published"
            assert (stats.source_epoch, stats.epoch) == (out.epoch, inp.stats.epoch)
            assert (stats.frames_torn, stats.error, stats.max_rate_hz) == (0, None, 4)
            assert 0 < stats.rate_hz <= 4.5


class TestMetadata:
    def test_is_said_again_of_the_destination(
        self, host: Cluster, pool: tp.Pool, names: tuple[str, str], limit: Start
    ) -> None:
        with camera(pool, names[0], metadata={"gain": 7}) as out, Ear(host, ["metadata"]) as ear:
            limit(1)
            inp = pool.consumer(names[1], wait_s=10)
            version = out.metadata.meta_version
            stream_id: Any = inp.stream_id
            announce = ear.await_one(DataSourceAnnounce, stream_id=stream_id, meta_version=version)
            meta = ear.await_one(DataSourceMeta, stream_id=stream_id, meta_version=version)
            at_home = ear.await_one(DataSourceMeta, stream_id=out.stream_id, meta_version=version)
            assert (announce.name, announce.epoch) == (names[1], inp.stats.epoch)
            assert meta.attributes == at_home.attributes
            wait_until(lambda: inp.metadata.get("gain") == 7)
            out.metadata["gain"] = 8
            wait_until(lambda: inp.metadata.get("gain") == 8)
            assert announce.summary == "uint8 4 row"

    def test_a_destination_without_name_has_that_of_the_source(
        self, host: Cluster, pool: tp.Pool, names: tuple[str, str]
    ) -> None:
        with camera(pool, names[0]), RateLimiter(host.config, names[0], 51_000, max_rate_hz=0):
            inp = pool.consumer(51_000, wait_s=10)
            wait_until(lambda: inp.metadata.name == names[0])

    def test_blobs_come_too_also_to_who_comes_later(
        self, pool: tp.Pool, names: tuple[str, str], limit: Start
    ) -> None:
        with camera(pool, names[0]) as out:
            out.send_blob(3, b"flat field" * 20_000)
            limit(1)
            early = pool.consumer(names[1], wait_s=10)
            wait_until(lambda: 3 in early.blobs)
            late = pool.consumer(names[1], wait_s=10)
            wait_until(lambda: 3 in late.blobs)
            assert late.blobs[3].data == b"flat field" * 20_000


class TestRemaps:
    @pytest.mark.parametrize(
        "other",
        [
            {"dtype": "float64", "shape": (2, 3, 4)},
            {"dtype": "uint16", "shape": (1_000, 1_000), "slots": 8},
            {},
        ],
        ids=["another layout", "larger frames", "the same again"],
    )
    def test_the_first_frame_afterwards_passes(
        self, pool: tp.Pool, names: tuple[str, str], limit: Start, other: dict[str, Any]
    ) -> None:
        limit(HARDLY_EVER)
        with camera(pool, names[0]) as out:
            inp = pool.consumer(names[1], wait_s=10)
            out.publish(values(1))
            assert next_frame(inp).copy()[0] == 1
            out.publish(values(2))
        with camera(pool, names[0], **other) as out:
            told = {"dtype": "uint8", "shape": (4,), **other}
            array = np.full(told["shape"], 3, told["dtype"])
            out.publish(array)
            frame = next_frame(inp)
            assert (frame.seq, frame.dtype, frame.shape) == (0, array.dtype.name, array.shape)
            assert (frame.copy() == 3).all()

    def test_a_destination_that_somebody_has_is_waited_for(
        self, pool: tp.Pool, names: tuple[str, str], limiter: Callable
    ) -> None:
        with camera(pool, names[0]) as out:
            with camera(pool, names[1]):
                running = limiter(HARDLY_EVER)
                out.publish(values(5))
                wait_until(lambda: "has a producer" in str(running.stats.error))
            inp = pool.consumer(names[1], wait_s=10)
            assert next_frame(inp).copy()[0] == 5, "the first frame, however long it had to wait"
            wait_until(lambda: running.stats.error is None)

    def test_no_frame_comes_twice_when_the_destination_is_lost(
        self, host: Cluster, pool: tp.Pool, names: tuple[str, str], limiter: Callable
    ) -> None:
        with camera(pool, names[0]) as out:
            running = limiter(0)
            inp = pool.consumer(names[1], wait_s=10)
            out.publish(values(0))
            assert next_frame(inp).seq == 0
            before = running.stats.epoch
            with Ear(host, []) as ear, ear.admin() as admin:
                leases = admin.leases(inp.stream_id)
                (lease,) = [lease for lease in leases if lease.role is Role.PRODUCER]
                admin.revoke(lease.stream_id, lease.lease_id)
            wait_until(lambda: running.stats.epoch not in (None, before))
            out.publish(values(1))
            assert next_frame(inp).seq == 1


class TestCommands:
    def test_the_rate_is_changed_while_it_runs(
        self, host: Cluster, pool: tp.Pool, names: tuple[str, str], limit: Start
    ) -> None:
        with camera(pool, names[0]) as out:
            limit(HARDLY_EVER)
            inp = pool.consumer(names[1], wait_s=10)
            out.publish(values(0))
            assert next_frame(inp).seq == 0
            out.publish(values(1))
            assert host.start("send", "limiter", "max_rate_hz=5").wait() == OK
            assert next_frame(inp).seq == 1
            with tp.ControlClient(config=host.config) as control:
                (known,) = control.services(only="limiter")
                assert known.values["max_rate_hz"] == 5.0
                assert (known.values["source"], known.values["dest"]) == names
                with pytest.raises(tp.CommandRefusedError, match="from 0"):
                    control.send("limiter", "max_rate_hz", -1.0)
                with pytest.raises(tp.CommandRefusedError, match="no rate"):
                    control.send("limiter", "max_rate_hz", 1e12)
                with pytest.raises(tp.CommandRefusedError, match="only the service itself"):
                    control.send("limiter", "frames_in", 0)

    def test_several_are_told_apart_and_tell_what_they_did(
        self, host: Cluster, pool: tp.Pool, names: tuple[str, str], limiter: Callable
    ) -> None:
        with camera(pool, names[0]) as out:
            running = limiter(0, instance="left")
            inp = pool.consumer(names[1], wait_s=10)
            out.publish(values(0))
            next_frame(inp)
            with tp.ControlClient(config=host.config) as control:
                control.send("limiter:left", "max_rate_hz", 3.0)
                assert running.max_rate_hz == 3.0

                def told() -> tuple[int, int]:
                    (known,) = control.services(only="limiter:left")
                    return known.values["frames_in"], known.values["frames_out"]

                wait_until(lambda: told() == (1, 1))
                running.max_rate_hz = 4
                wait_until(lambda: control.services(only="limiter:left")[0].values["max_rate_hz"] == 4.0)

    def test_without_control_it_is_no_service(self, host: Cluster, names: tuple[str, str]) -> None:
        config = host.config.replace({"control.enabled": False})
        with (
            RateLimiter(config, *names, max_rate_hz=1, instance="mute"),
            tp.ControlClient(config=config) as c,
        ):
            assert c.services(only="limiter:mute", timeout_s=0.2) == []

"""Frames over a bridge: whole, in order, under their own numbers, in an epoch of the destination's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, follows, is_ready
from pool_hosts import LEASE_S, Ear
from tensor_pool.bridging.counting import read_bridges
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient
from tensor_pool.wire.messages import ConsumerConfig, ShmPoolAnnounce

SIZE = 300_001


def picture(number: int) -> np.ndarray:
    return np.full(SIZE, number % 251, np.uint8)


def publish_until(out: tp.Producer, inp: tp.Consumer, count: int) -> list[tuple[int, np.ndarray]]:
    """Publishes, one frame after the other came; those that came.

    What is sent while both ends are still finding each other may be for nobody: the first may take some
    tries.
    """
    came: list[tuple[int, np.ndarray]] = []
    deadline = time.monotonic() + 20
    while len(came) < count:
        seq = out.publish(picture(out.stats.frames))
        frame = inp.poll(timeout=5.0 if came else 1.0)
        if frame is not None:
            came.append((frame.seq, frame.copy()))
        elif came or time.monotonic() > deadline:
            pytest.fail(f"frame {seq} did not come")
    return came


def arrives(out: tp.Producer, inp: tp.Consumer, value: int) -> bool:
    """Publishes a frame; whether one like it was the next to come."""
    out.publish(np.full(SIZE, value, np.uint8))
    frame = inp.poll(timeout=0.2)
    return frame is not None and frame.copy()[0] == value


@pytest.fixture
def out(pool: tp.Pool):
    with pool.producer(
        SOURCE, name="camera", dtype="uint8", shape=(SIZE,), slots=16, metadata={"gain": 7}
    ) as out:
        yield out


@pytest.mark.req("BRG-2.2-1", "BRG-6-13", "BRG-6-14")
def test_frames_arrive_whole_under_their_numbers_in_an_epoch_of_their_own(pool, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: follows(running, out))
    inp = pool.consumer(DEST)
    for seq, values in publish_until(out, inp, 20):
        assert (values == seq % 251).all()
        assert values.shape == (SIZE,)
    sent, received = running.stats
    assert sent.sent.frames >= received.received.frames == 20
    assert received.received.nbytes == 20 * SIZE
    assert received.received.source_epoch == out.epoch != received.received.epoch
    assert received.received.in_flight == received.received.bytes_in_flight == 0
    assert inp.stats.epoch == received.received.epoch


def test_metadata_goes_along_with_its_version(pool, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: follows(running, out))
    inp = pool.consumer(DEST)
    wait_until(lambda: dict(inp.metadata).get("gain") == 7)
    out.metadata["gain"] = 8
    wait_until(lambda: dict(inp.metadata).get("gain") == 8)
    ((_, _),) = publish_until(out, inp, 1)
    assert inp.metadata.at(out.metadata.meta_version) is not None


@pytest.mark.req("BRG-8-1", "BRG-8-4")
def test_a_source_that_begins_anew_begins_an_epoch_here_too(pool, bridge) -> None:
    running = bridge()
    epochs = []
    inp = pool.consumer(DEST)
    for value in (100, 101, 102):
        with pool.producer(SOURCE, dtype="uint8", shape=(SIZE,), slots=16) as out:
            wait_until(partial(follows, running, out))
            wait_until(partial(arrives, out, inp, value))
            epochs.append(running.stats[-1].received.epoch)
    assert epochs == sorted(set(epochs))


@pytest.mark.req("BRG-4-5")
def test_a_destination_that_is_taken_is_told_and_taken_when_it_is_free(pool, out, bridge) -> None:
    other = pool.producer(DEST, dtype="uint8", shape=(4,))
    running = bridge()
    wait_until(lambda: running.stats[-1].received.error is not None)
    assert "producer" in running.stats[-1].received.error
    assert not is_ready(running)
    other.close()
    wait_until(lambda: follows(running, out))
    assert running.stats[-1].received.error is None
    publish_until(out, pool.consumer(DEST), 3)


@pytest.mark.req("BRG-4-5")
def test_a_destination_that_is_taken_may_be_moved(pool, out, bridge) -> None:
    with pool.producer(DEST, dtype="uint8", shape=(4,)):
        running = bridge(on_conflict="move", dest_stream_id_range="50100-50109")
        wait_until(lambda: follows(running, out))
        assert running.stats[-1].received.stream_id == 50_100
        publish_until(out, pool.consumer(50_100), 3)


@pytest.mark.req("BRG-4-5")
def test_a_destination_whose_producer_was_killed_is_not_moved(pool, host, out, bridge) -> None:
    former = host.run_python(
        f"""
        with pool.producer({DEST}, dtype="uint8", shape=(4,)):
            print("here", flush=True)
            time.sleep(60)
        """
    )
    former.read_line()
    running = bridge(on_conflict="move", dest_stream_id_range="50100-50109")
    wait_until(lambda: running.stats[-1].received.error)
    former.kill()
    wait_until(lambda: follows(running, out))
    assert running.stats[-1].received.stream_id == DEST
    publish_until(out, pool.consumer(DEST), 3)


def test_a_profile_says_what_the_ring_is_like(pool, host, out, bridge, settings) -> None:
    settings["driver.profiles"] = {"few": {"nslots": 4, "pools": ["1m"]}}
    settings["bridge.mappings"][0]["profile"] = "few"
    running = bridge()
    wait_until(lambda: follows(running, out))
    with Ear(host, ["announce"]) as ear:
        announce = ear.await_one(ShmPoolAnnounce, stream_id=DEST, epoch=running.stats[-1].received.epoch)
    assert (announce.header_nslots, [each.stride_bytes for each in announce.payload_pools]) == (4, [1 << 20])
    publish_until(out, pool.consumer(DEST), 3)


@pytest.mark.req("BRG-4-6")
def test_without_a_destination_one_of_the_range_is_taken(pool, out, bridge, settings) -> None:
    settings["bridge.mappings"] = [{"source_stream_id": SOURCE}]
    running = bridge(dest_stream_id_range="50200-50209")
    wait_until(lambda: follows(running, out))
    assert running.stats[-1].received.stream_id == 50_200
    publish_until(out, pool.consumer(50_200), 3)


def test_without_range_the_name_chooses_also_one_that_is_waited_for(pool, out, bridge, settings) -> None:
    settings["bridge.mappings"] = [{"source_stream_id": SOURCE, "name": "far-camera"}]
    inp = pool.consumer("far-camera")
    running = bridge()
    wait_until(lambda: follows(running, out))
    publish_until(out, inp, 3)


@pytest.mark.req("BRG-2.3-3")
def test_a_name_that_leads_back_to_the_source_is_refused(pool, bridge, settings) -> None:
    with pool.producer("round-and-round", dtype="uint8", shape=(100,)) as out:
        stream_id = out.stream_id
        settings["bridge.mappings"] = [{"source_stream_id": stream_id, "name": "round-and-round"}]
        running = bridge()
        wait_until(lambda: "back to itself" in (running.stats[-1].error or ""))
        (lane,) = running._bridge._receivers
        refused_s = lane._retry_at
        wait_until(lambda: lane._retry_at != refused_s)  # once more
        found = [each.error for each in read_bridges(pool.aeron_dir) if each.instance_id == "test"]
        assert any(f"stream {stream_id} of this host" in error for error in found)
    wait_until(lambda: pool.streams(name="round-and-round")[0].producer_id is None)
    left = pool.streams(name="round-and-round")[0].epoch
    wait_until(lambda: "no producer" in (running.stats[-1].error or ""))
    assert pool.streams(name="round-and-round")[0].epoch == left, "nobody took it"
    assert running.stats[-1].received.stream_id is None
    pool.producer("round-and-round", dtype="uint8", shape=(100,)).close()


def test_one_port_serves_all_purposes_with_stream_ids_apart(pool, out, bridge, settings) -> None:
    settings["bridge.control_channel"] = settings["bridge.metadata_channel"] = settings[
        "bridge.payload_channel"
    ]
    running = bridge()
    wait_until(lambda: follows(running, out))
    inp = pool.consumer(DEST)
    publish_until(out, inp, 3)
    wait_until(lambda: inp.metadata.get("gain") == 7)


def test_a_sender_without_receiver_drops_and_holds_nobody_up(out, bridge) -> None:
    running = bridge(role="sender")
    assert [mapping.received for mapping in running.stats] == [None]
    started = time.monotonic()
    for number in range(50):
        out.publish(picture(number))
    assert time.monotonic() - started < 2.0
    wait_until(lambda: out.publish(picture(0)) and running.stats[0].sent.dropped.get("not_connected"))
    assert running.stats[0].sent.frames == 0


def test_a_bandwidth_cap_drops_whole_frames(pool, out, bridge, settings) -> None:
    settings["bridge.mappings"][0]["max_bytes_per_s"] = 1_000_000
    running = bridge()
    wait_until(lambda: follows(running, out))
    wait_until(
        lambda: out.publish(picture(0)) >= 0 and running.stats[0].sent.dropped.get("over_bandwidth", 0) > 10
    )
    wait_until(lambda: running.stats[1].received.frames == running.stats[0].sent.frames > 0)
    assert running.stats[1].received.frames_lost == {}


@pytest.mark.parametrize("rate_hz", [2, 2.5])
def test_frames_that_a_rate_leaves_out_are_counted_and_not_lost(
    pool, out, bridge, settings, rate_hz: float
) -> None:
    settings["bridge.mappings"][0]["max_rate_hz"] = rate_hz
    running = bridge()
    wait_until(lambda: follows(running, out))

    def unaccounted() -> int:
        sent = running.stats[0].sent
        return out.stats.frames - sent.frames - sent.thinned - sum(sent.dropped.values())

    def sends(count: int) -> bool:
        out.publish(picture(out.stats.frames))
        time.sleep(0.02)
        return running.stats[0].sent.frames >= count

    wait_until(lambda: sends(1))
    before, started_s = unaccounted(), time.monotonic()
    wait_until(lambda: sends(3))
    assert time.monotonic() - started_s > 1.5 / rate_hz
    assert abs(unaccounted() - before) <= 5, "those since the last one that was sent"
    thinned = running.stats[0].sent.thinned
    assert thinned > 10
    wait_until(lambda: [reading.thinned for reading in read_bridges(pool.aeron_dir)] == [0, thinned])


def test_frames_that_the_sender_came_too_late_for_are_counted(pool, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: follows(running, out))
    publish_until(out, pool.consumer(DEST), 1)
    for _ in range(500):
        with out.claim((SIZE,), np.uint8):
            pass  # far faster than frames can be sent

    def accounted() -> int:
        sent = running.stats[0].sent
        return sent.frames + sum(sent.dropped.values())

    wait_until(lambda: accounted() == out.stats.frames)
    assert running.stats[0].sent.dropped["overtaken"] > 0


def test_a_frame_that_is_too_large_for_the_bridge_is_counted(pool, out, bridge) -> None:
    running = bridge(max_payload_bytes=1000)
    wait_until(lambda: follows(running, out))
    wait_until(lambda: out.publish(picture(0)) >= 0 and running.stats[0].sent.dropped.get("too_large"))
    assert running.stats[0].sent.frames == 0


def test_the_newer_dialect_carries_trace_ids_and_checksums(pool, out, bridge) -> None:
    running = bridge(dialect="newer", checksums=True)
    wait_until(lambda: follows(running, out))
    inp = pool.consumer(DEST)
    wait_until(lambda: inp.stats.state == "mapped")
    out.publish(picture(0), trace_id=0xABC)
    frame = inp.poll(timeout=5.0)
    assert frame is not None
    assert frame.info.trace_id == 0xABC
    assert (frame.copy() == 0).all()


def test_empty_frames_are_frames_too(pool, bridge) -> None:
    with pool.producer(SOURCE, dtype="float32", shape=(4, 4), slots=16) as out:
        running = bridge()
        wait_until(lambda: follows(running, out))
        inp = pool.consumer(DEST)
        out.publish(np.zeros((0, 4), np.float32))
        frame = inp.poll(timeout=5.0)
        assert frame is not None
        assert (frame.shape, frame.dtype) == ((0, 4), "float32")


def test_garbage_is_counted_and_the_next_frame_passes(
    pool: tp.Pool,
    host: Cluster,
    out: tp.Producer,
    bridge: Callable[..., BridgeService],
    settings: dict[str, Any],
) -> None:
    running = bridge()
    wait_until(lambda: follows(running, out))
    with AeronClient.connect(pool.aeron_dir) as client:
        publication = client.add_publication(settings["bridge.payload_channel"], 3000)
        assert publication.wait_connected(5_000)
        for length in range(200):
            publication.offer(bytes(range(256))[:length] or b"\0")
    publish_until(out, pool.consumer(DEST), 3)
    assert running.stats[1].received.frames == 3


def test_counters_tell_every_process_of_the_host(pool, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: follows(running, out))
    publish_until(out, pool.consumer(DEST), 5)

    def frames() -> dict[str, int]:
        return {reading.side: reading.frames for reading in read_bridges(pool.aeron_dir)}

    wait_until(lambda: frames() == {"send": 5, "receive": 5})
    running.close()
    wait_until(lambda: read_bridges(pool.aeron_dir) == [])


def test_a_destination_that_does_not_fit_says_so_as_long_as_it_does_not(pool, out, bridge) -> None:
    others = [pool.producer(stream_id, dtype="uint8", shape=(4,)) for stream_id in (DEST, 50_100, 50_101)]
    running = bridge(on_conflict="move", dest_stream_id_range="50100-50101")
    wait_until(lambda: running.stats[-1].received.error is not None)
    time.sleep(LEASE_S + 1.0 + 2.5)  # more tries than there are ids
    assert "stream 50000 has a producer" in running.stats[-1].received.error
    others.pop().close()
    wait_until(lambda: follows(running, out))
    assert running.stats[-1].received.stream_id == 50_101
    for other in others:
        other.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_nobody_thought_of_does_not_end_a_mapping_for_good(pool, out, bridge, monkeypatch) -> None:
    relay = tp.Pool.relay

    def fails_once(*args: Any, **kwargs: Any) -> tp.Producer:
        monkeypatch.setattr(tp.Pool, "relay", relay)
        raise RuntimeError("out of the blue")

    monkeypatch.setattr(tp.Pool, "relay", fails_once)
    running = bridge()
    wait_until(lambda: running.restarts == 1 and running.stats and is_ready(running))
    publish_until(out, pool.consumer(DEST), 3)


@pytest.mark.req("BRG-4-8")
def test_private_streams_are_declined(pool, host, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: follows(running, out))
    with Ear(host, ["control"]) as ear:
        inp = pool.consumer(DEST, own_stream=True)
        answer = ear.await_one(ConsumerConfig, stream_id=DEST)
    assert (answer.descriptor_stream_id, answer.descriptor_channel) == (0, "")
    assert (answer.control_stream_id, answer.control_channel) == (0, "")
    publish_until(out, inp, 3)
    assert not inp.session.streams.private

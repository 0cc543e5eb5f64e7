"""Frames over a bridge: whole, in order, under their own numbers, in an epoch of the destination's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE
from pool_hosts import Ear
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient
from tensor_pool.wire.messages import ConsumerConfig, ShmPoolAnnounce

SIZE = 300_001


def picture(number: int) -> np.ndarray:
    return np.full(SIZE, number % 251, np.uint8)


def ready(bridge: BridgeService) -> bool:
    """Whether frames would be put into a ring."""
    return bridge.stats[-1].received.epoch is not None


def publish_until(out: tp.Producer, inp: tp.Consumer, count: int) -> list[tuple[int, np.ndarray]]:
    """Publishes, one frame after the other came; those that came."""
    came: list[tuple[int, np.ndarray]] = []
    while len(came) < count:
        seq = out.publish(picture(out.stats.frames))
        frame = inp.poll(timeout=5.0)
        assert frame is not None, f"frame {seq} did not come"
        came.append((frame.seq, frame.copy()))
    return came


def follows(bridge: BridgeService, out: tp.Producer) -> bool:
    """Whether frames of this producer would be put into a ring."""
    return ready(bridge) and bridge.stats[-1].received.source_epoch == out.epoch


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


def test_frames_arrive_whole_under_their_numbers_in_an_epoch_of_their_own(pool, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: ready(running))
    inp = pool.consumer(DEST)
    for seq, values in publish_until(out, inp, 20):
        assert (values == seq % 251).all()
        assert values.shape == (SIZE,)
    sent, received = running.stats
    assert sent.sent.frames == received.received.frames == 20
    assert received.received.nbytes == 20 * SIZE
    assert received.received.source_epoch == out.epoch != received.received.epoch
    assert received.received.in_flight == received.received.bytes_in_flight == 0
    assert inp.stats.epoch == received.received.epoch


def test_metadata_goes_along_with_its_version(pool, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: ready(running))
    inp = pool.consumer(DEST)
    wait_until(lambda: dict(inp.metadata).get("gain") == 7)
    out.metadata["gain"] = 8
    wait_until(lambda: dict(inp.metadata).get("gain") == 8)
    ((_, _),) = publish_until(out, inp, 1)
    assert inp.metadata.at(out.metadata.meta_version) is not None


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


def test_a_destination_that_is_taken_is_told_and_taken_when_it_is_free(pool, out, bridge) -> None:
    other = pool.producer(DEST, dtype="uint8", shape=(4,))
    running = bridge()
    wait_until(lambda: running.stats[-1].received.error is not None)
    assert "producer" in running.stats[-1].received.error
    assert not ready(running)
    other.close()
    wait_until(lambda: ready(running))
    assert running.stats[-1].received.error is None
    publish_until(out, pool.consumer(DEST), 3)


def test_a_destination_that_is_taken_may_be_moved(pool, out, bridge) -> None:
    with pool.producer(DEST, dtype="uint8", shape=(4,)):
        running = bridge(on_conflict="move", dest_stream_id_range="50100-50109")
        wait_until(lambda: ready(running))
        assert running.stats[-1].received.stream_id == 50_100
        publish_until(out, pool.consumer(50_100), 3)


def test_a_profile_says_what_the_ring_is_like(pool, host, out, bridge, settings) -> None:
    settings["driver.profiles"] = {"few": {"nslots": 4, "pools": ["1m"]}}
    settings["bridge.mappings"][0]["profile"] = "few"
    running = bridge()
    wait_until(lambda: ready(running))
    with Ear(host, ["announce"]) as ear:
        announce = ear.await_one(ShmPoolAnnounce, stream_id=DEST, epoch=running.stats[-1].received.epoch)
    assert (announce.header_nslots, [each.stride_bytes for each in announce.payload_pools]) == (4, [1 << 20])
    publish_until(out, pool.consumer(DEST), 3)


def test_without_a_destination_one_of_the_range_is_taken(pool, out, bridge, settings) -> None:
    settings["bridge.mappings"] = [{"source_stream_id": SOURCE}]
    running = bridge(dest_stream_id_range="50200-50209")
    wait_until(lambda: ready(running))
    assert running.stats[-1].received.stream_id == 50_200
    publish_until(out, pool.consumer(50_200), 3)


def test_without_range_the_name_chooses_also_one_that_is_waited_for(pool, out, bridge, settings) -> None:
    settings["bridge.mappings"] = [{"source_stream_id": SOURCE, "name": "far-camera"}]
    inp = pool.consumer("far-camera")
    running = bridge()
    wait_until(lambda: ready(running))
    publish_until(out, inp, 3)


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
    wait_until(lambda: ready(running))
    wait_until(
        lambda: out.publish(picture(0)) >= 0 and running.stats[0].sent.dropped.get("over_bandwidth", 0) > 10
    )
    wait_until(lambda: running.stats[1].received.frames == running.stats[0].sent.frames > 0)
    assert running.stats[1].received.frames_lost == {}


def test_a_frame_that_is_too_large_for_the_bridge_is_counted(pool, out, bridge) -> None:
    running = bridge(max_payload_bytes=1000)
    wait_until(lambda: ready(running))
    wait_until(lambda: out.publish(picture(0)) >= 0 and running.stats[0].sent.dropped.get("too_large"))
    assert running.stats[0].sent.frames == 0


def test_the_newer_dialect_carries_trace_ids_and_checksums(pool, out, bridge) -> None:
    running = bridge(dialect="newer", checksums=True)
    wait_until(lambda: ready(running))
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
        wait_until(lambda: ready(running))
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
    wait_until(lambda: ready(running))
    with AeronClient.connect(pool.aeron_dir) as client:
        publication = client.add_publication(settings["bridge.payload_channel"], 3000)
        assert publication.wait_connected(5_000)
        for length in range(200):
            publication.offer(bytes(range(256))[:length] or b"\0")
    publish_until(out, pool.consumer(DEST), 3)
    assert running.stats[1].received.frames == 3


def test_counters_tell_every_process_of_the_host(pool, out, bridge) -> None:
    from tensor_pool.bridging.counting import read_bridges

    running = bridge()
    wait_until(lambda: ready(running))
    publish_until(out, pool.consumer(DEST), 5)

    def frames() -> dict[str, int]:
        return {reading.side: reading.frames for reading in read_bridges(pool.aeron_dir)}

    wait_until(lambda: frames() == {"send": 5, "receive": 5})
    running.close()
    wait_until(lambda: read_bridges(pool.aeron_dir) == [])


def test_private_streams_are_declined(pool, host, out, bridge) -> None:
    running = bridge()
    wait_until(lambda: ready(running))
    with Ear(host, ["control"]) as ear:
        inp = pool.consumer(DEST, own_stream=True)
        answer = ear.await_one(ConsumerConfig, stream_id=DEST)
    assert (answer.descriptor_stream_id, answer.descriptor_channel) == (0, "")
    assert (answer.control_stream_id, answer.control_channel) == (0, "")
    publish_until(out, inp, 3)
    assert not inp.session.streams.private

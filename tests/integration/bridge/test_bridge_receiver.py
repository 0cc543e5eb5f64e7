"""The receiving end by itself: what it makes of chunks and announces, and where it puts frames."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, follows, is_ready, publications, ring_file, slot_in
from false_sender import EPOCH, FalseSender, frame_bytes, pieces, slot_bytes
from pool_hosts import Ear
from tensor_pool.errors import AttachRefusedError
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import FrameDescriptor, Role, ShmPoolAnnounce

Start = Callable[..., BridgeService]


@pytest.fixture
def sender(host: Cluster, settings: dict[str, Any]) -> Iterator[FalseSender]:
    settings["bridge.role"] = "receiver"
    with FalseSender(host.aeron_dir, settings) as sender:
        yield sender


def received(bridge: BridgeService) -> Any:
    return bridge.stats[0].received


def follow(bridge: BridgeService, sender: FalseSender, epoch: int = EPOCH, **announce: Any) -> None:
    """Announces until frames would be put into a ring: what is said while bridges change reaches nobody."""

    def is_followed() -> bool:
        sender.announce(epoch, **announce)
        return received(bridge).source_epoch == epoch

    wait_until(is_followed)


def is_ready_since(bridge: BridgeService, epoch: int) -> bool:
    """Whether frames would be put into a ring of a later epoch."""
    now = received(bridge).epoch
    return now is not None and now > epoch


@pytest.mark.req("BRG-5.2-20", "BRG-5.2-22")
def test_chunks_may_come_in_any_order(pool: tp.Pool, bridge: Start, sender: FalseSender) -> None:
    running = bridge()
    follow(running, sender)
    inp = pool.consumer(DEST)
    wait_until(lambda: inp.mapped)
    for seq, order in enumerate(itertools.permutations(range(4))):
        chunks = pieces(seq)
        sender.send(chunks[number] for number in order)
        frame = inp.poll(timeout=5.0)
        assert frame is not None, order
        assert (frame.seq, frame.copy().tobytes()) == (seq, frame_bytes(seq, 350)), order
    assert received(running).frames_lost == {}


@pytest.mark.req("BRG-5.2-26")
@pytest.mark.parametrize(
    ("keys", "most"),
    [
        pytest.param({"chunk_bytes": 90}, 90, id="chunk-bytes"),
        pytest.param({"max_chunk_bytes": 80}, 80, id="max-chunk-bytes"),
        pytest.param({"mtu_bytes": 1408}, 1280, id="mtu"),
    ],
)
def test_chunks_have_three_limits(
    pool: tp.Pool, bridge: Start, sender: FalseSender, keys: dict[str, int], most: int
) -> None:
    running = bridge(**keys)
    follow(running, sender)
    for seq, length in enumerate((most, most + 1)):
        (first,) = pieces(seq, 50)
        payload = frame_bytes(seq, length)
        whole = {"length": length, "payload_length": length, "payload": payload}
        sender.send([first.but(header=slot_bytes(seq, length), **whole)])
        wait_until(lambda seq=seq: received(running).chunks == seq + 1)
    assert received(running).frames == 1
    assert received(running).chunks_unused == {"chunk_too_long": 1}


@pytest.mark.req("BRG-6-2")
def test_nothing_is_taken_before_an_announce(
    pool: tp.Pool, host: Cluster, bridge: Start, sender: FalseSender
) -> None:
    running = bridge()
    with Ear(host, ["descriptor"]) as ear:
        sender.send(itertools.chain(*(pieces(seq) for seq in range(3))))
        wait_until(lambda: received(running).chunks == 12)
        assert received(running).chunks_unused == {"no_ring": 12}
        assert received(running).stream_id is None, "there is no ring that could change"
        follow(running, sender)
        sender.send(pieces(3))
        ear.await_one(FrameDescriptor, stream_id=DEST, seq=3)
        assert {each.seq for each in ear.all_of(FrameDescriptor, stream_id=DEST)} == {3}


@pytest.mark.req("BRG-7.2-2", "BRG-8-2")
def test_the_newest_announce_counts(pool: tp.Pool, host: Cluster, bridge: Start, sender: FalseSender) -> None:
    running = bridge()
    follow(running, sender, pools=[(2, 1024)])
    sender.send(pieces(0))
    wait_until(lambda: received(running).frames == 1)
    sender.send(pieces(1)[:2])
    wait_until(lambda: received(running).in_flight == 1)
    follow(running, sender, EPOCH + 1, pools=[(5, 1024)])
    wait_until(lambda: received(running).frames_lost == {"epoch_ended": 1})
    sender.send(each.but(epoch=EPOCH - 1) for each in pieces(1)[2:])
    wait_until(lambda: received(running).chunks_unused == {"old_epoch": 2})
    sender.send(pieces(2))
    wait_until(lambda: received(running).frames_lost.get("header") == 1, what="that pool 2 is gone")
    with Ear(host, ["descriptor"]) as ear:
        sender.send(pieces(3, slot=slot_bytes(3, 350, pool_id=5)))
        ear.await_one(FrameDescriptor, stream_id=DEST, seq=3)
        assert {each.seq for each in ear.all_of(FrameDescriptor, stream_id=DEST)} == {3}


@pytest.mark.req("BRG-8-3")
def test_an_epoch_far_ahead_keeps_the_source_out_only_for_a_while(
    pool: tp.Pool,
    bridge: Start,
    sender: FalseSender,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("tensor_pool.bridging.receiving._EPOCH_FRESH_S", 1.0)
    running = bridge()
    inp = pool.consumer(DEST)
    follow(running, sender)
    sender.send(pieces(0))
    assert inp.poll(timeout=5.0) is not None
    first = received(running).epoch
    follow(running, sender, 2**60)
    for _ in range(5):
        sender.announce(EPOCH)
    sender.send(pieces(1))
    wait_until(lambda: received(running).chunks_unused == {"old_epoch": 4})
    assert received(running).source_epoch == 2**60, "not as long as the newer one may be there"

    def is_back() -> bool:
        sender.announce(EPOCH)
        time.sleep(0.05)
        return bool(received(running).source_epoch == EPOCH)

    wait_until(is_back)
    wait_until(lambda: is_ready_since(running, first))
    sender.send(pieces(2))
    frame = inp.poll(timeout=5.0)
    assert frame is not None
    assert (frame.seq, frame.copy().tobytes()) == (2, frame_bytes(2, 350))
    assert (received(running).frames, received(running).chunks, received(running).epoch_returns) == (2, 12, 1)
    assert received(running).chunks_unused == {"old_epoch": 4}, "what was counted before stays"
    assert f"back at epoch {EPOCH}" in caplog.text


@pytest.mark.req("BRG-8-5", "BRG-8-6")
def test_epochs_are_the_drivers_and_grow_with_a_restart(bridge: Start, sender: FalseSender) -> None:
    running = bridge()
    follow(running, sender)
    wait_until(lambda: is_ready(running))
    first = received(running).epoch
    assert received(running).source_epoch == EPOCH != first
    running.close()
    again = bridge()
    follow(again, sender)
    wait_until(lambda: is_ready(again))
    assert received(again).source_epoch == EPOCH
    assert received(again).epoch > first


@pytest.fixture
def shaped(host: Cluster, bridge: Start, settings: dict[str, Any], sender: FalseSender) -> BridgeService:
    """A bridge whose ring has four slots in pools of 64 and 4096 bytes; the source has eight, in others."""
    settings["driver.profiles"] = {"odd": {"nslots": 4, "pools": ["64", "4096"]}}
    settings["bridge.mappings"][0]["profile"] = "odd"
    running = bridge()
    follow(running, sender, pools=[(2, 1024), (9, 16_384)])
    wait_until(lambda: is_ready(running))
    return running


@pytest.mark.req("BRG-6-12", "BRG-6-13", "BRG-6-14", "BRG-6-15", "BRG-7-1")
@pytest.mark.parametrize("length", [0, 64, 65, 100])
def test_slots_are_local(
    pool: tp.Pool, host: Cluster, shaped: BridgeService, sender: FalseSender, length: int
) -> None:
    inp = pool.consumer(DEST)
    wait_until(lambda: inp.mapped)
    seq = 13
    sender.send(pieces(seq, length, slot=slot_bytes(seq, length, pool_id=9)))
    frame = inp.poll(timeout=5.0)
    assert frame is not None
    assert (frame.seq, frame.copy().tobytes()) == (seq, frame_bytes(seq, length))
    local = slot_in(ring_file(host, DEST, received(shaped).epoch), seq % 4).header
    assert (local.pool_id, local.payload_slot) == (1 if length <= 64 else 2, seq % 4)
    assert (local.seq_commit, local.values_len_bytes) == (2 * seq + 1, length)
    assert (local.timestamp_ns, local.meta_version) == (1_000 + seq, 3), "as they are at the source"


@pytest.mark.req("BRG-6-17")
def test_descriptors_come_after_the_commit(host: Cluster, shaped: BridgeService, sender: FalseSender) -> None:
    ring = ring_file(host, DEST, received(shaped).epoch)
    with Ear(host, ["descriptor"]) as ear:
        for seq in range(20):
            sender.send(pieces(seq))
            ear.await_one(FrameDescriptor, stream_id=DEST, seq=seq)
            assert slot_in(ring, seq % 4).header.seq_commit == 2 * seq + 1


@pytest.mark.req("BRG-5.2-10", "BRG-5.2-11")
def test_what_fits_no_slot_here_is_dropped(
    pool: tp.Pool, bridge: Start, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    settings["driver.profiles"] = {"small": {"nslots": 4, "pools": ["4096"]}}
    settings["bridge.mappings"][0]["profile"] = "small"
    with pool.producer(SOURCE, dtype="uint8", shape=(8192,), slots=16) as out:
        running = bridge()
        wait_until(lambda: follows(running, out))
        inp = pool.consumer(DEST)
        out.publish(np.zeros(8192, np.uint8))  # more than one chunk
        wait_until(lambda: running.stats[1].received.chunks_unused.get("payload_too_long"))
        seq = out.publish(np.ones(4096, np.uint8))
        frame = inp.poll(timeout=5.0)
        assert frame is not None
        assert (frame.seq, frame.nbytes) == (seq, 4096)
        assert running.stats[1].received.frames == 1
        unused = running.stats[1].received.chunks_unused["payload_too_long"]
        assert unused > 1, "all chunks of the frame"
        assert running.stats[1].received.frames_lost == {"payload_too_long": 1}
        out.publish(np.zeros(8192, np.uint8))
        wait_until(lambda: running.stats[1].received.frames_lost == {"payload_too_long": 2})
        wait_until(lambda: "longer than a slot here" in caplog.text)


def test_a_ring_beyond_the_limit_gets_fewer_slots(host: Cluster, bridge: Start, sender: FalseSender) -> None:
    running = bridge(max_ring_bytes="1m")
    follow(running, sender, pools=[(1, 1024), (2, 65_536)], nslots=2**20)
    with Ear(host, ["announce"]) as ear:
        announce = ear.await_one(ShmPoolAnnounce, stream_id=DEST, epoch=received(running).epoch)
    assert (announce.header_nslots, [each.stride_bytes for each in announce.payload_pools]) == (
        8,
        [1024, 65_536],
    )
    sender.send(pieces(0))
    wait_until(lambda: received(running).frames == 1)


def test_a_ring_far_beyond_the_limit_is_refused_with_the_key(bridge: Start, sender: FalseSender) -> None:
    running = bridge(max_ring_bytes="1m")
    sender.announce(pools=[(1, 2**19)], nslots=64)
    wait_until(lambda: received(running).error)
    assert "bridge.max_ring_bytes 1048576" in received(running).error
    assert "64 slots of 524288 bytes" in received(running).error
    follow(running, sender, EPOCH + 1)
    assert received(running).error is None


def test_refusals_that_differ_in_numbers_are_not_logged_each_time(
    bridge: Start,
    sender: FalseSender,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []

    def refuse(*_: Any, **__: Any) -> tp.Producer:
        tries.append(len(tries))
        raise AttachRefusedError(f"{len(tries)} bytes are free")

    monkeypatch.setattr(tp.Pool, "relay", refuse)
    monkeypatch.setattr("tensor_pool.bridging.receiving._RETRY_S", 0.05)
    running = bridge()
    sender.announce()
    wait_until(lambda: len(tries) > 5)
    assert "bytes are free" in received(running).error
    assert sum("bytes are free" in text for text in caplog.messages) <= 1


@pytest.mark.req("BRG-4-3")
def test_it_holds_the_one_lease_of_a_producer(
    pool: tp.Pool, host: Cluster, bridge: Start, sender: FalseSender
) -> None:
    running = bridge()
    follow(running, sender)
    wait_until(lambda: is_ready(running))
    with Ear(host, []) as ear, ear.admin() as admin:
        leases = [lease for lease in admin.leases(DEST) if lease.role is Role.PRODUCER]
    assert [lease.epoch for lease in leases] == [received(running).epoch]
    with pytest.raises(AttachRefusedError):
        pool.producer(DEST, dtype="uint8", shape=(4,))


@pytest.mark.req("BRG-4-4")
def test_ids_that_the_driver_does_not_give_are_refused(
    bridge: Start, settings: dict[str, Any], sender: FalseSender
) -> None:
    settings["bridge.mappings"][0]["dest_stream_id"] = 40_000
    running = bridge()
    sender.announce()
    wait_until(lambda: received(running).error)
    assert "40000" in received(running).error
    assert received(running).epoch is None


@pytest.mark.req("BRG-4-9")
def test_it_publishes_for_its_destination_only(
    host: Cluster, bridge: Start, settings: dict[str, Any], sender: FalseSender
) -> None:
    settings["bridge.mappings"][0] |= {"source_control_stream_id": 1530, "dest_control_stream_id": 1531}
    before = publications(host.aeron_dir)
    running = bridge(forward_qos=True)
    follow(running, sender)
    sender.send(pieces(0))
    wait_until(lambda: received(running).frames == 1)
    streams = host.config.streams
    known = {streams.control_stream_id, streams.descriptor_stream_id, streams.qos_stream_id}
    allowed = {
        ("aeron:ipc?term-length=4194304", number) for number in known | {streams.metadata_stream_id, 1531}
    }
    assert ("aeron:ipc?term-length=4194304", 1531) in publications(host.aeron_dir) - before
    assert publications(host.aeron_dir) - before <= allowed


@pytest.mark.req("BRG-5.3a-1", "BRG-5.3a-3", "BRG-5.3a-4", "BRG-5.3a-5")
def test_missing_chunks_are_waited_for_as_long_as_configured(
    host: Cluster, bridge: Start, sender: FalseSender
) -> None:
    running = bridge(assembly_timeout_ms=1_000)
    follow(running, sender)
    with Ear(host, ["descriptor"]) as ear:
        sender.send(pieces(0)[:3])
        wait_until(lambda: received(running).in_flight == 1)
        assert received(running).bytes_in_flight == 350
        wait_until(lambda: received(running).frames_lost == {"timed_out": 1})
        assert (received(running).in_flight, received(running).bytes_in_flight) == (0, 0)
        sender.send([*pieces(0)[3:], *pieces(1)])
        ear.await_one(FrameDescriptor, stream_id=DEST, seq=1)
        assert received(running).chunks_unused == {"late": 1}
        assert ear.all_of(FrameDescriptor, stream_id=DEST, seq=0) == []


@pytest.mark.req("BRG-7.2-3")
def test_announces_of_the_source_go_no_further(host: Cluster, bridge: Start, sender: FalseSender) -> None:
    with Ear(host) as ear:
        running = bridge()
        follow(running, sender)
        ear.await_one(ShmPoolAnnounce, stream_id=DEST, epoch=received(running).epoch)
        announces = ear.all_of(ShmPoolAnnounce)
    assert EPOCH not in {each.epoch for each in announces}
    assert not any("of-another-host" in each.header_region_uri for each in announces)

"""What a bridge sends to other hosts: chunks as they should be, each message on its channel, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, is_ready, publications, ring_file
from pool_hosts import Ear
from tensor_pool import wire
from tensor_pool.bridging.udp import for_chunks_in
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    ConsumerHello,
    DataSourceAnnounce,
    DataSourceMeta,
    FrameDescriptor,
    FrameProgress,
    FrameProgressState,
    QosConsumer,
    QosProducer,
    ShmPoolAnnounce,
)
from tensor_pool.wire.shm import SLOT_BYTES, SUPERBLOCK_BYTES, decode_superblock

LARGEST = 40_000
STREAMS = {"payload": 3000, "control": 3001, "metadata": 3002}
CONTROL_AT_SOURCE, CONTROL_AT_DEST = 1520, 1521


class Tap:
    """Hears what travels on the three channels of a bridge, which is not there yet."""

    def __init__(self, client: AeronClient, settings: dict[str, Any]) -> None:
        self.before = publications(client.aeron_dir)
        """What was published before the bridge began."""
        channels = {name: settings[f"bridge.{name}_channel"] for name in STREAMS}
        channels["payload"] = for_chunks_in(channels["payload"])  # both of one socket have its buffer
        self._subscriptions = {
            name: client.add_subscription(channels[name], stream_id) for name, stream_id in STREAMS.items()
        }
        self._heard: dict[str, list[bytes]] = {name: [] for name in STREAMS}

    def packets(self, channel: str) -> list[bytes]:
        """Everything so far."""
        for name, subscription in self._subscriptions.items():
            while received := subscription.receive():
                self._heard[name] += map(bytes, received)
        return self._heard[channel]

    def messages(self, channel: str) -> list[wire.Message]:
        return [wire.decode(packet) for packet in self.packets(channel)]

    def chunks(self, seq: int) -> list[BridgeFrameChunk]:
        """Those of a frame, in the order in which they were sent."""
        found = (each for each in self.messages("payload") if isinstance(each, BridgeFrameChunk))
        return [each for each in found if each.seq == seq]


@pytest.fixture
def tap(pool: tp.Pool, settings: dict[str, Any]) -> Iterator[Tap]:
    with AeronClient.connect(pool.aeron_dir) as client:
        yield Tap(client, settings)


@pytest.fixture
def out(pool: tp.Pool) -> Iterator[tp.Producer]:
    with pool.producer(
        SOURCE, name="camera", dtype="uint8", shape=(LARGEST,), slots=16, metadata={"gain": 7}
    ) as out:
        yield out


@pytest.mark.req(
    "BRG-5.1-1", "BRG-5.1-2", "BRG-5.1-3", "BRG-5.1-4", "BRG-5.2-1", "BRG-5.2-3", "BRG-5.2-4", "BRG-5.2-5"
)
@pytest.mark.req(
    "BRG-5.2-6", "BRG-5.2-7", "BRG-5.2-8", "BRG-5.2-9", "BRG-5.2-15", "BRG-5.2-16", "BRG-5.2-19", "BRG-5.2-21"
)
@pytest.mark.parametrize("length", [0, 1, 7847, 7848, 7847 + 8064, 7847 + 8064 + 1, LARGEST])
def test_chunks_of_a_frame(
    host: Cluster, out: tp.Producer, bridge: Callable[..., BridgeService], tap: Tap, length: int
) -> None:
    running = bridge()
    wait_until(lambda: is_ready(running))
    payload = np.arange(length, dtype=np.uint32).astype(np.uint8)
    seq = out.publish(payload)
    wait_until(lambda: running.stats[1].received.frames == 1)
    wait_until(lambda: tap.chunks(seq) and len(tap.chunks(seq)) == tap.chunks(seq)[0].chunk_count)
    chunks = tap.chunks(seq)
    count = 1 + max(0, -(-(length - 7847) // 8064))
    assert [each.chunk_index for each in chunks] == list(range(count))
    assert {each.chunk_count for each in chunks} == {count}
    assert {each.payload_length for each in chunks} == {length}
    assert {each.stream_id for each in chunks} == {SOURCE}
    assert [each.header_included for each in chunks] == [True] + [False] * (count - 1)
    assert [len(each.header_bytes) for each in chunks] == [SLOT_BYTES] + [0] * (count - 1)
    end = 0
    for each in chunks:
        assert (each.chunk_offset, each.chunk_length) == (end, len(each.payload_bytes))
        end += each.chunk_length
    assert end == length
    assert b"".join(each.payload_bytes for each in chunks) == payload.tobytes()
    ring = ring_file(host, SOURCE, out.epoch).read_bytes()
    assert {each.epoch for each in chunks} == {decode_superblock(ring[:SUPERBLOCK_BYTES]).epoch}
    at = SUPERBLOCK_BYTES + seq % 16 * SLOT_BYTES
    assert chunks[0].header_bytes == ring[at : at + SLOT_BYTES]
    assert int.from_bytes(chunks[0].header_bytes[:8], "little") >> 1 == chunks[0].seq


@pytest.mark.req("BRG-5.2-2")
def test_frames_of_more_than_65535_chunks_are_not_sent(out, bridge) -> None:
    running = bridge(chunk_bytes=1, assembly_timeout_ms=5_000)
    wait_until(lambda: is_ready(running))
    out.publish(np.zeros(65_535, np.uint8))
    wait_until(lambda: running.stats[1].received.frames == 1)
    assert running.stats[0].sent.chunks == 65_535
    out.publish(np.zeros(65_536, np.uint8))
    wait_until(lambda: running.stats[0].sent.dropped == {"too_large": 1})
    assert (running.stats[0].sent.frames, running.stats[0].sent.chunks) == (1, 65_535)


@pytest.fixture
def talkative(
    pool: tp.Pool, out: tp.Producer, bridge: Callable[..., BridgeService], settings: dict[str, Any], tap: Tap
) -> Iterator[BridgeService]:
    """A bridge that forwards everything, and has something of each kind to forward."""
    settings["bridge.mappings"][0] |= {
        "metadata_stream_id": 77,
        "source_control_stream_id": CONTROL_AT_SOURCE,
        "dest_control_stream_id": CONTROL_AT_DEST,
    }
    running = bridge(forward_qos=True, forward_progress=True)
    wait_until(lambda: is_ready(running))
    said = [
        QosProducer(stream_id=SOURCE, producer_id=7, epoch=out.epoch, current_seq=41, watermark=None),
        QosConsumer(
            stream_id=SOURCE,
            consumer_id=8,
            epoch=out.epoch,
            last_seq_seen=40,
            drops_gap=0,
            drops_late=0,
            mode=wire.messages.Mode.STREAM,
        ),
        progress_in(out.epoch),
        ConsumerHello(
            stream_id=SOURCE,
            consumer_id=8,
            supports_shm=True,
            supports_progress=False,
            mode=wire.messages.Mode.STREAM,
        ),
        FrameDescriptor(stream_id=SOURCE, epoch=out.epoch, seq=1),
    ]
    with AeronClient.connect(pool.aeron_dir) as client:
        control = client.add_publication("aeron:ipc", CONTROL_AT_SOURCE)
        inp = pool.consumer(DEST)

        def all_forwarded() -> bool:
            for message in said:
                control.offer(wire.encode(message))
            out.publish(np.zeros(LARGEST, np.uint8))
            inp.poll(timeout=0.05)
            kinds = {
                type(message) for channel in ("control", "metadata") for message in tap.messages(channel)
            }
            return len(kinds) >= 6 and len(tap.packets("payload")) > 20

        wait_until(all_forwarded)
        yield running


def progress_in(epoch: int | None) -> FrameProgress:
    return FrameProgress(
        stream_id=SOURCE,
        epoch=epoch or 0,
        seq=99,
        payload_bytes_filled=3,
        state=FrameProgressState.PROGRESS,
    )


@pytest.mark.req("BRG-2.1-2", "BRG-7-4", "BRG-7.1-2", "BRG-7.2-1", "BRG-7.2-4", "BRG-7.2-5")
def test_each_message_has_its_channel(talkative: BridgeService, tap: Tap, out: tp.Producer) -> None:
    headers = [wire.peek(packet) for packet in tap.packets("payload")]
    assert {(header.schema_id, header.template_id) for header in headers} == {(902, 1)}
    control, metadata = tap.messages("control"), tap.messages("metadata")
    assert {type(each) for each in control} == {ShmPoolAnnounce, QosProducer, QosConsumer, FrameProgress}
    assert {type(each) for each in metadata} == {DataSourceAnnounce, DataSourceMeta}
    announced = {(each.stream_id, each.epoch) for each in control if isinstance(each, ShmPoolAnnounce)}
    assert announced == {(SOURCE, out.epoch)}


@pytest.mark.req("BRG-9-4", "BRG-9-5", "BRG-9-7")
def test_progress_is_forwarded_as_it_was_told(talkative: BridgeService, tap: Tap, out: tp.Producer) -> None:
    forwarded = {each for each in tap.messages("control") if isinstance(each, FrameProgress)}
    assert forwarded == {progress_in(out.epoch)}


@pytest.mark.req("BRG-3-4", "BRG-7-3")
def test_nothing_else_leaves_the_host(
    talkative: BridgeService, host: Cluster, tap: Tap, settings: dict[str, Any]
) -> None:
    made = publications(host.aeron_dir) - tap.before
    remote = {place for place in made if place[0].startswith("aeron:udp")}
    expected = {
        (settings[f"bridge.{name}_channel"].partition("|")[0], stream_id)
        for name, stream_id in STREAMS.items()
    }
    assert remote == expected
    everything = [wire.peek(each) for name in STREAMS for each in tap.packets(name)]
    assert 901 not in {header.schema_id for header in everything}
    assert (900, 4) not in {(header.schema_id, header.template_id) for header in everything}


@pytest.mark.req("BRG-4-1", "BRG-7-2", "BRG-2.2-1")
def test_descriptors_are_local(talkative: BridgeService, host: Cluster, out: tp.Producer) -> None:
    with Ear(host, ["descriptor"]) as ear:
        seq = out.publish(np.zeros(LARGEST, np.uint8))
        told = ear.await_one(FrameDescriptor, stream_id=DEST, seq=seq)
    assert told.epoch == talkative.stats[1].received.epoch

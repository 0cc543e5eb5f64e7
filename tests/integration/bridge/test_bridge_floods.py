"""Hostile senders flood a receiver: all is dropped and counted, memory stays, the next good frame passes."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tensor_pool as tp
from bridges import DEST, free_endpoints, ring_file
from false_sender import EPOCH, FalseSender, Piece, frame_bytes, pieces, slot_bytes
from pool_hosts import Ear, quick_host
from tensor_pool.config import load_config
from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import FrameDescriptor
from tensor_pool.wire.shm import SUPERBLOCK_BYTES

MAX_PAYLOAD = 3000
MOST_GROWTH = 24 << 20
"""Sixteen frames of 65,535 chunks need 8 MiB to note what came of them; the test itself needs some too."""
SEQ_AT = 8 + 12
"""Where the number of a frame lies in a chunk."""
FLOOD = 300
"""Chunks or frames of one kind that have to be counted."""

TENSOR_FIELDS = {
    "blockLength": (0, 2),
    "templateId": (2, 2),
    "schemaId": (4, 2),
    "version": (6, 2),
    "dtype": (8, 2),
    "ndims": (12, 1),
    "dims": (19, 4),
}
"""Where they lie in a tensor header, and how long they are."""

Lie = Callable[[int], list[Piece | bytes]]
"""Makes the packets of a frame that is to be dropped, from its number."""


class Receiver:
    """A bridge that receives one stream, a sender that may lie, and a consumer of what passes."""

    def __init__(self, host: Cluster, pool: tp.Pool, bridge: BridgeService, sender: FalseSender) -> None:
        self.host, self.bridge, self.sender = host, bridge, sender
        sender.announce()
        wait_until(lambda: self.stats.epoch is not None)
        self.consumer = pool.consumer(DEST)
        wait_until(lambda: self.consumer.mapped)

    @property
    def stats(self) -> Any:
        return self.bridge.stats[0].received

    def lost(self, reason: str) -> int:
        """Frames and chunks that were dropped for it."""
        stats = self.stats
        return int(stats.frames_lost.get(reason, 0) + stats.chunks_unused.get(reason, 0))

    def passes_good_frame(self) -> bool:
        """Sends a frame; whether it came as it was sent."""
        seq = self.sender.take_seq()
        self.sender.send(pieces(seq))
        while (frame := self.consumer.poll(timeout=0.5)) is not None:
            with contextlib.suppress(FrameOverwrittenError):  # one of those before: the ring is small
                assert frame.copy().tobytes() == frame_bytes(frame.seq, 350)
                if frame.seq == seq:
                    return True
        return False


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    payload, control = (f"aeron:udp?endpoint={each}" for each in free_endpoints(2))
    settings = {
        "bridge.instance_id": "flooded",
        "bridge.role": "receiver",
        "bridge.payload_channel": payload + "|mtu=8192",
        "bridge.control_channel": control,
        "bridge.forward_metadata": False,
        "bridge.chunk_bytes": 100,
        "bridge.max_payload_bytes": MAX_PAYLOAD,
        "bridge.mappings": [{"source_stream_id": 10_000, "dest_stream_id": DEST}],
    }
    with quick_host() as host, host.connect() as pool:
        config = load_config(overrides={**host.settings, **settings}, environ={}, search=False)
        with BridgeService(config) as bridge, FalseSender(host.aeron_dir, settings) as sender:
            yield Receiver(host, pool, bridge, sender)


def own_memory() -> int:
    """Bytes of this process that are neither files nor shared memory."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def chunk(number: int, **fields: Any) -> Lie:
    """One chunk of a frame that is not as it should be, and nothing else of it."""
    return lambda seq: [pieces(seq)[number].but(**fields)]


def frame(number: int, **fields: Any) -> Lie:
    """A whole frame, with one chunk that is not as it should be."""
    return lambda seq: [each.but(**fields) if each.index == number else each for each in pieces(seq)]


def slot(**fields: Any) -> Lie:
    """A whole frame whose slot says something else."""
    return lambda seq: list(pieces(seq, slot=slot_bytes(seq, 350, **fields)))


def tensor(field: str, value: int) -> Lie:
    """A whole frame whose tensor header says something else."""
    at, size = TENSOR_FIELDS[field]

    def lie(seq: int) -> list[Piece | bytes]:
        data = bytearray(slot_bytes(seq, 350))
        data[64 + at : 64 + at + size] = value.to_bytes(size, "little", signed=value < 0)
        return list(pieces(seq, slot=bytes(data)))

    return lie


def param(reason: str, lie: Lie, name: str, *marks: Any) -> Any:
    return pytest.param(reason, lie, id=name, marks=marks)


def again(seq: int, number: int, **fields: Any) -> list[Piece | bytes]:
    """A frame of which one chunk comes twice, the second time otherwise."""
    sent = pieces(seq)
    return [*sent[: number + 1], sent[number].but(**fields), *sent[number + 1 :]]


RANDOM = random.Random(7)

LIES = [
    # chunks that make no sense by themselves
    param("malformed", chunk(1, index=4), "index-is-count", pytest.mark.req("BRG-5.2-3")),
    param("malformed", chunk(1, index=2**32 - 1), "index-beyond-count"),
    param("malformed", chunk(0, count=0), "no-chunks", pytest.mark.req("BRG-5.2-1")),
    param("malformed", chunk(0, count=65_536), "too-many-chunks"),
    param(
        "malformed",
        chunk(0, offset=1, payload_length=400),
        "first-chunk-not-first",
        pytest.mark.req("BRG-5.2-6"),
    ),
    param("malformed", chunk(0, header=b"", included=0), "header-missing", pytest.mark.req("BRG-5.2-4")),
    param("malformed", chunk(0, header=b""), "header-said-and-missing", pytest.mark.req("BRG-5.2-17")),
    param("malformed", chunk(0, header=bytes(255)), "header-short", pytest.mark.req("BRG-5.2-17")),
    param("malformed", chunk(0, header=bytes(257)), "header-long", pytest.mark.req("BRG-5.2-17")),
    param("malformed", chunk(1, header=bytes(256)), "header-not-said", pytest.mark.req("BRG-5.2-18")),
    param(
        "malformed", chunk(1, header=bytes(256), included=1), "header-elsewhere", pytest.mark.req("BRG-5.2-7")
    ),
    param("malformed", chunk(1, length=99), "length-lies", pytest.mark.req("BRG-5.2-19")),
    param("malformed", chunk(1, bytes_length=101), "prefix-beyond-packet", pytest.mark.req("BRG-5.2-28")),
    param("malformed", chunk(1, bytes_length=2**32 - 1), "prefix-of-4-gib", pytest.mark.req("BRG-5.2-28")),
    param(
        "malformed", chunk(1, header_length=2**31), "header-prefix-of-2-gib", pytest.mark.req("BRG-5.2-28")
    ),
    param("malformed", chunk(1, payload_length=99), "payload-shorter-than-slice"),
    param("malformed", chunk(1, offset=2**32 - 1), "slice-beyond-payload"),
    param("malformed", chunk(1, payload_length=2**30 + 1), "payload-above-1-gib"),
    param("malformed", chunk(1, schema_id=900), "other-schema"),
    param("malformed", chunk(1, template_id=2), "other-template"),
    param("malformed", chunk(1, version=2), "other-version"),
    param("malformed", chunk(1, block_length=42), "other-block"),
    param("malformed", lambda seq: [RANDOM.randbytes(seq % 700 + 1)], "random-bytes"),
    param("malformed", lambda seq: [RANDOM.randbytes(20_000)], "random-bytes-in-fragments"),
    param("malformed", lambda seq: [bytes(pieces(seq)[0])[: 1 + seq % 200]], "cut-off"),
    # chunks of something else
    param("other_stream", chunk(0, stream_id=10_001), "other-stream", pytest.mark.req("BRG-6-1")),
    param("other_stream", chunk(0, stream_id=DEST), "destination-as-stream"),
    param(
        "old_epoch",
        chunk(0, epoch=EPOCH - 1),
        "older-epoch",
        pytest.mark.req("BRG-6-1", "BRG-6-3", "BRG-8-3"),
    ),
    param("not_announced", chunk(0, epoch=EPOCH + 1), "newer-epoch", pytest.mark.req("BRG-6-1", "BRG-6-3")),
    param("header", chunk(0, seq=2**63), "number-of-64-bits"),
    # sizes
    param("chunk_too_long", chunk(1, length=101, payload=bytes(101)), "chunk-too-long"),
    param("payload_too_long", chunk(1, payload_length=MAX_PAYLOAD + 1), "payload-above-max"),
    param(
        "payload_too_long", chunk(1, payload_length=2**30), "payload-of-1-gib", pytest.mark.req("BRG-5.2-11")
    ),
    # chunks that contradict each other
    param("conflict", frame(2, offset=199), "overlap-by-a-byte", pytest.mark.req("BRG-5.2-8", "BRG-5.2-24")),
    param("conflict", frame(2, offset=100), "the-same-bytes-twice", pytest.mark.req("BRG-5.2-24")),
    param(
        "conflict",
        lambda seq: again(seq, 1, payload=bytes(100)),
        "other-bytes",
        pytest.mark.req("BRG-5.2-24", "BRG-5.2-25"),
    ),
    param("conflict", lambda seq: again(seq, 1, offset=101), "other-offset", pytest.mark.req("BRG-5.2-25")),
    param(
        "conflict",
        lambda seq: again(seq, 1, length=99, payload=pieces(seq)[1].payload[:99]),
        "other-length",
        pytest.mark.req("BRG-5.2-25"),
    ),
    param("conflict", lambda seq: again(seq, 0, header=slot_bytes(seq, 351)), "header-twice"),
    param("conflict", frame(2, count=5), "counts-differ", pytest.mark.req("BRG-6-1")),
    param("conflict", frame(2, payload_length=351), "payload-lengths-differ"),
    param(
        "hole",
        frame(3, length=49, payload=bytes(49)),
        "lengths-leave-a-byte-out",
        pytest.mark.req("BRG-5.2-9"),
    ),
    param("hole", frame(1, length=0, payload=b""), "an-empty-chunk", pytest.mark.req("BRG-5.2-9")),
    # headers that lie
    param("header", slot(seq_commit=3), "header-of-another-frame", pytest.mark.req("BRG-6-18", "BRG-6-1")),
    param("header", slot(values_len_bytes=349), "values-shorter-than-payload", pytest.mark.req("BRG-6-5")),
    param("header", slot(payload_offset=64), "payload-offset", pytest.mark.req("BRG-6-9")),
    param("header", slot(pool_id=3), "pool-not-announced", pytest.mark.req("BRG-6-10")),
    param("header", tensor("dtype", 99), "dtype-99", pytest.mark.req("BRG-6-6")),
    param("header", tensor("ndims", 9), "9-dimensions", pytest.mark.req("BRG-6-6")),
    param("header", tensor("dims", -1), "negative-dimension", pytest.mark.req("BRG-6-6")),
    param("header", tensor("blockLength", 183), "tensor-of-other-length", pytest.mark.req("BRG-6-8")),
    param("header", tensor("templateId", 51), "tensor-of-other-template", pytest.mark.req("BRG-6-8")),
    param("header", tensor("schemaId", 901), "tensor-of-other-schema", pytest.mark.req("BRG-6-8")),
    param("header", tensor("version", 2), "tensor-of-other-version", pytest.mark.req("BRG-6-8")),
    param("header", frame(0, header=RANDOM.randbytes(256)), "random-header", pytest.mark.req("BRG-6-7")),
    param(
        "header",
        lambda seq: list(pieces(seq, 1100, slot=slot_bytes(seq, 1100, pool_id=1))),
        "payload-above-its-pool",
        pytest.mark.req("BRG-6-11"),
    ),
    # frames of which something is missing
    param(
        "incomplete",
        lambda seq: [*pieces(seq)[1:], *pieces(seq + 1)],
        "without-chunk-0",
        pytest.mark.req("BRG-5.3-1"),
    ),
    param(
        "incomplete",
        lambda seq: [*pieces(seq)[:-1], *pieces(seq + 1)],
        "without-the-last",
        pytest.mark.req("BRG-5.3-1"),
    ),
    param(
        "crowded",
        lambda seq: [pieces(seq)[1].but(index=65_534, count=65_535, length=1, payload=b"x")],
        "65535-chunks-of-a-byte",
    ),
]


@pytest.mark.parametrize(("reason", "lie"), LIES)
def test_what_is_wrong_is_dropped_and_counted(receiver: Receiver, reason: str, lie: Lie) -> None:
    sender = receiver.sender
    memory, before = own_memory(), receiver.lost(reason)

    def is_counted() -> bool:
        for _ in range(100):
            sender.send(lie(sender.take_seq()))
            sender.take_seq()  # some send two
        return receiver.lost(reason) - before >= FLOOD

    wait_until(is_counted, what=f"counted as {reason}, not {receiver.stats}")
    wait_until(receiver.passes_good_frame, what="a good frame that passes")
    assert own_memory() - memory < MOST_GROWTH


def test_a_hundred_thousand_open_frames_cost_the_oldest_and_no_memory(receiver: Receiver) -> None:
    sender, most = receiver.sender, 0
    memory, before = own_memory(), receiver.lost("crowded")
    template = bytearray(bytes(pieces(0)[1].but(index=65_000, count=65_535, epoch=sender.epoch)))
    for number in range(100_000):
        struct.pack_into("<Q", template, SEQ_AT, sender.take_seq())
        sender.send([bytes(template)])
        if number % 1000 == 0:
            most = max(most, receiver.stats.in_flight)
            assert own_memory() - memory < MOST_GROWTH
    wait_until(lambda: receiver.lost("crowded") - before >= 99_000, what="that most were given up")
    assert 0 < most <= 8, "no more than the ring has slots"
    wait_until(lambda: receiver.stats.in_flight == 0)
    assert receiver.stats.bytes_in_flight == 0
    wait_until(receiver.passes_good_frame, what="a good frame that passes")
    assert own_memory() - memory < MOST_GROWTH


def test_a_number_far_ahead_keeps_the_source_out_only_for_a_while(receiver: Receiver) -> None:
    epoch, late, timed_out = receiver.stats.epoch, receiver.lost("late"), receiver.lost("timed_out")
    receiver.sender.send(pieces(2**62)[:1])
    wait_until(lambda: receiver.lost("timed_out") > timed_out)
    wait_until(receiver.passes_good_frame, what="a good frame that passes")
    assert receiver.lost("late") > late
    assert receiver.stats.epoch > epoch, "numbers never go back in one epoch"


@pytest.mark.req("BRG-6-4", "BRG-5.3-2")
def test_what_is_dropped_is_neither_written_nor_described(receiver: Receiver) -> None:
    sender = receiver.sender
    wait_until(receiver.passes_good_frame)
    ring = ring_file(receiver.host, DEST, receiver.stats.epoch)
    before = ring.read_bytes()
    with Ear(receiver.host, ["descriptor"]) as ear:
        dropped = sender.next_seq, sender.next_seq + 1
        for epoch, reason in ((EPOCH - 1, "old_epoch"), (EPOCH + 1, "not_announced")):
            count = receiver.lost(reason)
            sender.send(pieces(sender.take_seq(), epoch=epoch))
            wait_until(lambda reason=reason, count=count: receiver.lost(reason) == count + 4)
        assert ring.read_bytes()[SUPERBLOCK_BYTES:] == before[SUPERBLOCK_BYTES:]
        for missing in range(4):
            seq = sender.take_seq()
            dropped += (seq,)
            sender.send(each for each in pieces(seq) if each.index != missing)
        wait_until(receiver.passes_good_frame)
        ear.await_one(FrameDescriptor, stream_id=DEST, seq=sender.next_seq - 1)
        described = {each.seq for each in ear.all_of(FrameDescriptor, stream_id=DEST)}
    assert not described & set(dropped)


HUGE = [(1, 2**31)]
"""One pool that no host has the memory for."""


@pytest.mark.parametrize(
    ("pools", "nslots"),
    [
        pytest.param(HUGE, 2**20, id="huge"),
        pytest.param([], 8, id="without-pools"),
        pytest.param([(1, 0)], 8, id="stride-0"),
        pytest.param([(1, 100)], 8, id="odd-stride"),
        pytest.param([(1, 1024)], 0, id="without-slots"),
        pytest.param([(1, 1024)], 3, id="odd-slots"),
        pytest.param([(1, 1024)] * 100, 8, id="one-pool-often"),
    ],
)
def test_announces_that_lie_stop_nothing_for_good(
    receiver: Receiver, pools: list[tuple[int, int]], nslots: int
) -> None:
    sender = receiver.sender
    epoch = receiver.stats.source_epoch or sender.epoch
    sender.announce(epoch + 1, pools, nslots=nslots)
    wait_until(lambda: receiver.stats.error is not None or receiver.stats.source_epoch == epoch + 1)
    sender.announce(epoch + 2)
    wait_until(lambda: receiver.stats.source_epoch == sender.epoch)
    assert receiver.stats.error is None
    wait_until(receiver.passes_good_frame, what="a good frame that passes")

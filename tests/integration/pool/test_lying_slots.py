"""Somebody who may write to a ring claims frames that are not there; consumers go on, however they read."""

from __future__ import annotations

import asyncio
import mmap
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.testing import wait_until

SLOTS, SLOT_BYTES, SUPERBLOCK_BYTES = 8, 256, 64
FAR = 8 * 10**9 + 1
"""A number that belongs into slot 1."""
FRAME = np.arange(4, dtype="uint32")


class Scribbler:
    """Writes commit words into the newest ring of a stream."""

    def __init__(self, directory: Path, stream_id: int) -> None:
        rings = directory.glob(f"**/{stream_id}/*/header.ring")
        newest = max(rings, key=lambda ring: int(ring.parent.name))
        with newest.open("r+b") as file:
            self._ring = mmap.mmap(file.fileno(), 0)

    def claim(self, seq: int, *, slot: int) -> None:
        """Says that a slot holds a committed frame."""
        at = SUPERBLOCK_BYTES + slot * SLOT_BYTES
        self._ring[at : at + 8] = (seq << 1 | 1).to_bytes(8, "little")


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rings")


@pytest.fixture(scope="module")
def pool(base_dir: Path) -> Iterator[tp.Pool]:
    with tp.connect(embedded=True, settings={"shm.shm_base_dir": str(base_dir)}) as pool:
        yield pool


def poll(inp: tp.Consumer) -> tp.Frame | None:
    return inp.poll(timeout=1)


def after_waiting(inp: tp.Consumer) -> tp.Frame | None:
    tp.wait([inp], timeout=1)
    return inp.poll()


def after_select(inp: tp.Consumer) -> tp.Frame | None:
    select.select([inp.fileno()], [], [], 1)
    return inp.poll()


def in_a_loop(inp: tp.Consumer) -> tp.Frame | None:
    async def one() -> tp.Frame:
        async for frame in inp:
            return frame
        raise AssertionError("the loop ended")

    return asyncio.run(asyncio.wait_for(one(), timeout=1))


WAYS = [poll, after_waiting, after_select, in_a_loop, tp.Consumer.latest]


@pytest.mark.parametrize("slot", [1, 5], ids=["its-slot", "another-slot"])
@pytest.mark.parametrize("read", WAYS, ids=lambda way: way.__name__)
def test_a_lie_costs_one_frame_at_most(
    pool: tp.Pool, base_dir: Path, read: Callable[[tp.Consumer], tp.Frame | None], slot: int
) -> None:
    with (
        pool.producer(f"lies {read.__name__} {slot}", max_bytes=64, slots=SLOTS) as out,
        pool.consumer(out.name) as inp,
    ):
        for _ in range(20):
            out.publish(FRAME)
            assert poll(inp) is not None
        Scribbler(base_dir, out.stream_id).claim(FAR, slot=slot)
        lie = inp.latest() if read is tp.Consumer.latest else inp.poll()
        assert (lie is not None) == (slot == 1), "where it belongs it may be true"
        seqs, frames = [], []
        if read is tp.Consumer.latest and slot == 1:
            seqs.append(out.publish(FRAME))
            assert read(inp) is None, "who jumps to the newest frame knows only now what was there before"
            seqs.clear()
        for _ in range(3 * SLOTS):
            seqs.append(out.publish(FRAME))
            frames.append(read(inp))
        assert [frame and frame.seq for frame in frames] == seqs
        assert inp.stats.drops_gap == 0
        assert inp.stats.drops_by_reason == ({"stale": 1} if slot == 1 else {})


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("start", ["latest", "oldest"])
def test_who_joins_at_a_lie_reads_what_is_published(
    pool: tp.Pool, base_dir: Path, start: str, mode: str
) -> None:
    with pool.producer(f"joined {start} {mode}", max_bytes=64, slots=SLOTS) as out:
        for _ in range(20):
            out.publish(FRAME)
        Scribbler(base_dir, out.stream_id).claim(FAR, slot=1)
        with pool.consumer(out.name, start=start, copy_mode=mode == "copy") as inp:
            read = [frame.seq for frame in iter(inp.poll, None)]
            assert read.pop() == FAR
            out.publish(FRAME)
            out.publish(FRAME)
            read += [frame.seq for frame in iter(lambda: inp.poll(timeout=1), None)]
            assert read == ([20, 21] if start == "latest" else [*range(12, 17), 18, 19, 20, 21])


def test_a_lie_does_not_wake_who_waits(pool: tp.Pool, base_dir: Path) -> None:
    with (
        pool.producer("still", max_bytes=64, slots=SLOTS) as out,
        pool.consumer(out.name) as inp,
    ):
        out.publish(FRAME)
        assert poll(inp) is not None
        Scribbler(base_dir, out.stream_id).claim(FAR, slot=5)
        assert tp.wait([inp], timeout=0.05) == []


def test_on_a_stream_of_ones_own_lies_change_nothing(pool: tp.Pool, base_dir: Path) -> None:
    with (
        pool.producer("own", max_bytes=64, slots=SLOTS) as out,
        pool.consumer("own", own_stream=True) as inp,
    ):
        wait_until(lambda: inp.session.streams.private)
        while inp.poll() is not None:
            pass
        Scribbler(base_dir, out.stream_id).claim(FAR, slot=1)
        assert inp.poll() is None
        for _ in range(3 * SLOTS):
            seq = out.publish(FRAME)
            frame = poll(inp)
            assert frame is not None
            assert frame.seq == seq
        started, used = time.monotonic(), time.thread_time()
        assert inp.poll(timeout=0.2) is None
        assert time.thread_time() - used < (time.monotonic() - started) / 2, "it sleeps"


def test_lies_at_the_end_of_an_epoch_are_no_lost_frames(pool: tp.Pool, base_dir: Path) -> None:
    with pool.producer("ended", max_bytes=64, slots=SLOTS) as out, pool.consumer("ended") as inp:
        out.publish(FRAME)
        assert poll(inp) is not None
        for _ in range(3):
            out.publish(FRAME)
        Scribbler(base_dir, out.stream_id).claim(2**63 - SLOTS + 5, slot=5)
        epoch = out.stats.epoch
        out.close()
        with pool.producer("ended", max_bytes=64, slots=SLOTS) as again:
            again.publish(FRAME)
            while (frame := poll(inp)) is not None and frame.info.epoch == epoch:
                pass
            assert frame is not None
            assert inp.stats.drops <= SLOTS, inp.stats

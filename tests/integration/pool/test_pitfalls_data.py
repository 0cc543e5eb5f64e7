"""Mistakes that others made with frames and mappings, each shown to be none of ours; in both layouts."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pool_hosts import Ear, epochs_of, mapped_regions
from tensor_pool.datatypes import Dtype
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import FrameDescriptor, ShmPoolAnnounce


def frame(value: int) -> np.ndarray:
    return np.full(4, value, "uint32")


@pytest.mark.req("WIRE-5-1", "WIRE-10.2.1-1", "WIRE-11-1")
def test_descriptors_of_other_streams_change_nothing(pool: Pool, ear: Ear, name: str) -> None:
    """Pitfall 3: two producers on one descriptor stream, a consumer each."""
    outs = [pool.producer(f"{name}-{i}", dtype="uint32", shape=(4,)) for i in range(2)]
    inps = [pool.consumer(f"{name}-{i}", wait_s=5) for i in range(2)]
    wait_until(lambda: ear.all_of(ShmPoolAnnounce, stream_id=outs[1].stream_id))
    for value in range(50):
        for i, out in enumerate(outs):
            out.publish(frame(100 * i + value), trace_id=1 + 1000 * i + value)
    for i, inp in enumerate(inps):
        frames = [inp.poll(timeout=5) for _ in range(50)]
        assert [int(f.copy()[0]) for f in frames] == [100 * i + value for value in range(50)]
        assert {f.info.stream_id for f in frames} == {outs[i].stream_id}
        wait_until(lambda i=i: len(ear.all_of(FrameDescriptor, stream_id=outs[i].stream_id)) == 50)
        stats = inp.stats
        assert (stats.delivered, stats.drops, stats.remaps, stats.reconnects) == (50, 0, 0, 0)
        assert stats.announces_ignored == {}
        assert [d.seq for d in ear.all_of(FrameDescriptor, stream_id=outs[i].stream_id)] == [*range(50)]


@pytest.mark.req("WIRE-5-1")
def test_trace_ids_are_those_of_ones_own_stream(pool: Pool, name: str) -> None:
    """Pitfall 3: the descriptor log of one stream never answers for another."""
    outs = [pool.producer(f"{name}-{i}", dtype="uint32", shape=(4,)) for i in range(2)]
    inps = [pool.consumer(f"{name}-{i}", wait_s=5) for i in range(2)]
    wait_until(lambda: outs[0].publish(frame(0)) and outs[0].stats.descriptors_sent)  # somebody listens
    while inps[0].poll(timeout=0.1):
        pass
    for i, out in enumerate(outs):
        seq = out.publish(frame(i), trace_id=7 + i)
        found = inps[i].poll(timeout=5)
        assert (found.seq, found.info.trace_id) == (seq, 7 + i)


@pytest.mark.req("WIRE-15.2-5", "DRV-6-7")
def test_announces_of_one_epoch_keep_the_mapping(pool: Pool, host: Cluster, ear: Ear, name: str) -> None:
    """Pitfall 5: ten announces reset nothing, and a view outlives the remap that a new epoch brings."""
    out = pool.producer(name, dtype="uint32", shape=(4,))
    inp = pool.consumer(name, wait_s=5)
    out.publish(frame(1))
    kept = inp.poll(timeout=5)
    view, reader, epoch = kept.array, inp.session.reader, out.epoch
    wait_until(lambda: len(ear.all_of(ShmPoolAnnounce, stream_id=out.stream_id, epoch=epoch)) >= 10)
    assert inp.session.reader is reader
    assert kept.still_valid()
    assert (inp.stats.delivered, inp.stats.validated, inp.stats.remaps) == (1, 1, 0)
    out.close()
    again = pool.producer(name, dtype="uint32", shape=(4,))
    again.publish(frame(2))
    assert inp.poll(timeout=5).info.epoch == again.epoch > epoch
    assert view.tolist() == [1, 1, 1, 1]
    assert not kept.still_valid()
    assert inp.session.reader is not reader
    assert epochs_of(host)[again.stream_id][-1] == again.epoch


def test_a_gap_after_the_very_first_frame_is_counted(pool: Pool, name: str) -> None:
    """Pitfall 12: frame 0 is a frame; when 5 follows, four are missing."""
    out = pool.producer(name, dtype="uint32", shape=(4,))
    inp = pool.consumer(name, wait_s=5)
    out.publish(frame(0))
    with out._session.writer.claim((4,), Dtype.UINT32, seq=5) as claim:
        claim.array[...] = 5
    assert [inp.poll(timeout=5).seq for _ in range(2)] == [0, 5]
    assert (inp.stats.drops_gap, inp.stats.drops_late, inp.stats.drops) == (4, 0, 4)


def test_ten_thousand_views_outlive_remap_and_close(host: Cluster, name: str) -> None:
    """Pitfall 13: a view keeps its mapping; what it shows never becomes other data."""
    with host.connect() as pool:
        out = pool.producer(name, dtype="uint32", shape=(4,), slots=16_384)
        inp = pool.consumer(name, start="oldest", max_outstanding_seq_gap=0, wait_s=5)
        views = []
        for value in range(10_000):
            out.publish(frame(value))
            views.append(inp.poll(timeout=5).array)
        files = set(mapped_regions(os.getpid(), host))
        out.close()
        other = pool.producer(name, dtype="uint32", shape=(4,))
        other.publish(frame(77))
        assert inp.poll(timeout=5).copy()[0] == 77
        inp.close()
    assert [int(view[0]) for view in views] == list(range(10_000))
    left = set(mapped_regions(os.getpid(), host))
    assert left, "views keep their mapping"
    assert {path.removesuffix(" (deleted)") for path in left} <= files
    del views[:]
    assert mapped_regions(os.getpid(), host) == []


def test_progress_goes_by_the_layout_of_its_own_frame(pool: Pool, name: str) -> None:
    """Pitfall 14: frames of two layouts take turns; a stride of the one would be wrong for the other."""
    out = pool.producer(name, max_bytes=1 << 18, slots=8)
    inp = pool.consumer(name, progress=True, wait_s=5)
    wait_until(lambda: out._session._progress.hints, what="the producer knows that somebody wants progress")
    for number in range(8):
        rows, columns = (512, 128) if number % 2 else (128, 256)
        half = rows // 2
        with out.claim((rows, columns), "uint32", progress="rows") as slot:
            slot.array[:half] = number
            slot.progress(rows=half)
            prefix = wait_until(lambda seq=slot.seq: (p := inp.poll_progress(5)) and p.seq == seq and p)
            assert (prefix.array.shape, prefix.usable_bytes) == ((rows, columns), half * columns * 4)
            assert (prefix.array[:half] == number).all()
            slot.array[half:] = number
        taken = inp.poll(timeout=5)
        assert (taken.seq, taken.shape) == (number, (rows, columns))
    assert inp.stats.drops_by_reason.get("progress_stride", 0) == 0
    assert inp.stats.drops == 0


def test_a_consumer_that_was_first_sees_frame_zero(host: Cluster, pool: Pool, name: str) -> None:
    """Pitfalls 23 and 26: found by its announce on whichever stream, and read from the first frame on."""
    inp = pool.consumer(name)
    assert not inp.mapped
    with host.connect() as other, other.producer(name, dtype="uint32", shape=(4,)) as out:
        for value in range(20):
            out.publish(frame(value))
        frames = [inp.poll(timeout=5) for _ in range(20)]
    assert [f.seq for f in frames] == list(range(20))
    assert inp.stats.drops == 0

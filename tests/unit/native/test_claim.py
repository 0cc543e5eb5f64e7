"""Writing in place."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tensor_pool import _native, errors
from tensor_pool.datatypes import Dtype


def test_what_is_written_in_place_is_committed_at_the_end_of_the_block(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    with writer.claim((3, 4), Dtype.UINT16, timestamp_ns=5, meta_version=2) as slot:
        slot.array[...] = np.arange(12).reshape(3, 4)
        # Whatever the block does, flushing a device's writes for instance, comes before the commit.
        assert reader.poll() is None, "not there before it is committed"
        assert not slot.finished
    assert slot.finished
    frame = reader.poll()
    assert (frame.seq, frame.timestamp_ns, frame.meta_version, frame.dtype) == (0, 5, 2, "uint16")
    assert frame.array.tolist() == np.arange(12).reshape(3, 4).tolist()


def test_a_block_that_raises_aborts_and_the_number_is_skipped(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    with pytest.raises(ZeroDivisionError), writer.claim((4,), Dtype.UINT8):
        _ = 1 // 0
    assert writer.publish(b"next") == 1
    frame = reader.poll()
    assert (frame.seq, bytes(frame), reader.gaps) == (1, b"next", 1)


def test_a_closed_writer_keeps_nothing_mapped_that_nobody_uses(make_ring):
    ring = make_ring()
    writer = ring.writer()
    with writer.claim((4,), Dtype.UINT8) as slot:
        kept = slot.array
        kept[...] = 7
    writer.close()
    assert kept.tolist() == [7] * 4, "an array keeps its memory"
    assert f"{ring.directory}/1.pool" in Path("/proc/self/maps").read_text()
    del slot, kept
    assert str(ring.directory) not in Path("/proc/self/maps").read_text()


def test_column_major_and_progress_claims(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    with writer.claim((3, 5), Dtype.FLOAT32, order="F", progress_unit=2) as slot:
        slot.array[...] = 1
        assert slot.array.strides == (4, 12)
    frame = reader.poll()
    assert (frame.order, frame.strides) == ("F", (4, 12))
    with pytest.raises(errors.TensorLayoutError):
        writer.claim((3,), Dtype.FLOAT32, progress_unit=2)


@pytest.mark.req("WIRE-10.2.2-14")
def test_readers_follow_a_frame_in_progress(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    slot = writer.claim((4, 16), Dtype.UINT8, progress_unit=1)
    assert reader.read_prefix(0, 16) is None, "without a header there is nothing to follow"
    slot.write_header()
    slot.array[:2] = 7
    prefix = reader.read_prefix(0, 32)
    assert isinstance(prefix, _native.FramePrefix)
    assert (prefix.seq, prefix.usable_bytes, prefix.nbytes) == (0, 32, 64)
    assert (prefix.dtype, prefix.shape, prefix.strides) == ("uint8", (4, 16), (16, 1))
    assert prefix.state() == "in_progress"
    assert prefix.array[:2].tolist() == [[7] * 16] * 2
    assert not prefix.array[2:].any()
    assert reader.poll() is None
    slot.commit()
    assert prefix.state() == "committed"
    assert reader.poll().seq == 0
    assert reader.read_prefix(8, 32) is None
    assert ring.reader("copy").read_prefix(0, 32) is None
    assert reader.drops == {}, "the frame itself is counted, once"


def test_the_prefix_of_a_frame_that_was_given_up_says_so(make_ring):
    ring = make_ring(nslots=2)
    writer, reader = ring.writer(), ring.reader()
    slot = writer.claim((16,), Dtype.UINT8)
    slot.write_header()
    prefix = reader.read_prefix(0, 8)
    assert not hasattr(prefix, "still_valid"), "nobody may take it for a frame"
    slot.abort()
    assert prefix.state() == "in_progress", "as far as anybody can see"
    for _ in range(2):
        writer.publish(b"next")
    assert prefix.state() == "gone"


def test_the_array_is_read_only_once_the_slot_is_everybodys(make_ring):
    writer = make_ring().writer()
    for finish in ("commit", "abort"):
        slot = writer.claim((4,), Dtype.UINT8)
        array = slot.array
        array[0] = 1
        getattr(slot, finish)()
        assert not array.flags.writeable
        for use in (lambda: memoryview(slot), lambda: slot.array):  # noqa: B023 - called at once
            with pytest.raises(errors.ClaimError, match="already") as caught:
                use()
            assert "next slot" in caught.value.hint


def test_asking_for_the_array_again_and_again_costs_nothing(make_ring):
    slot = make_ring().writer().claim((4,), Dtype.UINT8)
    array = slot.array
    assert slot.array is array
    tracemalloc.start()
    for n in range(20_000):
        slot.array[n % 4] = 1
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 100_000


def test_claims_end_once_and_in_order(make_ring):
    writer = make_ring(nslots=4).writer()
    first, second = writer.claim((4,), Dtype.UINT8), writer.claim((4,), Dtype.UINT8)
    with pytest.raises(errors.ClaimError, match="seq 0 is still open") as caught:
        second.commit()
    assert "order" in caught.value.hint
    with pytest.raises(errors.ClaimError, match="still open"):
        writer.publish(b"x")
    assert (first.commit(), second.commit()) == (0, 1)
    for finish in (second.commit, second.abort):
        with pytest.raises(errors.ClaimError, match="already"):
            finish()
    slots = [writer.claim((4,), Dtype.UINT8) for _ in range(4)]
    with pytest.raises(errors.ClaimError, match=r"all 4 slots are claimed\n  try: commit or abort one first"):
        writer.claim((4,), Dtype.UINT8)
    for slot in slots:
        slot.abort()


def test_a_forgotten_claim_does_not_block_the_next(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    slot = writer.claim((4,), Dtype.UINT8)
    slot.array[0] = 1
    del slot
    gc.collect()
    assert writer.publish(b"next") == 1
    assert reader.poll().seq == 1


def test_sequence_numbers_may_jump_forward_only(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    with writer.claim((1,), Dtype.UINT8, seq=41):
        pass
    assert (reader.poll().seq, reader.gaps) == (41, 41)
    with pytest.raises(errors.ClaimError, match="not above the last one, 41"):
        writer.claim((1,), Dtype.UINT8, seq=41)
    assert writer.next_seq == 42


@pytest.mark.parametrize(
    ("shape", "dtype", "options"),
    [
        ((), 1, {}),
        ((1,) * 9, 1, {}),
        ((-1,), 1, {}),
        ((1 << 40,), 1, {}),
        ((3,), 0, {}),
        ((3,), 12, {}),
        ((3,), 1, {"order": "K"}),
        ((3,), 1, {"progress_unit": 9}),
    ],
)
def test_impossible_claims_are_refused(make_ring, shape, dtype, options):
    writer = make_ring().writer()
    with pytest.raises(errors.TensorLayoutError):
        writer.claim(shape, dtype, **options)
    assert writer.next_seq == 0


def test_too_large_claims_are_refused(make_ring):
    with pytest.raises(errors.FrameTooLargeError):
        make_ring(strides=(64,)).writer().claim((65,), Dtype.UINT8)


def test_an_array_outlives_its_writer(make_ring):
    writer = make_ring().writer()
    slot = writer.claim((4,), Dtype.UINT8)
    array = slot.array
    writer.close()
    array[...] = 9
    assert array.tolist() == [9] * 4
    with pytest.raises(errors.ClosedError):
        slot.commit()

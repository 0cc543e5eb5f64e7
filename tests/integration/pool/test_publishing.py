"""What producers take, and what becomes of the slots that they hand out."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import wait_until


@pytest.fixture
def out(pool: Pool, name: str) -> tp.Producer:
    return pool.producer(name, max_bytes=4096, slots=8)


@pytest.fixture
def inp(pool: Pool, out: tp.Producer) -> tp.Consumer:
    return pool.consumer(out.name, wait_s=5)


def read(inp: tp.Consumer) -> np.ndarray:
    frame = inp.poll(timeout=5.0)
    assert frame is not None
    return frame.copy()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"timestamp_ns": -1}, ValueError, "timestamp_ns=-1: a whole number"),
        ({"timestamp_ns": 2**64}, ValueError, "timestamp_ns=18446744073709551616"),
        ({"timestamp_ns": "now"}, TypeError, "timestamp_ns='now'"),
        ({"timestamp_ns": 1.5}, TypeError, "timestamp_ns=1.5"),
        ({"trace_id": -7}, ValueError, "trace_id=-7: a whole number"),
        ({"dtype": "complex64"}, tp.TensorLayoutError, "can't travel"),
    ],
)
def test_slips_are_told_by_name_and_change_nothing(out, inp, options, error, said):
    with pytest.raises(error, match=said):
        out.publish(np.zeros(4, "uint8"), **options)
    if "dtype" not in options:
        with pytest.raises(error, match=said):
            out.claim((4,), "uint8", **options)
    assert (out.stats.frames, inp.poll()) == (0, None)
    assert out.publish(np.ones(4, "uint8")) == 0


class Dimension:
    """A number that is another one each time it is asked."""

    asked = 2

    def __index__(self) -> int:
        self.asked += 1
        return self.asked


def test_a_slot_is_what_this_claim_asked_for_whatever_the_last_one_did(out, inp):
    """What shape and element type mean is remembered; nothing may be taken for the same that is not."""
    shape, changing, numbers = (2, 6), [2, 6], (np.int64(3), np.int64(4))
    asked = [(shape, "uint16", "C"), (shape, "uint8", "C"), (shape, "uint8", "F"), (shape, "uint16", "C")]
    asked += [((6, 2), "uint16", "C"), (changing, "uint8", "C"), (numbers, "uint8", "C"), (5, "uint8", "C")]
    for shape, dtype, order in [*asked, *asked]:
        expected = np.zeros(shape, dtype).shape
        with out.claim(shape, dtype, order=order) as slot:
            slot.array[...] = 7
        changing[0] += 1
        frame = inp.poll(timeout=5.0)
        assert (frame.array.shape, frame.array.dtype, frame.order) == (expected, np.dtype(dtype), order)


def test_an_equal_shape_is_the_same_and_a_similar_one_is_not(out, inp):
    shapes = [(2, 6), (2,), (2, 6, 1), (2, 7), (7, 2), (np.int64(2), 6), (True, 6)]
    for shape in shapes:
        for again in (shape, tuple(list(shape))):  # noqa: C414 - another object
            with out.claim(again, np.uint8) as slot:
                assert slot.array.shape == shape
            assert read(inp).shape == shape
    for wrong in [(2, -6), (-2, 6), (2, 2**40), (2, 6.0), (2, None)]:
        out.claim((2, 6), np.uint8).abort()
        with pytest.raises((tp.TensorLayoutError, TypeError)):
            out.claim(wrong, np.uint8)


def test_a_shape_that_changes_is_asked_anew(out):
    shape = (Dimension(),)
    lengths = []
    for _ in range(3):
        with out.claim(shape, "uint8") as slot:
            lengths.append(slot.nbytes)
    assert lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize("progress", ["cols", 7, ["rows"]])
def test_an_unknown_unit_of_progress_is_refused(out, progress):
    with pytest.raises(tp.ConfigError, match="progress="):
        out.claim((4,), "uint8", progress=progress)
    with out.claim((4,), "uint8", progress=False):
        pass
    assert out.stats.frames == 1


def test_one_number_is_a_shape(out, inp):
    with out.claim(4, "uint8") as slot:
        slot.array[...] = [1, 2, 3, 4]
    assert read(inp).tolist() == [1, 2, 3, 4]
    with pytest.raises(TypeError):
        out.claim("4", "uint8")


def test_whatever_names_an_element_type_is_taken(out, inp):
    kinds = [np.uint8, "float32", np.dtype("int16"), tp.Dtype.UINT64, np.uint8, bool, "float32"]
    for kind in kinds:
        with out.claim((2, 3), kind) as slot:
            slot.array[...] = 1
    seen = [read(inp).dtype.name for _ in kinds]
    assert seen == ["uint8", "float32", "int16", "uint64", "uint8", "bool", "float32"]


def test_a_slot_without_progress_reports_none(out):
    with pytest.raises(tp.ClaimError, match="reports no progress"), out.claim((4,), "uint8") as slot:
        slot.progress(rows=1)
    assert (out.stats.frames, out.stats.claims_aborted) == (0, 1)


def test_the_array_of_a_slot_is_one_and_ends_with_it(out, inp):
    with out.claim((4,), "uint8") as slot:
        array = slot.array
        assert slot.array is array
        array[...] = 5
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(tp.ClaimError, match="committed or aborted"):
        _ = slot.array
    assert read(inp).tolist() == [5] * 4


def test_a_forgotten_slot_is_given_up_at_once_and_its_array_can_do_no_harm(out, inp):
    array = out.claim((4,), "uint8").array  # nobody keeps the claim
    assert not array.flags.writeable
    assert out.publish(np.full(4, 9, "uint8")) == 1, "its number is skipped"
    assert read(inp).tolist() == [9] * 4
    assert (out.stats.frames, out.stats.claims_aborted) == (1, 1)


def test_arrays_keep_what_they_show_mapped_after_the_end(pool, name):
    out = pool.producer(name, max_bytes=4096, slots=8)
    slot = out.claim((4,), "uint8")
    written = slot.array
    written[...] = 3
    slot.commit()
    frame = pool.consumer(name, wait_s=5).poll(timeout=5.0)
    shown = frame.array
    del slot, frame
    pool.close()
    gc.collect()
    assert (written.tolist(), shown.tolist()) == ([3] * 4, [3] * 4)


def test_frames_name_the_metadata_that_was_there_when_they_were_published(out, inp):
    versions = []
    for value in range(4):
        out.publish(np.zeros(4, "uint8"))
        out.metadata["exposure"] = value
        with out.claim((4,), "uint8"):
            pass
        frames = [inp.poll(timeout=5.0) for _ in range(2)]
        versions += [frame.info.meta_version for frame in frames]
    first = versions[0]
    assert versions == [first, *[first + step for step in (1, 1, 2, 2, 3, 3, 4)]]


def test_a_change_of_metadata_by_another_thread_is_never_missed(out):
    ended = threading.Event()

    def change() -> None:
        for value in range(300):
            out.metadata["exposure"] = value
        ended.set()

    changer = threading.Thread(target=change)
    changer.start()
    while not ended.is_set():
        out.publish(b"x")
    changer.join()
    out.publish(b"x")
    assert _newest_version(out) == out.metadata.meta_version


def _newest_version(out: tp.Producer) -> int:
    writer = out._session.writer
    reader = tp.RingReader(writer.address, base_dirs=out._session.base_dirs)
    frame = reader.read(reader.newest())
    assert frame is not None
    return frame.meta_version


def test_a_flush_that_fails_gives_the_slot_up(pool, name):
    faults = [OSError("the device is gone"), None]

    def flush(_array: np.ndarray) -> None:
        fault = faults.pop(0)
        if fault is not None:
            raise fault

    out = pool.producer(name, max_bytes=4096, slots=8, flush=flush)
    with pytest.raises(OSError, match="device is gone"), out.claim((4,), "uint8") as slot:
        slot.array[...] = 1
    with out.claim((4,), "uint8") as slot:
        slot.array[...] = 2
    assert slot.seq == 1
    assert (out.stats.frames, out.stats.claims_aborted) == (1, 1)


def test_a_slot_whose_lease_ends_says_so_and_is_counted(pool, out, inp):
    slot = out.claim((4,), "uint8")
    _lose_lease(out)
    with pytest.raises(tp.LeaseLostError, match="its lease ended, while it was filled") as caught:
        slot.commit()
    assert "claim the next slot" in caught.value.hint
    assert slot.finished
    with out.claim((4,), "uint8") as again:  # the producer has got another lease by itself
        again.array[...] = 7
    assert wait_until(inp.poll).copy().tolist() == [7] * 4
    assert (out.stats.frames, out.stats.claims_aborted) == (1, 1)


def test_a_slot_whose_producer_is_closed_says_that_this_may_be_why(out):
    with pytest.raises(tp.LeaseLostError, match="the producer was closed"), out.claim((4,), "uint8"):
        out.close()


def test_giving_up_a_slot_works_whatever_became_of_its_ring(out):
    slot = out.claim((4,), "uint8")
    _lose_lease(out)
    slot.abort()
    with pytest.raises(tp.ClaimError, match="committed or aborted already"):
        slot.abort()
    assert out.stats.claims_aborted == 1


def test_what_a_block_raises_comes_through(out):
    with pytest.raises(ZeroDivisionError), out.claim((4,), "uint8"):
        out.close()
        raise ZeroDivisionError


def _lose_lease(out: tp.Producer) -> None:
    session = out._session
    session.context.run(lambda: session.drop_ring("a test"))
    session.context.submit(lambda: session.open_ring(session.attachment.lease, time.monotonic_ns()))


def test_bytes_may_be_published_with_progress(out, inp):
    out.publish(b"12", progress=True)
    assert read(inp).tolist() == [49, 50]


def test_progress_changes_nothing_about_a_frame(out, inp):
    """What a dtype means, the order and what is refused are the same for those who are told more."""
    values = np.arange(6, dtype="float32").reshape(2, 3) + 0.5
    for array, dtype in [(values, "int32"), (np.asfortranarray(values), None), (values[::-1, ::2], None)]:
        for progress in (False, True):
            out.publish(array, dtype=dtype, progress=progress)
        plain, told = inp.poll(timeout=5.0), inp.poll(timeout=5.0)
        assert (told.dtype, told.order, told.shape) == (plain.dtype, plain.order, plain.shape)
        assert told.copy().tobytes() == plain.copy().tobytes()
    for progress in (False, True):
        with pytest.raises(tp.TensorLayoutError, match="dtype uint8 has 1 bytes an element, the array 4"):
            out.publish(values, dtype="uint8", progress=progress)
        with pytest.raises(tp.TensorLayoutError, match="lose its mask"):
            out.publish(np.ma.array([1, 2], mask=[0, 1]), progress=progress)
    assert inp.poll() is None


def test_progress_and_versions_of_metadata_are_counted(pool, out):
    inp = pool.consumer(out.name, progress=True)
    wait_until(lambda: out.stats.consumers)
    assert out.stats.progress_sent == 0
    out.publish(np.zeros(4, "uint8"), progress=True)
    assert out.stats.progress_sent == 2, "STARTED and COMPLETE"
    version = out.stats.meta_version
    out.metadata["gain"] = 4
    assert out.stats.meta_version == version + 1
    inp.close()


def test_who_leaves_is_not_behind():
    """A consumer that said goodbye counts no more, long before it would be missed after four seconds."""
    with tp.connect(embedded=True) as pool, pool.producer("left", max_bytes=64, slots=8) as out:
        with pool.consumer("left", wait_s=5) as inp:
            out.publish(b"1")
            assert inp.poll(timeout=5.0) is not None
            wait_until(lambda: out.stats.consumers)
        wait_until(lambda: out.stats.consumers == 0, timeout_s=2.0)
        assert out.stats.watermark is None


def test_a_blob_has_a_type(out):
    with pytest.raises(tp.ConfigError, match="blob_type=None"):
        out.send_blob(None, b"1")


def test_what_has_no_buffer_is_named(out):
    with pytest.raises(TypeError, match=r"a list has no buffer to copy from; try: numpy\.asarray"):
        out.publish([[1, 2]])
    with pytest.raises(tp.TensorLayoutError, match="dtype=None"):
        out.claim((4,), None)
    for blob in (5, None):
        with pytest.raises(TypeError):
            out.send_blob(1, blob)
    with pytest.raises(tp.ConfigError, match="blob_type='x'"):
        out.send_blob("x", b"a")


def test_a_mask_is_not_lost_silently(out, inp):
    masked = np.ma.masked_array(np.arange(4, dtype="uint32"), mask=[0, 1, 0, 0])
    with pytest.raises(tp.TensorLayoutError, match="would lose its mask") as caught:
        out.publish(masked)
    assert "filled" in caught.value.hint
    out.publish(masked.filled(7))
    assert inp.poll(timeout=5.0).copy().tolist() == [0, 7, 2, 3]
    out.publish(np.arange(4, dtype="uint32").view(np.recarray))  # other subclasses hide nothing
    assert inp.poll(timeout=5.0).copy().tolist() == [0, 1, 2, 3]


def test_metadata_of_a_closed_producer_can_only_be_read(out):
    out.metadata["serial"] = "A-17"
    out.close()
    changes = [
        lambda: out.metadata.update(serial="B-1"),
        lambda: out.metadata.pop("serial"),
        out.metadata.clear,
    ]
    for change in changes:
        with pytest.raises(tp.ClosedError, match="closed"):
            change()
    assert out.metadata["serial"] == "A-17"


def test_two_threads_may_publish(out):
    per_thread = 500

    def publish() -> None:
        for _ in range(per_thread):
            out.publish(b"frame")

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (out.stats.frames, out.stats.bytes) == (3 * per_thread, 3 * per_thread * 5)


def test_too_large_is_counted_for_copies_and_for_slots(out):
    for publish in (lambda: out.publish(bytes(5000)), lambda: out.claim((5000,), "uint8")):
        with pytest.raises(tp.FrameTooLargeError, match="5000 bytes"):
            publish()
    assert (out.stats.too_large, out.stats.frames) == (2, 0)


def test_what_nobody_asked_about_is_judged_with_the_next_frame(out, inp):
    for value in range(3):
        out.publish(np.full(4, value, "uint8"))
    first = inp.poll(timeout=5.0)
    assert (inp.stats.delivered, inp.stats.validated) == (1, 0)
    second = inp.poll(timeout=5.0)
    assert (inp.stats.delivered, inp.stats.validated) == (2, 1)
    assert first.still_valid()
    assert second.still_valid()
    assert inp.stats.validated == 2, "each frame counts once"
    del first, second
    inp.poll(timeout=5.0)
    inp.close()
    wait_until(lambda: inp.stats.validated == 3, what="the last frame is judged by closing")


def test_a_lost_frame_counts_once_however_often_it_is_used(out, inp):
    out.publish(np.arange(10, dtype="uint8"))
    frame = inp.poll(timeout=5.0)
    for _ in range(20):
        out.publish(np.full(10, 99, "uint8"))
    uses = [
        frame.copy,
        lambda: frame.array,
        lambda: np.array(frame, copy=True),
        lambda: np.asarray(frame, dtype="float32"),
        lambda: np.from_dlpack(frame),
    ]
    for use in uses:
        with pytest.raises(tp.FrameOverwrittenError):
            use()
    with pytest.raises(tp.FrameOverwrittenError), frame:
        pass
    assert not frame.copy_into(bytearray(80))
    stats = inp.stats
    assert (stats.delivered, stats.validated, stats.overwritten) == (1, 0, 1)
    assert stats.drops_by_reason["changed_while_reading"] == 1


def test_what_was_found_whole_once_stays_validated(out, inp):
    out.publish(np.arange(10, dtype="uint8"))
    frame = inp.poll(timeout=5.0)
    assert frame.still_valid()
    for _ in range(20):
        out.publish(np.full(10, 99, "uint8"))
    with pytest.raises(tp.FrameOverwrittenError):
        frame.copy()
    stats = inp.stats
    assert (stats.delivered, stats.validated, stats.overwritten) == (1, 1, 0)


@pytest.mark.parametrize("timeout", [float("nan"), "a"])
def test_a_time_out_is_a_number(inp, timeout):
    for wait in (inp.poll, inp.poll_progress, inp.wait_for_stream):
        with pytest.raises((tp.ConfigError, TypeError)):
            wait(timeout)
    with pytest.raises(tp.ConfigError, match="callback=5"):
        inp.on_frame(5)

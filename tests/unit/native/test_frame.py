"""Frames: borrowed views, copies, lifetimes, buffers and DLPack."""

from __future__ import annotations

import gc
import hashlib

import numpy as np
import pytest

from tensor_pool import errors
from tensor_pool.datatypes import Dtype


@pytest.fixture
def pair(make_ring):
    ring = make_ring(nslots=2)
    return ring.writer(), ring.reader()


@pytest.mark.req("WIRE-15.14-3", "WIRE-8.2-30")
def test_frames_are_read_only(pair):
    writer, reader = pair
    writer.publish(np.arange(4, dtype="u1"))
    frame = reader.poll()
    assert frame.borrowed
    assert not frame.array.flags.writeable
    assert memoryview(frame).readonly
    with pytest.raises(ValueError, match="read-only"):
        frame.array[0] = 1
    frame.copy()[0] = 1


@pytest.mark.req("WIRE-8.3-21", "WIRE-15.3-2")
def test_a_frame_overwritten_in_use_is_counted_and_raised(pair):
    writer, reader = pair
    writer.publish(np.zeros(4, "u1"))
    with pytest.raises(errors.FrameOverwrittenError, match="frame 0") as caught, reader.poll() as array:
        assert array.tolist() == [0] * 4
        writer.publish(np.ones(4, "u1"))
        writer.publish(np.ones(4, "u1"))
    assert "slots" in caught.value.hint
    assert reader.drops == {"changed_while_reading": 1}
    assert reader.late == 1


def test_what_the_block_raised_is_not_hidden(pair):
    writer, reader = pair
    writer.publish(b"x")
    with pytest.raises(ZeroDivisionError), reader.poll():
        writer.publish(b"y")
        writer.publish(b"z")
        _ = 1 // 0
    assert reader.late == 1


def test_copies_are_checked(pair):
    writer, reader = pair
    writer.publish(np.zeros(4, "u1"))
    frame = reader.poll()
    out = np.empty(4, "u1")
    assert frame.still_valid()
    assert frame.copy_into(out)
    for _ in range(2):
        writer.publish(np.ones(4, "u1"))
    assert not frame.still_valid()
    assert not frame.copy_into(out)
    with pytest.raises(errors.FrameOverwrittenError):
        frame.copy()
    assert reader.late == 0, "it was whole when it was used first"


def test_a_frame_is_lost_once_however_often_it_is_asked_for(pair):
    writer, reader = pair
    writer.publish(np.zeros(4, "u1"))
    frame = reader.poll()
    for _ in range(2):
        writer.publish(np.ones(4, "u1"))
    assert not frame.copy_into(np.empty(4, "u1"))
    with pytest.raises(errors.FrameOverwrittenError):
        frame.copy()
    assert reader.late == 1


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_copies_into_any_contiguous_buffer(make_ring, size):
    ring = make_ring(strides=(1 << 20,))
    ring.writer().publish(np.full(size, 7, "u1"))
    for mode in ("map", "copy"):
        frame = ring.reader(mode).poll()
        for out in (np.empty(size, "u1"), bytearray(size + 5), np.empty((2, size // 2), "u1", order="F")):
            assert frame.copy_into(out)
            assert bytes(out)[:size] == bytes([7]) * size
    for out in (np.empty(size - 1, "u1"), bytes(size), np.empty(2 * size, "u1")[::2]):
        with pytest.raises(errors.TensorLayoutError, match="target"):
            frame.copy_into(out)


@pytest.mark.req("WIRE-8.2-24", "WIRE-8.2-25")
def test_padded_tensors_keep_their_strides(make_ring):
    ring = make_ring()
    writer = ring.writer()
    padded = np.zeros((4, 8), "f4")
    padded[:, :5] = np.arange(20).reshape(4, 5)
    writer.publish(padded)
    # Turn the header into that of a 4 x 5 tensor with rows of 32 bytes, as another producer would write it.
    path = ring.directory / "header.ring"
    raw = bytearray(path.read_bytes())
    raw[64 + 72 + 11 + 4 : 64 + 72 + 11 + 8] = (5).to_bytes(4, "little")
    with path.open("r+b") as file:
        file.write(raw)
    for mode in ("map", "copy"):
        frame = ring.reader(mode).poll()
        assert (frame.shape, frame.strides, frame.nbytes) == ((4, 5), (32, 4), 128)
        for array in (frame.array, frame.copy(), np.from_dlpack(frame)):
            assert array.tolist() == np.arange(20).reshape(4, 5).tolist()
        assert frame.array[2, 3] == 13


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("elements", [20, 1, 0])
def test_padding_behind_the_tensor_is_left_out(make_ring, mode, elements):
    ring = make_ring(strides=(1 << 17,))
    values = np.arange(40_000, dtype="u1")
    ring.writer().publish(values)
    # Fewer elements in as many bytes, as a producer with fixed buffers may write it (decision M4).
    with (ring.directory / "header.ring").open("r+b") as file:
        file.seek(64 + 72 + 11)
        file.write(elements.to_bytes(4, "little"))
    frame = ring.reader(mode).poll()
    assert (frame.shape, frame.nbytes) == ((elements,), 40_000)
    for array in (frame.array, frame.copy(), np.from_dlpack(frame), np.frombuffer(frame, "u1")):
        np.testing.assert_array_equal(array, values[:elements])
    for room in (elements, elements + 5, 50_000):
        out = np.full(room, 77, "u1")
        assert frame.copy_into(out)
        np.testing.assert_array_equal(out[:40_000], values[:room])
        assert set(out[40_000:]) <= {77}
    if elements:
        with pytest.raises(errors.TensorLayoutError, match=f"need {elements}"):
            frame.copy_into(bytearray(elements - 1))


def test_views_outlive_frame_reader_and_files(make_ring):
    ring = make_ring(nslots=64)
    writer, reader = ring.writer(), ring.reader()
    views = []
    for n in range(64):
        writer.publish(np.full(16, n, "u1"))
        frame = reader.poll()
        views += [frame.array, np.from_dlpack(frame), np.asarray(memoryview(frame))]
    reader.close()
    writer.close()
    for path in ring.directory.iterdir():
        path.unlink()
    del reader, writer, frame
    gc.collect()
    assert [int(view[0]) for view in views] == [n for n in range(64) for _ in range(3)]


def test_ten_thousand_views_over_a_close(make_ring):
    ring = make_ring(nslots=2)
    writer, reader = ring.writer(), ring.reader()
    writer.publish(np.full(16, 3, "u1"))
    frame = reader.poll()
    views = [frame.array for _ in range(10_000)]
    reader.close()
    del frame
    gc.collect()
    assert all(view[5] == 3 for view in views)


def test_dlpack_exports_are_read_only_and_versioned(pair):
    writer, reader = pair
    for dtype in ("u1", "i2", "f8", "?"):
        writer.publish(np.ones((2, 3), dtype))
        frame = reader.poll()
        assert frame.__dlpack_device__() == (1, 0)
        array = np.from_dlpack(frame)
        assert (array.dtype, array.shape, array.flags.writeable) == (np.dtype(dtype), (2, 3), False)
    with pytest.raises(BufferError, match="read-only"):
        frame.__dlpack__()
    with pytest.raises(BufferError, match="read-only"):
        frame.__dlpack__(max_version=(0, 8))
    with pytest.raises(BufferError, match="host memory"):
        frame.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy"):
        frame.__dlpack__(max_version=(1, 0), copy=True)


def test_an_unconsumed_capsule_frees_what_it_holds(pair):
    writer, reader = pair
    writer.publish(b"x")
    before = len(gc.get_objects())
    for _ in range(1000):
        reader.read(0).__dlpack__(max_version=(1, 0))
    gc.collect()
    assert len(gc.get_objects()) <= before + 50


def test_simple_buffer_consumers_get_bytes_or_a_clear_no(pair):
    writer, reader = pair
    writer.publish(np.arange(6, dtype="u1").reshape(2, 3))
    assert bytes(reader.poll()) == bytes(range(6))
    writer.publish(np.asfortranarray(np.arange(6, dtype="u1").reshape(2, 3)))
    frame = reader.poll()
    assert memoryview(frame).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(BufferError, match="order"):
        hashlib.sha256(frame)


def test_a_snapshot_never_changes(make_ring):
    ring = make_ring(nslots=2)
    writer, reader = ring.writer(), ring.reader("copy")
    writer.publish(np.zeros(4, "u1"))
    frame = reader.poll()
    assert not frame.borrowed
    for _ in range(4):
        writer.publish(np.ones(4, "u1"))
    assert frame.still_valid()
    with frame as array:
        assert array.tolist() == [0] * 4
    assert reader.late == 0


def test_frames_say_what_they_are(pair):
    writer, reader = pair
    with writer.claim((2, 3), Dtype.INT16):
        pass
    assert repr(reader.poll()) == "<Frame 0 of stream 10000: int16 [2, 3]>"

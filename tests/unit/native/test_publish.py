"""Publishing by copy: every layout that NumPy can make arrives with the same values."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tensor_pool import _native, errors
from tensor_pool.datatypes import Dtype, from_numpy, to_numpy

NUMERIC = [d for d in Dtype if d not in (Dtype.UNKNOWN, Dtype.BYTES, Dtype.BIT)]


@pytest.mark.req("WIRE-10.2.1-3")
@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda d: d.name)
@pytest.mark.parametrize("mode", ["map", "copy"])
def test_every_dtype_arrives(make_ring, dtype, mode):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader(mode)
    array = np.arange(24).reshape(2, 3, 4).astype(to_numpy(dtype))
    assert writer.publish(array, timestamp_ns=77, meta_version=3) == 0
    frame = reader.poll()
    assert (frame.stream_id, frame.epoch, frame.seq) == (10_000, 5, 0)
    assert (frame.timestamp_ns, frame.meta_version) == (77, 3)
    assert (frame.dtype, frame.wire_dtype) == (array.dtype.name, dtype)
    assert (frame.shape, frame.strides, frame.nbytes) == (array.shape, array.strides, array.nbytes)
    np.testing.assert_array_equal(frame.array, array)
    np.testing.assert_array_equal(frame.copy(), array)


@pytest.mark.parametrize("dtype", [Dtype.BYTES, Dtype.BIT])
def test_bytes_and_bits_travel_as_bytes_under_their_own_number(make_ring, dtype):
    ring = make_ring()
    ring.writer().publish(np.array([0, 1, 1], "uint8"), dtype=dtype)
    frame = ring.reader().poll()
    assert (frame.wire_dtype, frame.dtype, frame.array.tolist()) == (dtype, "uint8", [0, 1, 1])


def test_bytes_objects_and_memoryviews_are_arrays_too(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    for source in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
        writer.publish(source)
        assert bytes(reader.poll()) == b"abc"


# NumPy's own ways to make odd strides: slices, reversed axes, transposes, broadcasts.
def test_buffers_without_strides_are_contiguous(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    for source in ((ctypes.c_int16 * 5)(1, 2, 3), ((ctypes.c_double * 3) * 2)(), (ctypes.c_ubyte * 0)()):
        expected = np.asarray(source)
        writer.publish(source)
        frame = reader.poll()
        assert (frame.shape, frame.dtype) == (expected.shape, expected.dtype.name)
        np.testing.assert_array_equal(frame.array, expected)
        assert frame.copy_into(type(source)())
    out = (ctypes.c_uint8 * 3)()
    writer.publish(b"abc")
    assert reader.poll().copy_into(out)
    assert bytes(out) == b"abc"
    assert _native.crc32c((ctypes.c_char * 9)(*b"123456789")) == 0xE3069283


@st.composite
def odd_arrays(draw: st.DrawFn) -> np.ndarray:
    shape = draw(npst.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=4))
    array = np.arange(
        int(np.prod(shape)) or 0, dtype=draw(st.sampled_from(["u1", "i2", "f4", "f8"]))
    ).reshape(shape)
    steps = tuple(slice(None, None, draw(st.sampled_from([1, 2, -1, -2]))) for _ in shape)
    array = array[steps].transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    return array


@given(odd_arrays())
@settings(deadline=None, max_examples=200)
def test_whatever_the_strides_the_values_arrive(shared_ring, array):
    writer, reader = shared_ring
    writer.publish(array)
    frame = reader.poll()
    assert frame.shape == array.shape
    np.testing.assert_array_equal(frame.array, array)
    np.testing.assert_array_equal(frame.copy(), array)


@pytest.fixture(scope="module")
def shared_ring(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ring")
    address = _native.create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 1 << 16)])
    return (
        _native.RingWriter(address, base_dirs=[directory]),
        _native.RingReader(address, base_dirs=[directory]),
    )


def test_elements_that_are_not_aligned_arrive_too(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    raw = np.arange(200, dtype="u1")
    for dtype in ("<u2", "<f4", "<i8"):
        odd = np.ndarray((3, 3), dtype, buffer=raw, offset=1, strides=(48, 16))
        assert not odd.flags.c_contiguous
        writer.publish(odd)
        np.testing.assert_array_equal(reader.poll().array, odd)


def test_a_too_large_strided_array_is_too_large_before_it_is_packed(make_ring):
    huge = np.broadcast_to(np.zeros(1, "f8"), (1 << 20, 1 << 10))
    with pytest.raises(errors.FrameTooLargeError):
        make_ring().writer().publish(huge)


def test_contiguous_arrays_keep_their_order(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    array = np.arange(12, dtype="u2").reshape(3, 4)
    for source, order in (
        (array, "C"),
        (np.asfortranarray(array), "F"),
        (array.T, "F"),
        (array[:, ::2], "C"),
    ):
        writer.publish(source)
        frame = reader.poll()
        assert frame.order == order
        assert frame.copy().flags.c_contiguous == (order == "C")


@pytest.mark.req("WIRE-8.2-12")
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (np.float32(3), "0 dimensions"),
        (np.zeros(()), "0 dimensions"),
        (np.zeros((1,) * 9), "9 dimensions"),
        (ctypes.c_int(3), "0 dimensions"),
        (np.zeros(3, "datetime64[s]"), "can't travel"),
        (np.zeros(3, "complex64"), "can't travel"),
        (np.zeros(3, "float16"), "can't travel"),
        (np.zeros(3, ">f4"), "can't travel"),
        (np.zeros(3, "S4"), "can't travel"),
        (np.zeros(3, [("a", "u1"), ("b", "u2")]), "can't travel"),
    ],
)
def test_what_the_wire_can_not_carry_is_refused(make_ring, bad, text):
    writer = make_ring().writer()
    with pytest.raises(errors.TensorLayoutError, match=text):
        writer.publish(bad)
    assert writer.next_seq == 0
    with pytest.raises(TypeError):
        writer.publish("text")


def test_another_dtype_keeps_the_size_of_the_elements(make_ring):
    writer = make_ring().writer()
    with pytest.raises(errors.TensorLayoutError, match=r"dtype uint16 has 2 bytes .* the array 1") as caught:
        writer.publish(np.zeros(4, "u1"), dtype=Dtype.UINT16)
    assert "size" in caught.value.hint
    writer.publish(np.zeros(4, "c8").view("S8"), dtype=Dtype.UINT64)


@pytest.mark.req("WIRE-9-4")
def test_a_frame_larger_than_every_pool_is_dropped_and_raised(make_ring):
    ring = make_ring(strides=(64, 256))
    writer, reader = ring.writer(), ring.reader()
    assert writer.max_payload_bytes == 256
    with pytest.raises(errors.FrameTooLargeError, match="257 bytes") as caught:
        writer.publish(np.zeros(257, "u1"))
    assert "max_bytes=" in caught.value.hint
    assert isinstance(caught.value, ValueError)
    assert writer.next_seq == 0
    assert reader.newest() is None


@pytest.mark.req("WIRE-10.2.1-5", "WIRE-15.7-1")
def test_the_time_stamp_is_monotonic_now_unless_given(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    before = time.monotonic_ns()
    writer.publish(b"x")
    assert before <= reader.poll().timestamp_ns <= time.monotonic_ns()


def test_empty_tensors_arrive(make_ring):
    ring = make_ring()
    writer, reader = ring.writer(), ring.reader()
    for shape in ((0,), (3, 0), (0, 3, 2)):
        writer.publish(np.zeros(shape, "f4"))
        frame = reader.poll()
        assert (frame.shape, frame.nbytes, frame.array.size, frame.copy().size) == (shape, 0, 0, 0)


def test_threads_may_share_a_writer(make_ring):
    ring = make_ring(nslots=4096, strides=(64,))
    writer, reader = ring.writer(), ring.reader()

    def publish(value: int) -> None:
        for _ in range(500):
            writer.publish(np.full(8, value, "u8"))

    threads = [threading.Thread(target=publish, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = []
    while (frame := reader.poll()) is not None:
        values = set(frame.array.tolist())
        assert len(values) == 1, "frames of two threads must not mix"
        taken.append(values.pop())
    assert len(taken) == 2000
    assert all(taken.count(value) == 500 for value in range(4))


def test_dtypes_of_numpy_and_of_the_wire_agree():
    for dtype in NUMERIC:
        assert from_numpy(to_numpy(dtype)) == dtype
    assert to_numpy(Dtype.BIT) == to_numpy(Dtype.BYTES) == np.dtype("uint8")
    for bad in ("complex64", "float16", ">i4", "datetime64[ns]", "U3", object()):
        with pytest.raises(errors.TensorLayoutError):
            from_numpy(bad)
    with pytest.raises(errors.TensorLayoutError):
        to_numpy(Dtype.UNKNOWN)

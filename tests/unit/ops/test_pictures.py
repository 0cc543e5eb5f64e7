"""Frames as PNG, PGM and npy; read back by code that knows nothing of how they were written."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest

from tensor_pool.errors import TensorLayoutError
from tensor_pool.ops.pictures import Scale, encode, npy, pgm, png, to_pixels

RANDOM = np.random.default_rng(7)


def read_png(data: bytes) -> np.ndarray:
    """A reader for files without filters and interlacing; checks every checksum."""
    assert data[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (crc,) = struct.unpack_from(">I", data, at + 8 + length)
        assert crc == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [0, 0, 0]
    channels = {0: 1, 2: 3, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any(), "no filter"
    kind = np.dtype(np.uint8) if depth == 8 else np.dtype(">u2")
    pixels = rows[:, 1:].copy().view(kind).reshape(height, width, channels)
    return pixels[:, :, 0] if channels == 1 else pixels


class TestPng:
    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [
            ((5, 7), "uint8"),
            ((5, 7), "uint16"),
            ((5, 7, 3), "uint8"),
            ((5, 7, 4), "uint8"),
            ((1, 1), "uint8"),
        ],
    )
    def test_what_a_picture_can_hold_is_exact(self, shape: tuple[int, ...], dtype: str) -> None:
        frame = RANDOM.integers(0, np.iinfo(dtype).max, shape, dtype)
        np.testing.assert_array_equal(read_png(encode(frame, "png")), frame)

    def test_column_major_and_strided_frames(self) -> None:
        frame = RANDOM.integers(0, 60_000, (8, 6), "uint16")
        for view in (np.asfortranarray(frame), frame[::2, ::3], frame[::-1]):
            np.testing.assert_array_equal(read_png(encode(view, "png")), view)

    def test_big_endian_values(self) -> None:
        frame = np.array([[1, 258]], ">u2")
        assert read_png(png(frame)).tolist() == [[1, 258]]

    def test_a_signal_is_a_row(self) -> None:
        assert read_png(encode(np.arange(5, dtype="uint8"), "png")).tolist() == [[0, 1, 2, 3, 4]]

    def test_one_channel_is_grey(self) -> None:
        assert read_png(encode(np.full((2, 3, 1), 9, "uint8"), "png")).shape == (2, 3)


class TestScaling:
    def test_smallest_to_largest(self) -> None:
        pixels = to_pixels(np.array([[-1.0, 0.0, 1.0]], "float32"))
        assert (pixels.dtype, pixels.tolist()) == (np.uint16, [[0, 32768, 65535]])

    @pytest.mark.parametrize("dtype", ["int16", "int32", "uint32", "int64", "uint64", "float64"])
    def test_every_wide_type_becomes_16_bits(self, dtype: str) -> None:
        assert to_pixels(np.array([[0, 50, 100]], dtype)).tolist() == [[0, 32768, 65535]]

    def test_narrow_ones_become_8(self) -> None:
        assert to_pixels(np.array([[-128, 127]], "int8")).tolist() == [[0, 255]]
        pixels = to_pixels(np.array([[True, False]]))
        assert (pixels.dtype, pixels.tolist()) == (np.uint8, [[255, 0]])

    def test_a_range_scales_and_cuts(self) -> None:
        frame = np.array([[0, 100, 150, 200, 255]], "uint8")
        assert to_pixels(frame, Scale(low=100, high=200)).tolist() == [[0, 0, 128, 255, 255]]

    def test_half_a_range(self) -> None:
        assert to_pixels(np.array([[0.0, 1.0, 2.0]]), Scale(high=1.0)).tolist() == [[0, 65535, 65535]]

    def test_percentiles_ignore_outliers(self) -> None:
        frame = np.concatenate([np.linspace(0, 1, 998), [-1e9, 1e9]])
        low, high = Scale(percentile=1).limits(frame)
        assert -0.1 < low < 0.1
        assert 0.9 < high < 1.1

    def test_values_that_are_no_numbers(self) -> None:
        frame = np.array([[np.nan, -np.inf, 0.0, 2.0, np.inf]])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert to_pixels(frame).tolist() == [[0, 0, 0, 65535, 65535]]
            assert to_pixels(np.full((1, 2), np.nan)).tolist() == [[0, 0]]
            extreme = np.finfo(np.float64).max
            assert to_pixels(np.array([[-extreme, extreme]])).shape == (1, 2)

    def test_all_the_same(self) -> None:
        assert to_pixels(np.full((2, 2), 7.0)).tolist() == [[0, 0], [0, 0]]


class TestRefused:
    @pytest.mark.parametrize(
        "frame",
        [
            np.zeros((2, 3, 4, 5), "uint8"),
            np.zeros((2, 3, 2), "uint8"),
            np.zeros((0, 3), "uint8"),
            np.zeros((), "uint8"),
            np.zeros((2, 2), "complex64"),
        ],
        ids=["4 dimensions", "2 channels", "empty", "scalar", "complex"],
    )
    def test_no_picture(self, frame: np.ndarray) -> None:
        with pytest.raises(TensorLayoutError, match="is no picture") as refused:
            encode(frame, "png")
        assert ".npy" in refused.value.hint

    def test_colours_of_other_types(self) -> None:
        with pytest.raises(TensorLayoutError, match="uint8 as they are, not of float32"):
            encode(np.zeros((2, 2, 3), "float32"), "png")

    def test_colours_in_pgm(self) -> None:
        with pytest.raises(TensorLayoutError, match="grey"):
            encode(np.zeros((2, 2, 3), "uint8"), "pgm")


def test_pgm() -> None:
    head, body = pgm(np.array([[1, 2, 3]], "uint16")).split(b"65535\n")
    assert head == b"P5\n3 1\n"
    assert np.frombuffer(body, ">u2").tolist() == [1, 2, 3]


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_exact(order: str) -> None:
    frame = np.array(RANDOM.random((3, 4, 5, 2)), order=order)
    read = np.load(io.BytesIO(npy(frame)), allow_pickle=False)
    np.testing.assert_array_equal(read, frame)
    assert read.flags.f_contiguous == frame.flags.f_contiguous

"""The one line that says what a stream carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.errors import TensorLayoutError
from tensor_pool.pool.summary import Summary, format_summary, parse_summary

dtypes = st.sampled_from([dtype for dtype in Dtype if dtype is not Dtype.UNKNOWN])
shapes = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8).map(tuple)
orders = st.sampled_from([MajorOrder.ROW, MajorOrder.COLUMN])


@given(dtypes, shapes, orders)
def test_what_is_written_is_read(dtype: Dtype, shape: tuple[int, ...], order: MajorOrder) -> None:
    text = format_summary(dtype, shape, order)

    assert parse_summary(text) == Summary(dtype, shape, order)
    assert text.isascii()
    assert str(parse_summary(text)) == text


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    summary = parse_summary(text)

    assert summary is None or str(summary) == text


@pytest.mark.parametrize(
    ("text", "shape"),
    [("uint16 480x640 row", (480, 640)), ("float32 0 row", (0,)), ("bit 8x1x2x3x4x5x6x7 column", None)],
)
def test_examples(text: str, shape: tuple[int, ...] | None) -> None:
    summary = parse_summary(text)

    assert summary is not None
    assert shape is None or summary.shape == shape


@pytest.mark.parametrize(
    "text",
    [
        "",
        "uint16",
        "uint16 480x640",
        "uint16  480x640 row",
        " uint16 480x640 row",
        "uint16 480x640 row ",
        "uint16 480x640 row\n",
        "UINT16 480x640 row",
        "uint16 480X640 row",
        "uint16 480x-640 row",
        "uint16 0480x640 row",
        "uint16 x640 row",
        "uint16 1x2x3x4x5x6x7x8x9 row",
        "uint16 2147483648 row",
        "uint16 ١٢ row",
        "unknown 3 row",
        "complex64 3 row",
        "uint16 3 unknown",
        "uint16 " + "1" * 10_000 + " row",
    ],
)
def test_foreign_text_says_nothing(text: str) -> None:
    assert parse_summary(text) is None


@pytest.mark.parametrize(
    ("dtype", "shape", "order"),
    [
        (Dtype.UNKNOWN, (1,), MajorOrder.ROW),
        (Dtype.UINT8, (1,), MajorOrder.UNKNOWN),
        (Dtype.UINT8, (), MajorOrder.ROW),
        (Dtype.UINT8, (1,) * 9, MajorOrder.ROW),
        (Dtype.UINT8, (-1,), MajorOrder.ROW),
        (Dtype.UINT8, (2**31,), MajorOrder.ROW),
        ("complex64", (1,), MajorOrder.ROW),
    ],
)
def test_what_no_frame_can_be(dtype: Dtype, shape: tuple[int, ...], order: MajorOrder) -> None:
    with pytest.raises(TensorLayoutError):
        format_summary(dtype, shape, order)

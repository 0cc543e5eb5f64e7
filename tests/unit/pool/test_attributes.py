"""Values of metadata: what goes in comes out, and what is broken stays bytes."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.errors import ConfigError, MalformedMessageError, MetadataError
from tensor_pool.pool.metadata import read_attribute, to_attribute
from tensor_pool.wire.messages import MetaAttribute

texts = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | st.integers() | finite | texts
nested = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


@given(nested | st.binary())
def test_what_is_written_is_read(value: Any) -> None:
    assert read_attribute(to_attribute("key", value)) == value


@pytest.mark.parametrize(
    ("value", "media_type", "data"),
    [
        ("Kamera", "text/plain", b"Kamera"),
        ("µm", "text/plain", "µm".encode()),
        (12, "application/json", b"12"),
        (True, "application/json", b"true"),
        (1.5, "application/json", b"1.5"),
        (None, "application/json", b"null"),
        ([1, "a"], "application/json", b'[1,"a"]'),
        ((1, 2), "application/json", b"[1,2]"),
        ({"a": {"b": [1]}}, "application/json", b'{"a":{"b":[1]}}'),
        (b"\0\xff", "application/octet-stream", b"\0\xff"),
        (bytearray(b"ab"), "application/octet-stream", b"ab"),
        (np.float32(0.5), "application/json", b"0.5"),
        (np.int64(7), "application/json", b"7"),
        (np.bool_(False), "application/json", b"false"),
        (np.str_("a"), "text/plain", b"a"),
        (np.array(3), "application/json", b"3"),
    ],
)
def test_formats(value: Any, media_type: str, data: bytes) -> None:
    assert to_attribute("key", value) == MetaAttribute("key", media_type, data)


def test_what_discovery_reads_has_the_form_it_expects() -> None:
    assert to_attribute("data_source_id", 42) == MetaAttribute("data_source_id", "text/plain", b"42")
    assert to_attribute("tags", ["a", "b"]) == MetaAttribute("tags", "application/json", b'["a","b"]')
    assert to_attribute("tags", "a,b") == MetaAttribute("tags", "text/plain", b"a,b")


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8", "?", "<c16"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (0,), (4, 0, 2), (1, 1, 1)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(dtype: str, shape: tuple[int, ...], order: Any) -> None:
    array = np.arange(math.prod(shape)).reshape(shape, order=order).astype(dtype)
    back = read_attribute(to_attribute("flat", array))

    np.testing.assert_array_equal(back, array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert not back.flags.writeable, "it is a view of the message"


def test_anybody_can_read_our_arrays() -> None:
    attribute = to_attribute("flat", np.eye(3))

    assert attribute.format == "application/x-npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(attribute.value), allow_pickle=False), np.eye(3))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, np.float64("nan")])
def test_numbers_that_json_does_not_know(value: float) -> None:
    back = read_attribute(to_attribute("key", value))

    assert isinstance(back, float)
    assert back == value or (math.isnan(back) and math.isnan(value))


class Thing:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Thing(),
        {1: "a"},
        [Thing()],
        {"a": {2: 3}},
        [math.nan],
        {"a": math.inf},
        {1, 2},
        1j,
        np.datetime64("2026-01-01"),
        np.array([Thing()]),
        np.array(["text"]),
        [b"bytes"],
        "\ud800",
        ["\ud800"],
    ],
)
def test_values_that_can_not_travel(value: Any) -> None:
    with pytest.raises(MetadataError, match="metadata 'key'"):
        to_attribute("key", value)


def test_the_error_is_about_an_argument_and_is_caught_as_before() -> None:
    for kind in (ConfigError, MalformedMessageError, ValueError):
        with pytest.raises(kind, match="metadata 'x' can't hold values of type object"):
            to_attribute("x", object())


def test_deep_values_are_refused_before_python_gives_up() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(MetadataError, match="nested more than 32 deep"):
        to_attribute("key", value)


NPY = to_attribute("key", np.arange(4, dtype="<f4")).value


@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        ("text/plain", b"\xff\xfe"),
        ("application/json", b""),
        ("application/json", b"{"),
        ("application/json", b"\xff"),
        ("application/json", b"[" * 100_000),
        ("application/json", b"9" * 10_000),
        ("application/x-npy", b""),
        ("application/x-npy", NPY[:-1]),
        ("application/x-npy", NPY + b"\0"),
        ("application/x-npy", NPY[:9]),
        ("application/x-npy", NPY.replace(b"(4,)", b"(9,)")),
        ("application/x-npy", NPY.replace(b"'<f4'", b"'|O8'")),
        ("application/x-npy", NPY.replace(b"'<f4'", b"'<f3'")),
        ("application/x-npy", NPY.replace(b"NUMPY\x01", b"NUMPY\x02")),
        ("application/x-npy", NPY.replace(b"False", b"exit(")),
        ("application/msgpack", b"\x01"),
        ("", b"anything"),
    ],
)
def test_what_is_not_what_it_says_stays_bytes(media_type: str, data: bytes) -> None:
    assert read_attribute(MetaAttribute("key", media_type, data)) == data


def test_a_shape_that_lies_allocates_nothing() -> None:
    header = NPY.replace(b"(4,), }" + b" " * 20, b"(1099511627776,0,99), }    "[:27].ljust(27))
    assert len(header) == len(NPY)
    assert isinstance(read_attribute(MetaAttribute("key", "application/x-npy", header)), bytes)


@given(st.sampled_from(["text/plain", "application/json", "application/x-npy"]), st.binary(max_size=200))
def test_nothing_read_ever_raises(media_type: str, data: bytes) -> None:
    read_attribute(MetaAttribute("key", media_type, data))


@given(st.data())
def test_no_damaged_array_ever_raises(data: st.DataObject) -> None:
    damaged = bytearray(NPY)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(NPY) - 1))] = data.draw(st.integers(0, 255))
    read_attribute(MetaAttribute("key", "application/x-npy", bytes(damaged)))


def test_parameters_of_a_media_type_don_t_matter() -> None:
    assert read_attribute(MetaAttribute("key", "Text/Plain; charset=utf-8", b"a")) == "a"
    assert json.loads(to_attribute("key", [1]).value) == [1]

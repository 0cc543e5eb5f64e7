"""Slots and strides from what people know about their frames."""

import pytest

from tensor_pool.datatypes import Dtype
from tensor_pool.errors import ConfigError
from tensor_pool.pool.sizing import Geometry, choose_geometry, frame_bytes, stride_for

MIB = 1 << 20


@pytest.mark.parametrize(
    ("nbytes", "stride"),
    [(0, 64), (1, 64), (64, 64), (65, 128), (4096, 4096), (4097, 8192), (1 << 31, 1 << 31)],
)
def test_strides_are_the_next_power_of_two(nbytes: int, stride: int) -> None:
    assert stride_for(nbytes) == stride


@pytest.mark.parametrize(
    ("stride", "nslots"),
    [(64, 1024), (256 << 10, 1024), (512 << 10, 512), (MIB, 256), (32 * MIB, 8), (64 * MIB, 8), (1 << 31, 8)],
)
def test_default_slots_keep_within_256_mib_from_8_to_1024(stride: int, nslots: int) -> None:
    assert choose_geometry(max_frame_bytes=stride) == Geometry(nslots, (stride,))


@pytest.mark.req("WIRE-15.6-1")
@pytest.mark.parametrize(
    ("rate_hz", "latency_s", "factor", "nslots"),
    [(100, 0.5, 2, 128), (100, 0.5, 4, 256), (1_000, 1, 2, 2048), (0.1, 1, 2, 8), (0, 0, 2, 8)],
)
def test_slots_from_rate_and_latency(rate_hz: float, latency_s: float, factor: float, nslots: int) -> None:
    geometry = choose_geometry(
        max_frame_bytes=1, rate_hz=rate_hz, consumer_latency_s=latency_s, safety_factor=factor
    )
    assert geometry.nslots == nslots


def test_what_is_given_wins() -> None:
    geometry = choose_geometry(
        dtype=Dtype.UINT8, shape=(10,), pools=[4096, 64], nslots=2, rate_hz=1e6, consumer_latency_s=10
    )
    assert geometry == Geometry(2, (64, 4096))
    assert geometry.pools == ((1, 64), (2, 4096))
    assert geometry.max_frame_bytes == 4096
    assert geometry.region_bytes == 2 * (256 + 64 + 4096) + 3 * 64


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [
        (Dtype.UINT8, (3,), 3),
        (Dtype.FLOAT64, (2, 3, 4), 192),
        (Dtype.BIT, (9,), 9),
        (Dtype.BOOLEAN, (9,), 9),
        (Dtype.INT32, (0, 5), 0),
        (Dtype.UINT16, (1,) * 8, 2),
    ],
)
def test_frame_bytes(dtype: Dtype, shape: tuple[int, ...], nbytes: int) -> None:
    assert frame_bytes(dtype, shape) == nbytes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "nothing says how large frames are"),
        ({"dtype": Dtype.UINT8}, "nothing says"),
        ({"shape": (5,)}, "nothing says"),
        ({"dtype": Dtype.UNKNOWN, "shape": (5,)}, "without an element type"),
        ({"dtype": Dtype.UINT8, "shape": (1,) * 9}, "can't travel"),
        ({"dtype": Dtype.UINT8, "shape": (-1,)}, "can't travel"),
        ({"max_frame_bytes": (1 << 31) + 1}, "do not fit a slot"),
        ({"max_frame_bytes": -1}, "frames of -1 bytes"),
        ({"pools": [32]}, "pool slots of 32 bytes"),
        ({"pools": [96]}, "pool slots of 96 bytes"),
        ({"pools": [1 << 32]}, "pool slots of"),
        ({"pools": [64, 64]}, "repeat a slot size"),
        ({"pools": [64] * 65}, "65 pools"),
        ({"max_frame_bytes": 1, "nslots": 0}, "0 slots"),
        ({"max_frame_bytes": 1, "nslots": 3}, "3 slots"),
        ({"max_frame_bytes": 1, "nslots": 1 << 25}, "33554432 slots"),
        ({"max_frame_bytes": 1, "rate_hz": 1e12, "consumer_latency_s": 1e3}, "need"),
        ({"max_frame_bytes": 1, "rate_hz": -1, "consumer_latency_s": 1}, "need"),
        ({"max_frame_bytes": 1, "rate_hz": float("nan"), "consumer_latency_s": 1}, "need"),
    ],
)
def test_nonsense_is_refused_with_a_hint(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        choose_geometry(**arguments)  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        ({"max_frame_bytes": 1, "nslots": 10}, ": 8 or 16"),
        ({"max_frame_bytes": 1, "nslots": 0}, ": 1"),
        ({"max_frame_bytes": 1, "nslots": (1 << 20) + 1}, ": 1048576"),
        ({"pools": [100]}, ": 64 or 128"),
        ({"pools": [3]}, ": 64"),
        ({"pools": [(1 << 31) + 1]}, ": 2147483648"),
    ],
)
def test_the_hint_names_the_nearest_number_that_works(arguments: dict[str, object], nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_geometry(**arguments)  # type: ignore[arg-type]
    assert (caught.value.hint or "").endswith(nearest)

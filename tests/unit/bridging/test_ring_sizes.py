"""Rings of destinations: like those of their sources, and never larger than this host allows."""

from __future__ import annotations

import pytest

from tensor_pool.bridging.config import BridgeSection
from tensor_pool.bridging.ring_sizes import ring_like
from tensor_pool.errors import ConfigError
from tensor_pool.pool.sizing import Geometry

LIMIT = BridgeSection().max_ring_bytes


@pytest.mark.parametrize(
    ("nslots", "strides"),
    [(1, [64]), (256, [1 << 20]), (8, [1 << 26]), (3, [0, 100]), (8, []), (0, [1024])],
)
def test_what_fits_stays_as_the_source_has_it(nslots: int, strides: list[int]) -> None:
    assert ring_like(nslots, strides, max_bytes=LIMIT) == Geometry(nslots, tuple(strides))


@pytest.mark.parametrize("nslots", [2**32 - 1, 2**20, 1024, 5])
@pytest.mark.parametrize("strides", [[1 << 28], [64], [4096, 1 << 24], [1 << 20] * 9])
def test_nothing_is_ever_larger_than_allowed(nslots: int, strides: list[int]) -> None:
    limit = 5 * Geometry(1, tuple(set(strides))).region_bytes
    geometry = ring_like(nslots, strides, max_bytes=limit)
    assert geometry.nslots in {4, nslots}
    assert geometry.region_bytes <= limit


def test_without_a_limit_all_stays() -> None:
    assert ring_like(2**20, [1 << 31], max_bytes=0) == Geometry(2**20, (1 << 31,))


def test_less_than_four_slots_are_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError) as caught:
        ring_like(2**20, [1 << 31], max_bytes=LIMIT)
    assert "1048576 slots of 2147483648 bytes" in caught.value.message
    assert f"bridge.max_ring_bytes {LIMIT}" in caught.value.message
    assert "profile" in str(caught.value.hint)

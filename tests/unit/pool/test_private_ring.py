"""Rings that nobody else sees: never too large, never left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool import _native
from tensor_pool.errors import RegionError, RegionFullError
from tensor_pool.pool import private_ring
from tensor_pool.pool.private_ring import PrivateRing, private_geometry

FULL = RegionFullError("no space left")


@given(
    st.lists(st.integers(1, 2**31), min_size=1, max_size=40),
    st.integers(0, 2**32 - 1),
    st.integers(64 << 10, 1 << 32),
)
def test_it_never_takes_more_than_it_may(strides: list[int], nslots: int, most_bytes: int) -> None:
    geometry = private_geometry(strides, nslots=nslots, most_bytes=most_bytes)

    assert geometry.region_bytes <= most_bytes
    assert geometry.nslots >= 4
    assert geometry.nslots.bit_count() == 1
    assert all(stride >= 64 and stride.bit_count() == 1 for stride in geometry.strides)


@given(st.lists(st.integers(64, 1 << 20), min_size=1, max_size=8), st.integers(4, 64))
def test_frames_that_fit_there_fit_here_where_there_is_room(strides: list[int], nslots: int) -> None:
    geometry = private_geometry(strides, nslots=nslots, most_bytes=1 << 40)

    assert geometry.nslots >= nslots
    assert geometry.max_frame_bytes >= max(strides)


def make(directory: Path, most_bytes: int = 1 << 20, largest: int = 4096) -> PrivateRing:
    return PrivateRing(
        7,
        5,
        strides=[largest],
        nslots=8,
        most_bytes=most_bytes,
        directory=str(directory),
        descriptors=None,
        open_reader=lambda address, base_dirs: _native.RingReader(address, base_dirs=base_dirs),
    )


def test_it_works_without_its_files(tmp_path: Path) -> None:
    ring = make(tmp_path)
    try:
        assert list(tmp_path.iterdir()) == []
        ring.writer.publish(np.arange(4, dtype=np.uint8))
        frame = ring.reader.poll()
        assert (frame.stream_id, frame.epoch, frame.copy().tolist()) == (7, 5, [0, 1, 2, 3])
    finally:
        ring.writer.close()
        ring.reader.close()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes there is room for; what was made is added behind."""
    found = [0]

    def create(directory: str, **options: object) -> _native.RingAddress:
        size = options["nslots"] * sum(stride for _, stride in options["pools"])
        if size > found[0]:
            raise FULL
        found.append(size)
        return _native_create(directory, **options)

    _native_create = _native.create_ring
    monkeypatch.setattr(private_ring._native, "create_ring", create)
    return found


def test_where_there_is_little_room_it_is_small(tmp_path: Path, room: list[int]) -> None:
    room[0] = 100_000
    ring = make(tmp_path, most_bytes=8 << 20, largest=1 << 20)
    ring.writer.close()
    ring.reader.close()
    assert len(room) == 2
    assert room[1] <= room[0]


def test_where_there_is_no_room_it_says_so_and_leaves_nothing(tmp_path: Path, room: list[int]) -> None:
    with pytest.raises(RegionFullError, match="no room") as caught:
        make(tmp_path)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []
    assert room == [0]


def test_a_reader_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(address: object, base_dirs: object) -> _native.RingReader:
        raise RegionError("no")

    with pytest.raises(RegionError):
        PrivateRing(
            7, 5, strides=[64], nslots=8, most_bytes=1 << 20, directory=str(tmp_path), descriptors=None,
            open_reader=fail,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_no_obstacle(tmp_path: Path) -> None:
    ring = make(tmp_path / "missing")
    ring.writer.close()
    ring.reader.close()

"""Rings in shared memory, one directory a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from tensor_pool import _native


class Ring(NamedTuple):
    """A new ring and where it lies."""

    directory: Path
    address: _native.RingAddress

    def writer(self) -> _native.RingWriter:
        return _native.RingWriter(self.address, base_dirs=[self.directory])

    def reader(self, mode: str = "map") -> _native.RingReader:
        return _native.RingReader(self.address, base_dirs=[self.directory], mode=mode)


@pytest.fixture
def make_ring() -> Iterator[Callable[..., Ring]]:
    """Makes rings: ``make_ring(nslots=8, strides=(4096,))``."""
    directories: list[TemporaryDirectory[str]] = []

    def make(nslots: int = 8, strides: tuple[int, ...] = (4096,), **options: object) -> Ring:
        directories.append(TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-"))
        directory = Path(directories[-1].name)
        pools = list(enumerate(strides, start=1))
        address = _native.create_ring(
            directory, stream_id=10_000, epoch=5, nslots=nslots, pools=pools, **options
        )
        return Ring(directory, address)

    yield make
    for directory in directories:
        directory.cleanup()

"""What an announce must say before anything is mapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from tensor_pool import _native
from tensor_pool.errors import RegionError
from tensor_pool.pool.mapping import announce_ring, ring_address
from tensor_pool.wire.messages import PayloadPool, ShmPoolAnnounce


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-") as directory:
        yield Path(directory)


@pytest.fixture
def address(directory: Path) -> _native.RingAddress:
    pools = [(1, 64), (2, 4096), (7, 128)]
    return _native.create_ring(directory, stream_id=10_000, epoch=5, nslots=8, pools=pools)


@pytest.fixture
def announce(address: _native.RingAddress) -> ShmPoolAnnounce:
    return announce_ring(address, producer_id=7, timestamp_ns=1)


def test_a_ring_is_found_again_from_its_announce(
    directory: Path, address: _native.RingAddress, announce: ShmPoolAnnounce
) -> None:
    assert ring_address(announce) == address
    with _native.RingReader(ring_address(announce), base_dirs=[directory]) as reader:
        assert reader.poll() is None


def with_slots_of_pool(announce: ShmPoolAnnounce, index: int, nslots: int) -> ShmPoolAnnounce:
    pools = list(announce.payload_pools)
    pools[index] = msgspec.structs.replace(pools[index], pool_nslots=nslots)
    return msgspec.structs.replace(announce, payload_pools=tuple(pools))


@pytest.mark.req("WIRE-15.5-1")
@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("nslots", [16, 4, 0])
def test_a_pool_with_other_slots_than_the_header_ring_is_refused(
    announce: ShmPoolAnnounce, index: int, nslots: int
) -> None:
    pool = announce.payload_pools[index].pool_id
    with pytest.raises(RegionError, match=f"pool {pool} is announced with {nslots} slots") as caught:
        ring_address(with_slots_of_pool(announce, index, nslots))
    assert "stream 10000, epoch 5" in caught.value.where


@pytest.mark.req("WIRE-15.20-2")
@pytest.mark.parametrize("slot_bytes", [512, 128, 255, 0])
def test_another_slot_size_is_another_layout(announce: ShmPoolAnnounce, slot_bytes: int) -> None:
    with pytest.raises(RegionError, match=f"header slots of {slot_bytes} bytes"):
        ring_address(msgspec.structs.replace(announce, header_slot_bytes=slot_bytes))


@pytest.mark.req("WIRE-15.20-2")
@pytest.mark.parametrize("version", [0, 2, 2**32 - 2])
def test_another_layout_version_is_refused(announce: ShmPoolAnnounce, version: int) -> None:
    with pytest.raises(RegionError, match=f"layout version {version} is announced, 1 is known"):
        ring_address(msgspec.structs.replace(announce, layout_version=version))


def test_a_ring_without_pools_is_refused(announce: ShmPoolAnnounce) -> None:
    with pytest.raises(RegionError, match="no payload pool"):
        ring_address(msgspec.structs.replace(announce, payload_pools=()))


def test_a_lie_about_the_slots_that_agrees_with_itself_is_found_in_the_files(
    directory: Path, announce: ShmPoolAnnounce
) -> None:
    pools = tuple(msgspec.structs.replace(pool, pool_nslots=4) for pool in announce.payload_pools)
    smaller = msgspec.structs.replace(announce, header_nslots=4, payload_pools=pools)
    with pytest.raises(RegionError, match="superblock field nslots"):
        _native.RingReader(ring_address(smaller), base_dirs=[directory])


def test_every_refusal_says_what_to_try(announce: ShmPoolAnnounce) -> None:
    wrong = [
        msgspec.structs.replace(announce, layout_version=2),
        msgspec.structs.replace(announce, header_slot_bytes=512),
        msgspec.structs.replace(announce, payload_pools=()),
        msgspec.structs.replace(announce, payload_pools=(PayloadPool(1, 16, 64, "shm:file?path=/a"),)),
    ]
    texts = set()
    for each in wrong:
        with pytest.raises(RegionError) as caught:
            ring_address(each)
        assert caught.value.hint
        texts.add(caught.value.message)
    assert len(texts) == len(wrong), "each has words of its own"

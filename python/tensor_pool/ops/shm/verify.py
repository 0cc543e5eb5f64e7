"""Whether the regions of an epoch are what a consumer needs: superblocks, sizes, counts, slots.

Live rings may be verified too: a slot that seems wrong is read again, and one that changed meanwhile was only
being written.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tensor_pool import _native
from tensor_pool.datatypes import MAX_DIMS, Dtype, MajorOrder, to_numpy
from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.ops.shm.regions import open_region
from tensor_pool.ops.shm.ring_view import read_slots
from tensor_pool.wire.shm import (
    LAYOUT_VERSION,
    SLOT_BYTES,
    SUPERBLOCK_BYTES,
    RegionType,
    ShmRegionSuperblock,
    decode_slot,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensor_pool.ops.shm.regions import EpochFolder, Region
    from tensor_pool.wire.shm import Slot

__all__ = ["Flaw", "verify_epoch"]

_LOOKS: Final = 3
_WORLD_WRITABLE: Final = 0o002
_MOST_SLOT_FLAWS: Final = 20
"""Wrong slots of one ring that are told; a ring full of them is told once."""


class Flaw(msgspec.Struct, frozen=True):
    """Something wrong with a file of an epoch."""

    path: str
    severity: Literal["problem", "warning"]
    what: str


def verify_epoch(folder: EpochFolder) -> list[Flaw]:
    """Everything that is wrong with an epoch; empty when a consumer would accept it and its frames."""
    flaws = [*_folder_flaws(folder)]
    superblock = folder.superblock
    if folder.ring is None or superblock is None:
        return flaws
    flaws += _region_flaws(folder.ring, folder, superblock.nslots)
    for pool in folder.pools:
        flaws += _region_flaws(pool, folder, superblock.nslots)
    if any(flaw.severity == "problem" for flaw in flaws):
        return flaws  # slots of a ring that nobody would map say nothing
    flaws += _refusal(folder, superblock)
    flaws += _slot_flaws(folder.ring, superblock.nslots, _strides(folder))
    return flaws


def _folder_flaws(folder: EpochFolder) -> Iterator[Flaw]:
    if folder.flaw is not None:
        yield Flaw(folder.path, "problem", folder.flaw)
    elif not folder.pools:
        yield Flaw(folder.path, "problem", "has no payload pool")
    for name in folder.strangers:
        yield Flaw(folder.path, "warning", f"holds {name!r}, which is no region")
    for region in folder.regions:
        if region.flaw is not None:
            yield Flaw(region.path, "problem", region.flaw)


def _region_flaws(region: Region, folder: EpochFolder, nslots: int) -> Iterator[Flaw]:
    superblock = region.superblock
    if superblock is None:
        return
    is_ring = region is folder.ring
    expected = {
        "layout_version": LAYOUT_VERSION,
        "epoch": folder.epoch,
        "stream_id": folder.stream_id,
        "region_type": RegionType.HEADER_RING if is_ring else RegionType.PAYLOAD_POOL,
        "nslots": nslots,
        "pool_id": 0 if is_ring else int(Path(region.name).stem),
    }
    if is_ring:
        expected["slot_bytes"] = SLOT_BYTES
    for name, value in expected.items():
        found = getattr(superblock, name)
        if found != value:
            yield Flaw(region.path, "problem", f"superblock field {name} is {found}, expected {value}")
    if nslots < 1 or nslots & (nslots - 1):
        yield Flaw(region.path, "problem", f"{nslots} slots, which is no power of two")
    stride = SLOT_BYTES if is_ring else superblock.stride_bytes
    if not is_ring and (stride < 64 or stride & (stride - 1)):
        yield Flaw(
            region.path, "problem", f"a stride of {stride} bytes, which is not 64 times a power of two"
        )
    need = SUPERBLOCK_BYTES + superblock.nslots * stride
    if region.size_bytes < need:
        yield Flaw(region.path, "problem", f"has {region.size_bytes} bytes, its geometry needs {need}")
    if region.mode & _WORLD_WRITABLE:
        yield Flaw(region.path, "warning", f"has mode {region.mode:04o}: everybody may write to it")


def _strides(folder: EpochFolder) -> dict[int, int]:
    found = (pool.superblock for pool in folder.pools)
    return {superblock.pool_id: superblock.stride_bytes for superblock in found if superblock is not None}


def _refusal(folder: EpochFolder, superblock: ShmRegionSuperblock) -> Iterator[Flaw]:
    """What the reader that consumers use says, in the mode that survives hostile files."""
    try:
        address = _native.RingAddress(
            stream_id=folder.stream_id,
            epoch=folder.epoch,
            nslots=superblock.nslots,
            header_uri=_native.format_region_uri(folder.ring.path if folder.ring else ""),
            pools=[
                (pool.superblock.pool_id, pool.superblock.stride_bytes, _native.format_region_uri(pool.path))
                for pool in folder.pools
                if pool.superblock is not None
            ],
        )
        _native.RingReader(address, base_dirs=[folder.path], mode="copy").close()
    except RegionError as e:
        yield Flaw(folder.path, "problem", f"consumers refuse it: {e.message}")


def _slot_flaws(ring: Region, nslots: int, strides: Mapping[int, int]) -> Iterator[Flaw]:
    told = 0
    try:
        for index, data in enumerate(read_slots(ring)):
            what = _judge(data, index, nslots, strides)
            if what is not None and _stays_wrong(ring, index, nslots, strides, data):
                told += 1
                if told > _MOST_SLOT_FLAWS:
                    yield Flaw(ring.path, "problem", "further slots are wrong too")
                    return
                yield Flaw(ring.path, "problem", f"slot {index}: {what}")
    except RegionError as e:
        yield Flaw(ring.path, "problem", e.message)


def _stays_wrong(ring: Region, index: int, nslots: int, strides: Mapping[int, int], data: bytes) -> bool:
    """Reads a slot again; one that changes is being written, and what was seen of it means nothing."""
    try:
        descriptor = open_region(Path(ring.path))
    except OSError:
        return False  # gone: nobody's any more
    try:
        for _ in range(_LOOKS):
            again = os.pread(descriptor, SLOT_BYTES, SUPERBLOCK_BYTES + index * SLOT_BYTES)
            if len(again) < SLOT_BYTES or _judge(again, index, nslots, strides) is None:
                return False
            if again == data:
                return True
            data = again
    finally:
        os.close(descriptor)
    return False


def _judge(data: bytes, index: int, nslots: int, strides: Mapping[int, int]) -> str | None:
    """What is wrong with a slot; None for good ones and for those that hold no frame."""
    seq_commit = int.from_bytes(data[:8], "little")
    if not seq_commit & 1:
        return None  # free, or being written
    seq = seq_commit >> 1
    if seq & (nslots - 1) != index:
        return f"holds frame {seq}, which belongs into slot {seq & (nslots - 1)}"
    try:
        slot = decode_slot(data)
    except MalformedMessageError as e:
        return e.message
    return _judge_place(slot, seq, index, strides) or _judge_tensor(slot, seq)


def _judge_place(slot: Slot, seq: int, index: int, strides: Mapping[int, int]) -> str | None:
    header = slot.header
    if header.pool_id not in strides:
        return f"frame {seq} is in pool {header.pool_id}, which there is not"
    if header.payload_slot != index:
        return f"frame {seq} is in payload slot {header.payload_slot}"
    if header.payload_offset:
        return f"frame {seq} has a payload offset of {header.payload_offset}"
    if header.values_len_bytes > strides[header.pool_id]:
        return f"frame {seq} has {header.values_len_bytes} bytes, its slot {strides[header.pool_id]}"
    return None


def _judge_tensor(slot: Slot, seq: int) -> str | None:
    tensor = slot.tensor_header
    if tensor is None:
        return f"frame {seq} has no tensor header"
    if tensor.dtype is Dtype.UNKNOWN or tensor.major_order is MajorOrder.UNKNOWN:
        return f"frame {seq} says nothing of its elements or their order"
    if not 1 <= tensor.ndims <= MAX_DIMS:
        return f"frame {seq} has {tensor.ndims} dimensions"
    dims, strides = tensor.dims[: tensor.ndims], tensor.strides[: tensor.ndims]
    if min(dims) < 0 or min(strides) < 0:
        return f"frame {seq} has negative dimensions or strides"
    extent = _extent(to_numpy(tensor.dtype).itemsize, dims, strides)
    has = slot.header.values_len_bytes
    return f"frame {seq} reaches over {extent} bytes, has {has}" if extent > has else None


def _extent(itemsize: int, dims: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Bytes from the first to the last element (decision M4); strides of 0 are inferred from the shape."""
    if 0 in dims:
        return 0
    if any(strides):
        return itemsize + sum((dim - 1) * stride for dim, stride in zip(dims, strides, strict=True))
    return itemsize * math.prod(dims)

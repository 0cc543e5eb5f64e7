"""One frame from ring to ring: under its number and with all that it says, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from slot_files import header_file, is_committed, overwrite, slot_header_of, slot_of
from tensor_pool._native import RingReader, RingWriter, create_ring
from tensor_pool.datatypes import Dtype
from tensor_pool.limiting.lane import copy_frame
from tensor_pool.wire.shm import SLOT_BYTES, SUPERBLOCK_BYTES, encode_slot, encode_tensor_header


class Rings(NamedTuple):
    out: RingWriter
    source: RingReader
    dest: RingWriter
    inp: RingReader


@pytest.fixture
def rings(tmp_path: Path) -> Iterator[Rings]:
    for name in ("source", "dest"):
        (tmp_path / name).mkdir()
    source = create_ring(tmp_path / "source", stream_id=1, epoch=1, nslots=4, pools=[(1, 4096)])
    dest = create_ring(tmp_path / "dest", stream_id=2, epoch=9, nslots=4, pools=[(1, 64), (7, 4096)])
    with (
        RingWriter(source, base_dirs=[tmp_path]) as out,
        RingReader(source, base_dirs=[tmp_path]) as reader,
        RingWriter(dest, base_dirs=[tmp_path]) as writer,
        RingReader(dest, base_dirs=[tmp_path]) as inp,
    ):
        yield Rings(out, reader, writer, inp)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(3, 5), (7,), (1, 1, 4), (0, 3), (30, 30)])
def test_everything_but_pool_and_slot_stays(rings: Rings, shape: tuple[int, ...], order: str) -> None:
    expected = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    claim = rings.out.claim(shape, int(Dtype.FLOAT32), order, 6, 1_234, 5)
    claim.array[...] = expected
    claim.commit()
    frame = rings.source.read(6)
    assert frame is not None
    assert copy_frame(frame, rings.dest)
    there = rings.inp.read(6)
    assert there is not None
    assert (there.copy() == expected).all()
    assert (there.seq, there.timestamp_ns, there.meta_version, there.order) == (6, 1_234, 5, order)
    assert (there.stream_id, there.epoch, there.dtype, there.shape) == (2, 9, "float32", shape)
    assert slot_header_of(rings.dest.address, 6).pool_id == (1 if expected.nbytes <= 64 else 7)


def test_a_frame_that_was_overwritten_leaves_none(rings: Rings) -> None:
    rings.out.publish(np.zeros(9, np.uint8))
    frame = rings.source.poll()
    assert frame is not None
    for _ in range(4):
        rings.out.publish(np.ones(9, np.uint8))
    assert not copy_frame(frame, rings.dest)
    assert rings.inp.poll() is None
    assert not is_committed(rings.dest.address, 0)
    newest = rings.source.read(4)
    assert newest is not None
    assert copy_frame(newest, rings.dest), "and the ring goes on"
    assert rings.inp.poll() is not None


@pytest.mark.parametrize("is_lost", [False, True], ids=["whole", "overwritten"])
def test_gaps_between_rows_are_left_out(rings: Rings, is_lost: bool) -> None:
    rings.out.publish(np.arange(32, dtype=np.uint8).reshape(4, 8))
    _pad_rows(rings.out, columns=6)
    frame = rings.source.poll()
    assert frame is not None
    assert (frame.shape, frame.strides) == ((4, 6), (8, 1))
    for _ in range(4 if is_lost else 0):
        rings.out.publish(np.ones(9, np.uint8))
    assert copy_frame(frame, rings.dest) is not is_lost
    there = rings.inp.poll()
    if is_lost:
        assert there is None
    else:
        assert there is not None
        assert there.strides == (6, 1)
        assert (there.copy() == np.arange(32).reshape(4, 8)[:, :6]).all()


def _pad_rows(out: RingWriter, columns: int) -> None:
    """Makes the last elements of each row of frame 0 padding, as other implementations may have it."""
    slot = slot_of(out.address, 0)
    assert slot.tensor_header is not None
    dims = (slot.tensor_header.dims[0], columns, *slot.tensor_header.dims[2:])
    strides = (8, 1, *slot.tensor_header.strides[2:])
    tensor = msgspec.structs.replace(slot.tensor_header, dims=dims, strides=strides)
    header = msgspec.structs.replace(slot.header, header_bytes=encode_tensor_header(tensor))
    overwrite(header_file(out.address), SUPERBLOCK_BYTES, encode_slot(header)[:SLOT_BYTES])

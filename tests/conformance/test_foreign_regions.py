"""Region files of an implementation that nobody here wrote: every committed frame is taken."""

from __future__ import annotations

import json
import shutil
import struct
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tensor_pool import _native
from tensor_pool.datatypes import Dtype

CAPTURE = Path(__file__).parents[1] / "vectors" / "foreign_a"
INDEX = json.loads((CAPTURE / "index.json").read_text())


@pytest.fixture
def directory():
    with TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-") as name:
        yield Path(name)


def lay_out(source: Path, directory: Path, stream_id: int) -> _native.RingAddress:
    """Copies region files into shared memory; their address as that implementation would announce it."""
    for path in source.iterdir():
        shutil.copyfile(path, directory / path.name)
    uri = f"shm:file?path={directory}/{{}}|require_hugepages=false"
    superblock = (directory / "header.ring").read_bytes()[:64]
    pools = []
    for path in sorted(directory.glob("*.pool")):
        (stride_bytes,) = struct.unpack_from("<I", path.read_bytes(), 36)
        pools.append((int(path.stem), stride_bytes, uri.format(path.name)))
    return _native.RingAddress(
        stream_id=stream_id,
        epoch=struct.unpack_from("<Q", superblock, 12)[0],
        nslots=struct.unpack_from("<I", superblock, 28)[0],
        header_uri=uri.format("header.ring"),
        pools=pools,
    )


def check(frame: _native.Frame, expected: dict) -> None:
    assert (frame.seq, frame.wire_dtype) == (expected["seq"], expected["dtype_code"])
    assert (list(frame.shape), frame.nbytes) == (expected["dims"], expected["values_len_bytes"])
    assert (frame.timestamp_ns, frame.meta_version) == (
        expected["slot_timestamp_ns"],
        expected["meta_version"],
    )
    assert frame.order == {"row": "C", "column": "F"}[expected["major_order"]]
    if all(expected["strides"]):
        assert list(frame.strides) == expected["strides"]
    payload = bytearray(frame.nbytes)
    assert frame.copy_into(payload)
    assert sha256(payload).hexdigest() == expected["payload_sha256"]
    values = frame.copy().ravel(order="C").tolist()
    assert values[: len(expected["values_c_order"])] == expected["values_c_order"]


@pytest.mark.req("WIRE-8.2-4", "WIRE-8.2-25")
@pytest.mark.parametrize(
    "expected", INDEX["frames"], ids=lambda f: f"{f['seq']}-{f['dtype']}-{f['major_order']}"
)
@pytest.mark.parametrize("mode", ["map", "copy"])
def test_each_frame_right_after_its_publication(directory, expected, mode):
    address = lay_out(CAPTURE / "shm_initial", directory, 10_000)
    index = expected["seq"] % address.nslots
    strides = {pool_id: stride_bytes for pool_id, stride_bytes, _ in address.pools}
    pool_id = expected["pool_id"]
    for name, offset, source in (
        ("header.ring", 64 + 256 * index, expected["slot_file"]),
        (f"{pool_id}.pool", 64 + strides[pool_id] * index, expected["payload_file"]),
    ):
        with (directory / name).open("r+b") as file:
            file.seek(offset)
            file.write((CAPTURE / source).read_bytes())
    reader = _native.RingReader(address, base_dirs=[directory], mode=mode)
    frame = reader.read(expected["seq"])
    assert frame is not None, reader.drops
    check(frame, expected)


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_what_survived_at_the_end_of_the_run(directory, mode):
    address = lay_out(CAPTURE / "shm_final", directory, 10_000)
    reader = _native.RingReader(address, base_dirs=[directory], mode=mode)
    reader.seek(reader.oldest())
    survivors = INDEX["shm_final_surviving_seqs"]
    for seq in survivors:
        check(reader.poll(), INDEX["frames"][seq])
    assert (reader.poll(), reader.drops, reader.gaps, reader.newest()) == (None, {}, 0, survivors[-1])


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_a_run_without_a_driver(directory, mode):
    address = lay_out(CAPTURE / "static" / "shm_final", directory, INDEX["static"]["stream_id"])
    reader = _native.RingReader(address, base_dirs=[directory], mode=mode)
    for expected in INDEX["static"]["frames"]:
        check(reader.poll(), expected)
    assert (reader.poll(), reader.drops) == (None, {})


def test_the_capture_covers_every_dtype_and_both_orders():
    codes = {frame["dtype_code"] for frame in INDEX["frames"]}
    assert codes == {dtype for dtype in Dtype if dtype is not Dtype.UNKNOWN}
    assert {frame["major_order"] for frame in INDEX["frames"]} == {"row", "column"}

"""The C library: a program in C (and the same as C++) and Python read each other's frames."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tensor_pool import _native
from tensor_pool.datatypes import from_numpy
from wire_vectors import foreign_index, read_foreign

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "c" / "ring_program.c"
LIBRARIES = ["-lpthread", "-ldl", "-lm"]
COMPILERS = {
    "c99": ["gcc", "-std=c99", "-x", "c"],
    "c++11": ["g++", "-std=c++11", "-x", "c++"],
}
STREAM_ID, EPOCH = 10_000, 5

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Program:
    """The compiled program, bound to a ring."""

    executable: Path
    directory: Path
    nslots: int = 8
    pools: tuple[tuple[int, int], ...] = ((1, 4096), (2, 65_536))

    @property
    def address(self) -> _native.RingAddress:
        uri = f"shm:file?path={self.directory}/"
        return _native.RingAddress(
            stream_id=STREAM_ID,
            epoch=EPOCH,
            nslots=self.nslots,
            header_uri=f"{uri}header.ring",
            pools=[(pool_id, stride, f"{uri}{pool_id}.pool") for pool_id, stride in self.pools],
        )

    def command(self, role: str, *more: object) -> list[str]:
        pools = ",".join(f"{pool_id}:{stride}" for pool_id, stride in self.pools)
        return [
            str(x)
            for x in (self.executable, role, self.directory, STREAM_ID, EPOCH, self.nslots, pools, *more)
        ]

    def run(self, role: str, *more: object, stdin: str = "") -> str:
        result = subprocess.run(
            self.command(role, *more), input=stdin, capture_output=True, text=True, check=False, timeout=60
        )
        assert result.returncode == 0, result.stderr
        return result.stdout


@dataclass(frozen=True)
class Described:
    """A frame as one line of the program's input or output."""

    seq: int
    dtype: int
    order: int
    unit: int
    timestamp_ns: int
    meta_version: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    payload: bytes

    def line(self) -> str:
        numbers = [self.seq, self.dtype, self.order, self.unit, self.timestamp_ns, self.meta_version]
        numbers += [len(self.shape), *self.shape, *self.strides, len(self.payload)]
        return " ".join(map(str, numbers)) + " " + (self.payload.hex() or "-") + "\n"

    @classmethod
    def parse(cls, line: str) -> Described:
        *numbers, payload = line.split()
        head, rest = [int(n) for n in numbers[:7]], [int(n) for n in numbers[7:]]
        ndims = head.pop()
        data = b"" if payload == "-" else bytes.fromhex(payload)
        assert rest[2 * ndims :] == [len(data)]
        return cls(*head, tuple(rest[:ndims]), tuple(rest[ndims : 2 * ndims]), data)

    @classmethod
    def of(cls, frame: _native.Frame) -> Described:
        payload = bytearray(frame.nbytes)
        assert frame.copy_into(payload)
        order = {"C": 1, "F": 2}[frame.order]
        numbers = (frame.seq, frame.wire_dtype, order, 0, frame.timestamp_ns, frame.meta_version)
        return cls(*numbers, tuple(frame.shape), tuple(frame.strides), bytes(payload))


def described(array: np.ndarray, seq: int, **more: int) -> Described:
    """An array as the wire describes it."""
    row_major = array.flags.c_contiguous
    # NumPy gives an empty array strides of 0, the wire those of an array with one element there.
    one = np.empty([max(dim, 1) for dim in array.shape], array.dtype)
    return Described(
        seq=seq,
        dtype=int(from_numpy(array.dtype)),
        order=1 if row_major else 2,
        unit=0,
        timestamp_ns=more.get("timestamp_ns", 1_700_000_000_000_000_000 + seq),
        meta_version=more.get("meta_version", seq),
        shape=array.shape,
        strides=array.strides if array.size else one.strides,
        payload=array.tobytes(order="A"),
    )


ARRAYS = [
    np.arange(20, dtype="float32").reshape(4, 5),
    np.arange(16, dtype="uint8"),
    np.asfortranarray(np.arange(105, dtype="int16").reshape(3, 5, 7)),
    np.zeros((3, 0), dtype="float64"),
    np.linspace(0, 1, 5000),
    np.array([[True, False], [False, True]]),
]
FRAMES = [described(array, seq) for seq, array in enumerate(ARRAYS)]


@pytest.fixture(scope="session")
def library() -> Path:
    """The static library and its header."""
    result = subprocess.run(
        ["make", "--directory", ROOT, "capi"], capture_output=True, text=True, check=False, timeout=280
    )
    assert result.returncode == 0, result.stderr
    return ROOT / ".build" / "capi"


@pytest.fixture(scope="session", params=COMPILERS)
def executable(request, library, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("c") / f"ring_program_{request.param}"
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", f"-I{library}"]
    libraries = ["-x", "none", str(library / "libtensor_pool.a"), *LIBRARIES]
    command = [*COMPILERS[request.param], *strict, str(SOURCE), *libraries, "-o", str(target)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return target


@pytest.fixture
def program(executable) -> Iterator[Program]:
    with TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-") as directory:
        yield Program(executable, Path(directory))


def test_the_interface_refuses_what_it_must(executable):
    result = subprocess.run([executable, "check"], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().count(".") == 2, "a version"


@pytest.mark.parametrize("mode", ["view", "copy", "system"])
def test_c_reads_what_c_wrote(program, mode):
    program.run("create")
    program.run("write", stdin="".join(frame.line() for frame in FRAMES))
    ready, *lines = program.run("read", len(FRAMES), mode).splitlines()
    assert ready == "ready"
    assert [Described.parse(line) for line in lines] == FRAMES


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_python_reads_what_c_wrote(program, mode):
    program.run("create")
    program.run("write", stdin="".join(frame.line() for frame in FRAMES))
    with _native.RingReader(program.address, base_dirs=[program.directory], mode=mode) as reader:
        for expected, array in zip(FRAMES, ARRAYS, strict=True):
            frame = reader.poll()
            assert Described.of(frame) == expected
            np.testing.assert_array_equal(frame.copy(), array)
        assert reader.poll() is None


@pytest.mark.parametrize("mode", ["view", "copy", "system"])
def test_c_reads_what_python_wrote_and_sleeps_until_it_does(program, mode):
    address = _native.create_ring(
        program.directory, stream_id=STREAM_ID, epoch=EPOCH, nslots=program.nslots, pools=program.pools
    )
    assert address == program.address
    command = program.command("read", len(FRAMES), mode)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        _native.RingWriter(address, base_dirs=[program.directory]) as writer,
    ):
        assert process.stdout.readline() == "ready\n"
        for frame, array in zip(FRAMES, ARRAYS, strict=True):
            writer.publish(array, timestamp_ns=frame.timestamp_ns, meta_version=frame.meta_version)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert [Described.parse(line) for line in output.splitlines()] == FRAMES


def test_a_writer_in_c_goes_on_where_one_in_python_stopped(program):
    _native.create_ring(
        program.directory, stream_id=STREAM_ID, epoch=EPOCH, nslots=program.nslots, pools=program.pools
    )
    with _native.RingWriter(program.address, base_dirs=[program.directory]) as writer:
        writer.publish(ARRAYS[0])
    program.run("write", stdin=FRAMES[1].line())
    with _native.RingReader(program.address, base_dirs=[program.directory]) as reader:
        assert [reader.poll().seq, reader.poll().seq] == [0, 1]


@pytest.mark.req("WIRE-8.2-3", "WIRE-8.2-6", "WIRE-8.2-7", "WIRE-8.2-15", "WIRE-9-1", "WIRE-9-7", "WIRE-9-8")
def test_slots_have_the_bytes_of_another_implementation(program):
    program.run("create")
    for expected in foreign_index()["frames"]:
        payload = read_foreign(expected["payload_file"])
        frame = Described(
            seq=expected["seq"],
            dtype=expected["dtype_code"],
            order={"row": 1, "column": 2}[expected["major_order"]],
            unit=expected["progress_unit"],
            timestamp_ns=expected["slot_timestamp_ns"],
            meta_version=expected["meta_version"],
            shape=tuple(expected["dims"]),
            strides=tuple(expected["strides"]),
            payload=payload,
        )
        program.run("write", stdin=frame.line())
        index = frame.seq % program.nslots
        ring = (program.directory / "header.ring").read_bytes()
        assert ring[64 + 256 * index :][:256] == read_foreign(expected["slot_file"]), expected["seq"]
        pool = (program.directory / f"{expected['pool_id']}.pool").read_bytes()
        stride = dict(program.pools)[expected["pool_id"]]
        assert pool[64 + stride * index :][: len(payload)] == payload


def test_errors_of_the_library_reach_the_program(program):
    result = subprocess.run(
        program.command("read", 1, "view"), capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 1
    assert "header.ring" in result.stderr
    assert os.strerror(2) in result.stderr

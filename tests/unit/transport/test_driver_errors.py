"""The media driver's error log, read from files that a test wrote, whole and broken."""

import os
import struct
from pathlib import Path

import pytest

from tensor_pool.errors import NoMediaDriverError
from tensor_pool.transport.driver_errors import DriverError, read_driver_errors


def record(text: bytes, count: int = 1, first_ms: int = 5, last_ms: int = 9) -> bytes:
    length = 24 + len(text)
    return (struct.pack("<iiqq", length, count, last_ms, first_ms) + text).ljust(-(-length // 8) * 8, b"\0")


def write(
    directory: Path, log: bytes, lengths: tuple[int, ...] = (64, 128, 32, 16), version: int = 512
) -> None:
    size = len(log) + 64
    metadata = struct.pack("<6i", version, *lengths, size).ljust(128, b"\0")
    (directory / "cnc.dat").write_bytes(metadata + bytes(max(0, sum(lengths))) + log + bytes(64))


def test_records_come_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, record(b"-22 first", 3, 100, 200) + record(b"second\xff"))

    assert read_driver_errors(tmp_path) == [
        DriverError(3, 100, 200, "-22 first"),
        DriverError(1, 5, 9, "second\N{REPLACEMENT CHARACTER}"),
    ]


@pytest.mark.parametrize(
    "tail", [b"", struct.pack("<i", 7), struct.pack("<iiqq", 2**30, 1, 1, 1), struct.pack("<i", -5)]
)
def test_damage_ends_the_list(tmp_path: Path, tail: bytes) -> None:
    write(tmp_path, record(b"good") + tail)

    assert [error.text for error in read_driver_errors(tmp_path)] == ["good"]


@pytest.mark.parametrize("kind", ["missing", "short", "starting", "negative", "fifo", "directory"])
def test_no_media_drivers_file(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "cnc.dat"
    match kind:
        case "short":
            file.write_bytes(bytes(100))
        case "starting":
            write(tmp_path, b"", version=0)
        case "negative":
            write(tmp_path, b"", lengths=(-1, 1, 1, 1))
        case "fifo":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
    with pytest.raises(NoMediaDriverError, match="tpool up --aeron-dir"):
        read_driver_errors(tmp_path)


def test_a_file_that_ends_early_has_fewer_errors(tmp_path: Path) -> None:
    write(tmp_path, record(b"one") + record(b"two"))
    file = tmp_path / "cnc.dat"
    os.truncate(file, file.stat().st_size - 64 - 16)

    assert [error.text for error in read_driver_errors(tmp_path)] == ["one"]

"""Files that grow past the page cache hold the same bytes as any other."""

from __future__ import annotations

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tensor_pool.pipeline.record import growing_file
from tensor_pool.pipeline.record.growing_file import GrowingFile
from tensor_pool.testing import wait_until

MIB = 1 << 20


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def pieces(seed: int) -> list[bytes]:
    """Small and large ones, at all alignments."""
    chance = random.Random(seed)
    sizes = [chance.choice([0, 1, 7, 8, 100, 4096, MIB - 1, MIB, MIB + 1, 5 * MIB + 3]) for _ in range(12)]
    return [chance.randbytes(size) for size in sizes]


@pytest.mark.parametrize("is_direct", [True, False])
def test_what_is_written_is_in_the_file(tmp_path, monkeypatch, is_direct):
    if not is_direct:
        monkeypatch.setattr(growing_file, "_open_direct", lambda _path: None)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    expected = b""
    with GrowingFile(tmp_path / "file") as file:
        assert not file.is_direct or is_direct
        for piece in pieces(seed):
            file.write(piece)
            expected += piece
            assert file.tell() == len(expected)
            if random.Random(seed).random() < 0.3:
                file.settle()
                assert file.landed == len(expected)
        file.settle()
        assert os.fstat(file.fileno()).st_size == len(expected) == file.landed
    assert (tmp_path / "file").read_bytes() == expected


def test_a_disk_that_wants_other_blocks_is_written_as_ever(tmp_path, monkeypatch):
    real, refused = os.pwrite, []

    def pwrite(fd, data, at):
        if fd == file._direct_fd:
            refused.append(at)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, data, at)

    with GrowingFile(tmp_path / "file") as file:
        if not file.is_direct:
            pytest.skip("no direct writes here")
        monkeypatch.setattr(growing_file.os, "pwrite", pwrite)
        content = np.random.default_rng(1).integers(0, 256, 9 * MIB + 5, np.uint8)
        file.write(content)
        file.settle()
    assert refused
    assert (tmp_path / "file").read_bytes() == content.tobytes()


def test_the_next_piece_is_taken_while_one_is_written(tmp_path, monkeypatch):
    real, gate = os.pwrite, threading.Event()

    def pwrite(fd, data, at):
        gate.wait(30)
        return real(fd, data, at)

    with GrowingFile(tmp_path / "file") as file:
        if not file.is_direct:
            pytest.skip("no direct writes here")
        monkeypatch.setattr(growing_file.os, "pwrite", pwrite)
        file.write(bytes(4 * MIB))
        file.write(bytes(4 * MIB))
        assert (file.landed, file.tell()) == (0, 8 * MIB)
        gate.set()
        file.settle()
        assert file.landed == 8 * MIB


def test_a_failed_write_is_told_later_and_what_landed_is_known(tmp_path, monkeypatch):
    real = os.pwrite

    def pwrite(fd, data, at):
        if at >= 4 * MIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, at)

    monkeypatch.setattr(growing_file.os, "pwrite", pwrite)
    with GrowingFile(tmp_path / "file") as file:
        file.write(bytes(4 * MIB))
        with pytest.raises(OSError, match="No space left"):
            wait_until(lambda: file.write(bytes(4 * MIB)) and file.settle())
        assert file.landed == 4 * MIB
        with pytest.raises(OSError, match="No space left"):
            file.settle()


@pytest.mark.parametrize("spared", [0, 2])
def test_a_machine_without_threads_writes_as_ever(tmp_path, monkeypatch, spared):
    """As at the end of a program that did not close its recorder."""
    real, submitted = ThreadPoolExecutor.submit, []

    def submit(self, *arguments):
        submitted.append(real(self, *arguments))
        if len(submitted) > spared:
            raise RuntimeError("can't start new thread")
        return submitted[-1]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    content = np.random.default_rng(1).integers(0, 256, 17 * MIB + 5, np.uint8)
    with GrowingFile(tmp_path / "file") as file:
        if not file.is_direct:
            pytest.skip("no direct writes here")
        for start in range(0, content.size, 3 * MIB):
            file.write(content[start : start + 3 * MIB])
            file.flush()
        file.settle()
        assert file.landed == content.size
    assert len(submitted) > spared
    assert (tmp_path / "file").read_bytes() == content.tobytes()


def test_nothing_stays_open(tmp_path):
    before = open_files()
    threads = threading.active_count()
    for number in range(3):
        file = GrowingFile(tmp_path / str(number))
        file.write(bytes(2 * MIB))
        file.close()
        file.close()
    with pytest.raises(FileExistsError):
        GrowingFile(Path(tmp_path / "0"))
    assert open_files() == before
    assert threading.active_count() == threads

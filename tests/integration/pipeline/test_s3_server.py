"""The object store of the tests does what recordings need of one."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pyarrow import fs

from s3_server import BUCKET, s3_server

MIB = 1 << 20
PIECE = 64 * 1024
READERS = 8

_READ_IN_ANOTHER_PROCESS = """
import sys
from pyarrow import fs
s3, path = fs.FileSystem.from_uri(sys.argv[1])
with s3.open_input_file(path) as file:
    sys.stdout.buffer.write(file.read_at(5, 4))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(server):
    return server.filesystem()


def put(s3, path, data):
    with s3.open_output_stream(path) as file:
        file.write(data)


def names(s3, path):
    return sorted(
        found.path for found in s3.get_file_info(fs.FileSelector(path, recursive=True)) if found.is_file
    )


def test_large_files_go_up_in_parts_and_many_read_ranges_of_them(s3):
    data = np.random.default_rng(1).bytes(32 * MIB)  # more than one part, which has ten million bytes
    path = f"{BUCKET}/large/segment"
    put(s3, path, data)

    def right_pieces(reader: int) -> int:
        with s3.open_input_file(path) as file:
            starts = range(reader * MIB + 1, len(data) - PIECE, READERS * MIB)
            return sum(file.read_at(PIECE, start) == data[start : start + PIECE] for start in starts)

    assert s3.get_file_info(path).size == len(data)
    with ThreadPoolExecutor(READERS) as threads:
        assert sum(threads.map(right_pieces, range(READERS))) == 32


def test_files_are_listed_replaced_and_deleted(s3):
    files = [f"{BUCKET}/many/{stream}/{n}" for stream in "ab" for n in range(3)]
    for path in files:
        put(s3, path, b"old")
    put(s3, files[0], b"newer")
    assert names(s3, f"{BUCKET}/many") == files
    assert [found.type for found in s3.get_file_info(fs.FileSelector(f"{BUCKET}/many"))] == [
        fs.FileType.Directory
    ] * 2
    assert s3.get_file_info(files[0]).size == 5
    s3.delete_file(files[0])
    assert names(s3, f"{BUCKET}/many/a") == files[1:3]
    with pytest.raises(FileNotFoundError):
        s3.open_input_file(files[0])


@pytest.mark.parametrize("credentials", [True, False], ids=["in the URI", "in the environment"])
def test_a_uri_is_all_that_another_process_needs(server, s3, credentials):
    put(s3, f"{BUCKET}/a b/c=1", b"the whole")
    uri = server.uri(BUCKET, "a b/c=1", credentials=credentials)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    read = subprocess.run(
        [sys.executable, "-c", _READ_IN_ANOTHER_PROCESS, uri],
        env=environment if credentials else environment | server.environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (read.stdout, read.stderr) == (b"whole", b"")


def test_a_wrong_secret_is_refused(server):
    uri = server.uri().replace(server.secret_key, "guessed")
    with pytest.raises(OSError, match="SIGNATURE_DOES_NOT_MATCH"):
        fs.FileSystem.from_uri(uri)[0].get_file_info(fs.FileSelector(BUCKET))


def test_a_killed_server_has_everything_when_it_is_back(tmp_path):
    with s3_server(tmp_path, "kept") as server:
        put(server.filesystem(), "kept/file", b"x" * MIB)
    assert server.process.returncode == -9
    with s3_server(tmp_path, "kept") as again:
        assert names(again.filesystem(), "kept") == ["kept/file"]
        with again.filesystem().open_input_file("kept/file") as file:
            assert file.read() == b"x" * MIB

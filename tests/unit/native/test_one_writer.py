"""A ring has one writer: the second is refused, however the first one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forking import forks
from tensor_pool import _native, errors

WRITER = """
import signal, sys
from tensor_pool import _native
directory = sys.argv[1]
address = _native.RingAddress(stream_id=10_000, epoch=5, nslots=8,
    header_uri=f"shm:file?path={directory}/header.ring",
    pools=[(1, 4096, f"shm:file?path={directory}/1.pool")])
writer = _native.RingWriter(address, base_dirs=[directory])
writer.publish(b"theirs")
print("writing", flush=True)
signal.pause()
"""


@contextmanager
def other_writer(ring) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes to the ring, until it is killed."""
    command = [sys.executable, "-c", WRITER, str(ring.directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "writing\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_writer_of_this_process_is_refused(make_ring):
    ring = make_ring()
    first = ring.writer()
    with pytest.raises(errors.RegionError, match=rf"has a writer already: process {os.getpid()}") as refused:
        ring.writer()
    assert "one writer" in refused.value.hint
    assert first.publish(b"x") == 0, "the first one is not disturbed"
    first.close()
    assert ring.writer().next_seq == 1


def test_another_process_is_named_and_its_death_frees_the_ring(make_ring):
    ring = make_ring()
    with other_writer(ring) as process:
        with pytest.raises(errors.RegionError, match=f"process {process.pid}"):
            ring.writer()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert ring.writer().next_seq == 1


def test_readers_and_keepers_neither_take_nor_lose_it(make_ring):
    ring = make_ring()
    others = [
        ring.reader(),
        ring.reader("copy"),
        _native.RingKeeper(ring.address, base_dirs=[ring.directory]),
    ]
    writer = ring.writer()
    others.append(ring.reader())
    for other in others:
        other.close()
    with pytest.raises(errors.RegionError, match="writer already"):
        ring.writer()
    assert writer.publish(b"x") == 0


def test_a_claim_that_outlives_its_writer_does_not_keep_the_ring(make_ring):
    ring = make_ring()
    writer = ring.writer()
    writer.publish(b"x")
    slot = writer.claim((4,), 1)
    array = slot.array
    writer.close()
    assert ring.writer().next_seq == 2
    assert array.shape == (4,)


@forks
def test_a_forked_child_neither_releases_nor_keeps_it(make_ring):
    ring = make_ring()
    writer = ring.writer()
    child = os.fork()
    if child == 0:
        del writer
        time.sleep(3600)
    try:
        with pytest.raises(errors.RegionError, match="writer already"):
            ring.writer()
        writer.close()
        assert ring.writer().next_seq == 0, "though the child still has the file open"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

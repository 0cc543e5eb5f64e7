"""Costs of the ring, the codecs and the import, as ratios or differences within this one run.

Run with ``make bench``. Times of two things are compared by interleaving them, pair by pair, and taking
medians, because the machine's speed changes from second to second.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
import subprocess
import sys
import timeit
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
from results import KIB, MIB, Results, label, progress

from tensor_pool import _native, wire
from tensor_pool.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COPY_SIZES = [4 * KIB, 64 * KIB, 640 * KIB, MIB, 8 * MIB, 64 * MIB]
LARGE_SIZES = [8 * MIB, 32 * MIB, 64 * MIB]
RING_BYTES = 512 * MIB


class Pair:
    """A ring, and plain shared memory of the same footprint for the bare copy beside it."""

    def __init__(self, size: int) -> None:
        self.nslots = max(4, min(256, 1 << (RING_BYTES // size).bit_length() - 1))
        self.size = size
        self.directory = TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-bench-")
        stride = 1 << (size - 1).bit_length()
        address = _native.create_ring(
            self.directory.name, stream_id=1, epoch=1, nslots=self.nslots, pools=[(1, stride)]
        )
        self.writer = _native.RingWriter(address, base_dirs=[self.directory.name])
        self.reader = _native.RingReader(address, base_dirs=[self.directory.name])
        self.writer.prefault()
        self.plain = mmap.mmap(-1, self.nslots * stride)
        self.plain_address = ctypes.addressof(ctypes.c_char.from_buffer(self.plain))
        ctypes.memset(self.plain_address, 1, self.nslots * stride)
        self.stride = stride
        self.source = np.ones(size, "u1")
        self.target = np.ones(size, "u1")

    def plain_slot(self, n: int) -> int:
        """Address of slot `n` in the plain memory."""
        return self.plain_address + n % self.nslots * self.stride

    def close(self) -> None:
        """Gives the memory back."""
        self.reader.close()
        self.writer.close()
        self.directory.cleanup()


def rounds(size: int) -> range:
    """How often to measure: enough for a stable median, not longer than a few seconds."""
    return range(max(60, min(4000, (4 << 30) // size)))


def interleaved(
    size: int, ours: Callable[[int], object], bare: Callable[[int], object]
) -> tuple[float, float]:
    """Median times of both in microseconds."""
    times: tuple[list[int], list[int]] = ([], [])
    for n in rounds(size):
        # Which goes first alternates, so that neither always finds the cache as the other left it.
        for which in (0, 1) if n % 2 else (1, 0):
            call = (ours, bare)[which]
            start = perf_counter_ns()
            call(n)
            times[which].append(perf_counter_ns() - start)
    return statistics.median(times[0]) / 1000, statistics.median(times[1]) / 1000


def measure_copies(results: Results) -> None:
    """Publish by copy and validated copy read against memcpy of the same bytes and footprint."""
    for size in sorted({*COPY_SIZES, *LARGE_SIZES}):
        progress(f"copies of {label(size)}")
        pair = Pair(size)
        source, target = pair.source.ctypes.data, pair.target.ctypes.data
        ours, bare = interleaved(
            size,
            lambda _n, pair=pair: pair.writer.publish(pair.source),
            lambda n, pair=pair, source=source: ctypes.memmove(pair.plain_slot(n), source, pair.size),
        )
        if size in COPY_SIZES:
            results.add(f"publish {label(size)}, beyond memcpy", ours - bare, "us", at_most=2)
        if size in LARGE_SIZES:
            results.add(f"publish {label(size)}, of memcpy's speed", bare / ours, "x", at_least=0.9)
            newest = pair.reader.newest()
            ours, bare = interleaved(
                size,
                lambda n, pair=pair, newest=newest: read(pair, newest - n % pair.nslots),
                lambda n, pair=pair, target=target: ctypes.memmove(target, pair.plain_slot(n), pair.size),
            )
            results.add(f"validated read {label(size)}, of memcpy's speed", bare / ours, "x", at_least=0.9)
        pair.close()


def read(pair: Pair, seq: int) -> None:
    """One validated copy."""
    frame = pair.reader.read(seq)
    assert frame is not None
    assert frame.copy_into(pair.target)


def best_us(call: Callable[[], object], number: int) -> float:
    """Time of one call in microseconds, best of five series."""
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e6


def measure_calls(results: Results) -> None:
    """What one call from Python costs."""
    progress("single calls")
    with TemporaryDirectory(dir="/dev/shm") as directory:
        address = _native.create_ring(directory, stream_id=1, epoch=1, nslots=1024, pools=[(1, 64)])
        writer = _native.RingWriter(address, base_dirs=[directory])
        reader = _native.RingReader(address, base_dirs=[directory])
        writer.prefault()
        array = np.zeros(64, "u1")

        def claim_and_commit() -> None:
            writer.claim((64,), 1).commit()

        results.add("publish 64 bytes", best_us(lambda: writer.publish(array), 100_000), "us", at_most=1.5)
        frames = 1e6 / best_us(claim_and_commit, 100_000)
        results.add("claim and commit", frames, "frames/s", at_least=500_000)
        reader.seek(writer.next_seq)
        results.add("empty poll", best_us(reader.poll, 500_000), "us", at_most=0.3)
        writer.publish(array)
        frame = reader.poll()
        results.add("frame as NumPy array", best_us(lambda: frame.array, 100_000), "us")


def measure_codecs(results: Results) -> None:
    """Decoding, as seen from Python."""
    progress("codecs")
    pools = tuple(
        messages.PayloadPool(
            pool_id=n, pool_nslots=1024, stride_bytes=1 << 16, region_uri=f"shm:file?path=/dev/shm/{n}.pool"
        )
        for n in (1, 2, 3)
    )
    announce = wire.encode(
        messages.ShmPoolAnnounce(
            stream_id=1,
            producer_id=1,
            epoch=1,
            announce_timestamp_ns=1,
            announce_clock_domain=messages.ClockDomain.MONOTONIC,
            layout_version=1,
            header_nslots=1024,
            header_slot_bytes=256,
            payload_pools=pools,
            header_region_uri="shm:file?path=/dev/shm/header.ring",
        )
    )
    results.add(
        "decode announce with 3 pools", best_us(lambda: wire.decode(announce), 50_000), "us", at_most=6
    )
    descriptor = _native.FrameDescriptor(stream_id=1, epoch=1, seq=1).encode()
    decode = _native.FrameDescriptor.decode
    results.add("decode descriptor (Rust)", best_us(lambda: decode(descriptor), 500_000), "us", at_most=0.2)


def import_times(statement: str) -> Iterator[float]:
    """Milliseconds that `statement` takes after NumPy is there, in fresh processes."""
    code = (
        "import time, numpy; start = time.perf_counter(); "
        f"{statement}; print((time.perf_counter() - start) * 1000)"
    )
    for _ in range(9):
        yield float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def measure_import(results: Results) -> None:
    """What `import tensor_pool` adds to `import numpy`."""
    progress("import")
    results.add("import tensor_pool, beyond numpy", min(import_times("import tensor_pool")), "ms", at_most=25)
    everything = "import tensor_pool._native, tensor_pool.wire, tensor_pool.transport, tensor_pool.config"
    results.add("import of all that the core has, beyond numpy", min(import_times(everything)), "ms")


def main() -> int:
    """Measures everything."""
    results = Results(Path(__file__).stem)
    measure_calls(results)
    measure_codecs(results)
    measure_import(results)
    measure_copies(results)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

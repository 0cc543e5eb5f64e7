"""One registry that hears of many drivers: how long queries take, and what it costs to know so much.

The drivers' announces come from one process over UDP, as twenty publications with fifty streams each; the
registry and who asks it are processes of their own.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from line_chart import LineChart
from results import MIB, Results, progress, save

from tensor_pool.pool.discovering import DiscoveryClient, ProviderAddress
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.testing import Process

DRIVERS: Final = 20
STREAMS: Final = (1, 5, 15, 50)
"""Of each driver."""
QUERIES: Final = {"by name": 1_000, "by tag": 1_000, "everything": 60}

ANNOUNCES: Final = """
    from tensor_pool.transport import AeronClient
    from tensor_pool.wire import encode
    from tensor_pool.wire.messages import *

    PATH = "shm:file?path=/dev/shm/tensorpool-lab/default"

    def messages(driver, n):
        uri = f"{PATH}/{n}/5/header.ring"
        pool = PayloadPool(1, 64, 1 << 20, f"{PATH}/{n}/5/1.pool")
        clock = ClockDomain.MONOTONIC
        yield ShmPoolAnnounce(n, 7, 5, time.monotonic_ns(), clock, 1, 64, 256, (pool,), uri)
        yield DataSourceAnnounce(n, 7, 5, 1, f"camera-{driver}-{n}", "uint8 480x640 row")
        tags = f"camera,place-{n}".encode()
        yield DataSourceMeta(n, 1, 0, (MetaAttribute("tags", "text/plain", tags),))

    def rounds(driver, publication, count):
        while True:
            who = DriverAnnounce(0, 1000, 1000, f"driver-{driver}", "aeron:ipc", f"host-{driver}")
            publication.offer(encode(who))
            for n in range(count):
                for message in messages(driver, n):
                    publication.offer(encode(message))
                yield

    client = AeronClient.connect(config.aeron.dir)
    feeds = [client.add_publication(CHANNEL, 7001) for _ in range(DRIVERS)]
    print("ready")
    turns = [rounds(driver, feed, COUNT) for driver, feed in enumerate(feeds)]
    while True:
        due = time.monotonic() + 1 / COUNT
        for turn in turns:
            next(turn)
        time.sleep(max(0, due - time.monotonic()))
"""
"""Says everything once a second, evenly."""


def free_channel() -> str:
    """A UDP address on loopback that nobody uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"aeron:udp?endpoint=127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def registry(cluster: Cluster, count: int) -> Iterator[tuple[DiscoveryClient, Process]]:
    """A registry that knows so many streams of each driver, and a client of it."""
    feed, queries = free_channel(), free_channel()
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(f'[discovery]\nchannel = "{queries}"\n[[discovery.sources]]\nchannel = "{feed}"\n')
        file.flush()
        process = cluster.start("discovery", "run", f"--config={file.name}")
        process.read_line()
    names = f"CHANNEL, DRIVERS, COUNT = {feed!r}, {DRIVERS}, {count}\n"
    telling = cluster.run_python(names + ANNOUNCES.replace("\n    ", "\n"), driver=False)
    telling.read_line()
    with (
        AeronClient.connect(cluster.aeron_dir) as client,
        DiscoveryClient(client, [ProviderAddress(queries, 7000)]) as asking,
    ):
        wait_until(lambda: len(asking.ask().streams) == DRIVERS * count, timeout_s=30)
        yield asking, process
    telling.kill()
    process.terminate()


def percentile_ms(asking: DiscoveryClient, kind: str, count: int) -> tuple[float, float]:
    """Median and 99th percentile of a query, in milliseconds."""
    filters = {"by name": {"name": "camera-7-0"}, "by tag": {"tags": ["place-0"]}, "everything": {}}[kind]
    found = {"by name": 1, "by tag": DRIVERS, "everything": DRIVERS * count}[kind]
    times = []
    for _ in range(QUERIES[kind]):
        started = time.perf_counter()
        search = asking.ask(**filters)
        times.append((time.perf_counter() - started) * 1e3)
        assert len(search.streams) == found, search
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99)]


def memory_mib(process: Process) -> float:
    """What a process holds for itself."""
    status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024 / MIB


def main() -> int:
    """Measures everything and draws it."""
    results = Results(Path(__file__).stem)
    rows: list[list[str]] = []
    curves: dict[str, list[tuple[float, float]]] = {kind: [] for kind in QUERIES}
    last: dict[str, tuple[float, float]] = {}
    for count in STREAMS:
        progress(f"queries among {DRIVERS * count} streams")
        with Cluster(driver=False) as cluster, registry(cluster, count) as (asking, process):
            last = {kind: percentile_ms(asking, kind, count) for kind in QUERIES}
            rows += [
                [f"{DRIVERS * count}, {kind}", f"{p50:.2f}", f"{p99:.2f}", f"{memory_mib(process):.0f}"]
                for kind, (p50, p99) in last.items()
            ]
        for kind, (p50, _) in last.items():
            curves[kind].append((DRIVERS * count, p50))
    results.table(
        f"streams of {DRIVERS} drivers", ["streams, query", "p50, ms", "p99, ms", "registry, MiB"], rows
    )
    results.add("1000 streams, by name: p99", last["by name"][1], "ms", at_most=5)
    results.add("1000 streams, by tag: p99", last["by tag"][1], "ms", at_most=5)
    results.add("1000 streams, everything: p50", last["everything"][0], "ms", at_most=50)
    chart = LineChart("a query to a registry", "streams that it knows", "ms, median", curves)
    print(f"drawn as {save('discovery.svg', chart.svg())}")
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

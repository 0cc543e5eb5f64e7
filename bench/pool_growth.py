"""What more consumers and more streams cost: the producer per frame, the drivers, and each new client."""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from line_chart import LineChart
from results import Results, progress, save

from tensor_pool.testing import Cluster

if TYPE_CHECKING:
    from tensor_pool import Producer

CONSUMERS = [1, 2, 4, 8, 16]
STREAMS = [1, 10, 100, 500]
FRAMES = 150
ROUNDS = 3
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.008
"""Between frames: everybody sleeps again before the next. With a steady pace some would get up for it."""
IDLE_S = 5.0
FRAME = np.zeros(4096, "u1")
ONE_CONSUMER = """
    inp = pool.consumer("growth", wait_s=30)
    print("ready")
    while True:
        inp.poll(timeout=1.0)
"""


def measure_consumers(results: Results) -> list[tuple[float, float]]:
    """The cost of a publish while so many consumers sleep on the doorbell."""
    points: list[tuple[float, float]] = []
    with Cluster() as cluster, cluster.connect() as pool:
        out = pool.producer("growth", max_bytes=FRAME.nbytes, slots=64)
        started = 0
        for count in CONSUMERS:
            progress(f"producer with {count} sleeping consumers")
            new = [cluster.run_python(ONE_CONSUMER) for _ in range(count - started)]
            started = count
            for process in new:
                process.read_line(60)
            points.append((count, min(publish_us(out) for _ in range(ROUNDS))))
    rows = [[f"{count:g}", f"{us:.1f}"] for count, us in points]
    results.table("publish of 4 KiB while consumers sleep", ["consumers", "us a frame, median"], rows)
    cost = dict(points)
    results.add("publish with 16 sleeping consumers / with 2", cost[16] / cost[2], "x", at_most=2)
    return points


def publish_us(out: Producer) -> float:
    """The median of single calls, everybody asleep before each."""
    times, chance = [], random.Random(FRAMES)  # the same pauses each time
    for _ in range(FRAMES):
        time.sleep(chance.uniform(SHORTEST_PAUSE_S, LONGEST_PAUSE_S))
        started = time.perf_counter_ns()
        out.publish(FRAME)
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times) / 1000


@dataclass(frozen=True)
class Load:
    """A driver with so many streams."""

    streams: int
    attach_s: float
    first_ms: float
    """Median of the first tenth of all attaches."""
    last_ms: float
    """Median of the last tenth."""
    publish_us: float
    driver_cpu: float
    media_cpu: float
    client_cpu: float
    driver_mib: float
    shm_mib: float


def measure_streams(streams: int) -> Load:
    """Attaches so many producers, then looks what everybody takes while nothing happens."""
    progress(f"{streams} streams in one driver")
    with Cluster() as cluster, cluster.connect() as pool:
        assert cluster.driver is not None
        # A driver is deaf to attaches for a moment after its start; that is not what is measured.
        pool.producer("first", max_bytes=FRAME.nbytes, slots=8)
        times, producers = [], []
        for number in range(streams):
            started = time.perf_counter()
            producers.append(pool.producer(f"stream-{number}", max_bytes=FRAME.nbytes, slots=8))
            times.append((time.perf_counter() - started) * 1000)
        cost = publish_us(producers[-1])
        time.sleep(1.0)
        pids = [cluster.driver.pid, cluster.media.pid]
        before, own, started = [cpu_s(pid) for pid in pids], time.process_time(), time.monotonic()
        time.sleep(IDLE_S)
        elapsed = time.monotonic() - started
        driver, media = ((cpu_s(pid) - then) / elapsed for pid, then in zip(pids, before, strict=True))
        tenth = max(1, streams // 10)
        return Load(
            streams=streams,
            attach_s=sum(times) / 1000,
            first_ms=statistics.median(times[:tenth]),
            last_ms=statistics.median(times[-tenth:]),
            publish_us=cost,
            driver_cpu=driver * 100,
            media_cpu=media * 100,
            client_cpu=(time.process_time() - own) / elapsed * 100,
            driver_mib=resident_mib(cluster.driver.pid),
            shm_mib=allocated_mib(Path(cluster.directory)),
        )


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process so far, finer than the ticks of /proc/PID/stat."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def resident_mib(pid: int) -> float:
    """Memory of a process that is not shared with its files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def allocated_mib(directory: Path) -> float:
    """What the files of a host really take: most of Aeron's are sparse."""
    return sum(path.stat().st_blocks for path in directory.rglob("*") if path.is_file()) * 512 / (1 << 20)


def report_streams(results: Results, loads: list[Load]) -> None:
    """Table and goals."""
    columns = [
        "streams", "all attached, s", "first attaches, ms", "last, ms", "publish, us", "SHM driver CPU",
        "media driver CPU", "client CPU", "SHM driver, MiB", "files, MiB",
    ]  # fmt: skip
    rows = [
        [
            f"{load.streams}", f"{load.attach_s:.2f}", f"{load.first_ms:.2f}", f"{load.last_ms:.2f}",
            f"{load.publish_us:.1f}", f"{load.driver_cpu:.2f}%", f"{load.media_cpu:.2f}%",
            f"{load.client_cpu:.2f}%", f"{load.driver_mib:.1f}", f"{load.shm_mib:.1f}",
        ]
        for load in loads
    ]  # fmt: skip
    results.table("streams in one driver; CPU while nobody publishes", columns, rows)
    least, most = loads[0], loads[-1]
    results.add("500 attaches, one after the other", most.attach_s, "s", at_most=3)
    results.add("the last 50 of them / the first 50", most.last_ms / most.first_ms, "x", at_most=1.5)
    results.add("SHM driver idle, 1 stream", least.driver_cpu, "% of core", at_most=1)
    results.add("SHM driver idle, 500 streams", most.driver_cpu, "% of core", at_most=5)
    results.add("media driver idle, 500 streams", most.media_cpu, "% of core")
    results.add("publish with 500 streams / with 1", most.publish_us / least.publish_us, "x")


def main() -> int:
    """Measures everything and draws it."""
    results = Results(Path(__file__).stem)
    points = measure_consumers(results)
    loads = [measure_streams(streams) for streams in STREAMS]
    report_streams(results, loads)
    limit = 2 * dict(points)[2]
    charts = {
        "growth-consumers": LineChart(
            "Producer cost of a frame", "sleeping consumers", "us", {"publish 4 KiB": points}, goal=limit
        ),
        "growth-attach": LineChart(
            "One attach", "streams in one driver", "ms, mean",
            {"attach one after the other": [(x.streams, x.attach_s / x.streams * 1000) for x in loads]},
            goal=6,
        ),
        "growth-cpu": LineChart(
            "CPU while nobody publishes", "streams in one driver", "% of a core",
            {
                "SHM driver": [(x.streams, x.driver_cpu) for x in loads],
                "media driver": [(x.streams, x.media_cpu) for x in loads],
                "client with all streams": [(x.streams, x.client_cpu) for x in loads],
            },
            goal=5,
        ),
    }  # fmt: skip
    for name, chart in charts.items():
        print(f"drawn as {save(f'{name}.svg', chart.svg())}")
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

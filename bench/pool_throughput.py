"""How many frames a second reach another process, each of them checked; beside the peers and plain memcpy.

As fast as it goes: a receiver that is behind loses frames (the pool, iceoryx2 with overflow) or holds the
sender up (ZeroMQ). Only what was received and found whole counts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from links.pairs import best_of
from links.plan import LinkPlan, LinkReport, peers_installed
from results import KIB, MIB, Results, label, progress

from tensor_pool.testing import Cluster

if TYPE_CHECKING:
    from tensor_pool import Producer

ROUNDS = 3
FINAL_ROUNDS = 6
"""Of the fastest two: a host that moves one of two processes to another cache slows a round down fivefold."""
BEYOND_THE_CACHE = 8 * MIB
"""Of the few buffers that iceoryx2 uses in turn two or three don't fit into most caches either."""
SIZES = [64 * KIB, 640 * KIB, MIB, BEYOND_THE_CACHE]
FOOTPRINT = 256 * MIB
"""Of a large ring: beyond the last cache of most machines."""
SMALL_RING = 16
OTHER_RINGS = {MIB: [4, 8, 64], BEYOND_THE_CACHE: [4, 8]}
"""Fewer buffers stay in a smaller cache, more leave room for a receiver that is slower than its sender."""
JUDGED = ("pool", "iceoryx2")
LARGE = "256 MiB"
PLAIN = f"plain memcpy at both ends, {LARGE}"
LATENCY = {"client.wake_profile": "latency"}
FIRST_FRAMES = 64
JULIA = "Julia reference, as published, its authors' machine: 20,145 frames/s, 12.3 GiB/s"
GIB = 1 << 30
COLUMNS = ["received and whole", "frames/s", "GiB/s", "lost", "us CPU to send", "to receive"]


def slots_of(size: int) -> int:
    """As many slots as make the large footprint; their number and size are powers of two."""
    return max(8, min(1024, FOOTPRINT // (1 << (size - 1).bit_length())))


def is_judged(size: int, *, copy: bool) -> bool:
    """Is there a goal for frames of this size?"""
    return size == MIB or (copy and size == BEYOND_THE_CACHE)


def candidates(size: int, *, copy: bool) -> dict[str, LinkPlan]:
    """Who is compared: each with the same numbers of buffers, asleep and awake while it waits."""
    shared = {"copy": copy, "frame_bytes": size, "seconds": 1.0}
    few = sorted([SMALL_RING, *(OTHER_RINGS[size] if is_judged(size, copy=copy) else [])])
    buffers = {**{f"{slots} slots": slots for slots in few}, LARGE: slots_of(size)}
    plans: dict[str, LinkPlan] = {}
    for name, slots in buffers.items():
        plans[f"pool, {name}"] = LinkPlan(link="pool", slots=slots, **shared)
        plans[f"pool, {name}, latency"] = LinkPlan(link="pool", slots=slots, settings=LATENCY, **shared)
    if peers_installed():
        for name, slots in buffers.items():
            plans[f"iceoryx2, {name}"] = LinkPlan(link="iceoryx2", slots=slots, **shared)
            plans[f"iceoryx2, {name}, spinning"] = LinkPlan(
                link="iceoryx2", wait="spin", slots=slots, **shared
            )
        if copy:
            plans["ZeroMQ, ipc"] = LinkPlan(link="zmq", slots=SMALL_RING, **shared)
    if copy:
        plans[PLAIN] = LinkPlan(link="plain", slots=slots_of(size), **shared)
    return plans


def memcpy(size: int, slots: int, *, seconds: float = 0.5) -> float:
    """Copies a second by one core alone, one buffer into many in turn."""
    source, target = np.ones(size, "u1"), np.ones((slots, size), "u1")
    copies, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        np.copyto(target[copies % slots], source)
        copies += 1
    return copies / elapsed


def fastest(reports: dict[str, LinkReport], link: str) -> str | None:
    """Of all ways to use a link the one that moved most frames; none if it isn't installed."""
    names = [name for name in reports if name.startswith(link)]
    return max(names, key=lambda name: reports[name].frames_per_s, default=None)


def run_rounds(size: int, *, copy: bool, rounds: int) -> dict[str, LinkReport]:
    """The best round of each; where there is a goal, those two that it is about run more often."""
    plans = candidates(size, copy=copy)
    reports = best_of(plans, rounds, better=_slowness)
    if not is_judged(size, copy=copy):
        return reports
    finalists = {name: plans[name] for link in JUDGED if (name := fastest(reports, link)) is not None}
    return best_of(finalists, FINAL_ROUNDS, better=_slowness, earlier=reports)


def _slowness(report: LinkReport) -> float:
    return -report.frames_per_s


def measure(results: Results, size: int, *, copy: bool) -> dict[str, LinkReport]:
    """One table: the best round of each."""
    title = f"{label(size)}, {'copy in, copy out' if copy else 'loan'}"
    progress(title)
    rounds = ROUNDS if is_judged(size, copy=copy) else 1
    reports = run_rounds(size, copy=copy, rounds=rounds)
    rows = [row(name, report.frames_per_s, size, report) for name, report in reports.items()]
    if copy:
        alone = max(memcpy(size, slots_of(size)) for _ in range(rounds))
        rows.append(row(f"memcpy of one core alone, {LARGE}", alone, size))
        if size == MIB:
            # By CPU time: it is the same whether the other end is slower or faster.
            plain, large = reports[PLAIN], reports[f"pool, {LARGE}"]
            of_memcpy = "of memcpy's speed (CPU time)"
            publish, read = plain.send_cpu_us / large.send_cpu_us, plain.receive_cpu_us / large.receive_cpu_us
            frames = large.frames_per_s / plain.frames_per_s
            results.add(f"1 MiB, {LARGE} ring: frames/s of memcpy at both ends", frames, "x", at_least=0.9)
            results.add(f"1 MiB, {LARGE} ring: publish, {of_memcpy}", publish, "x", at_least=0.9)
            results.add(f"1 MiB, {LARGE} ring: read, {of_memcpy}", read, "x", at_least=0.9)
    if size == 640 * KIB:
        title += f"\n  ({JULIA})"
    results.table(title, COLUMNS, rows)
    return reports


def row(name: str, frames_per_s: float, size: int, report: LinkReport | None = None) -> list[str]:
    """A line of a table."""
    cells = [name, f"{frames_per_s:,.0f}", f"{frames_per_s * size / GIB:.2f}"]
    if report is None:
        return [*cells, "", "", ""]
    return [*cells, f"{report.lost:,}", f"{report.send_cpu_us:.1f}", f"{report.receive_cpu_us:.1f}"]


def judge(results: Results, reports: dict[str, LinkReport], size: int, *, copy: bool) -> None:
    """The goals: the best of one beside the best of the other."""
    ours, peer = (fastest(reports, link) for link in JUDGED)
    if ours is None or peer is None:
        return
    ratio = reports[ours].frames_per_s / reports[peer].frames_per_s
    what = f"{label(size)} {'copy' if copy else 'loan'}"
    results.add(f"{what}, frames/s: pool / iceoryx2", ratio, "x", at_least=1.0 if copy else 1.3)
    if not copy:
        other, own = reports[f"iceoryx2, {SMALL_RING} slots"], reports[f"pool, {LARGE}"]
        results.add(f"{what}, CPU time to send: iceoryx2 / pool", other.send_cpu_us / own.send_cpu_us, "x")
        results.add(
            f"{what}, CPU time to receive: iceoryx2 / pool", other.receive_cpu_us / own.receive_cpu_us, "x"
        )


def measure_first_touch(results: Results) -> None:
    """What the first frames of a fresh ring cost, against later ones that go through the same memory."""
    progress("first frames of a fresh ring")
    source = np.ones(MIB, "u1")
    first, later, fresh = [], [], []
    with Cluster() as cluster, cluster.connect() as pool:
        for n in range(3):
            with pool.producer(f"first-{n}", max_bytes=MIB, slots=FIRST_FRAMES) as out:
                first.append(_publish_us(out, source))
                later.append(min(_publish_us(out, source) for _ in range(3)))
            fresh.append(_fresh_memory_us(source))
    ratio = min(one / other for one, other in zip(first, later, strict=True))
    results.add("first 64 frames of 1 MiB, each", min(first), "us")
    results.add("later frames, each", min(later), "us")
    results.add("copy into memory that nobody touched", min(fresh), "us")
    results.add("first frames / later frames", ratio, "x", at_most=1.5)


def _publish_us(out: Producer, source: np.ndarray) -> float:
    started = time.perf_counter_ns()
    for _ in range(FIRST_FRAMES):
        out.publish(source)
    return (time.perf_counter_ns() - started) / FIRST_FRAMES / 1000


def _fresh_memory_us(source: np.ndarray) -> float:
    """The same copies into shared memory that nobody touched: what `prefault` saves the first frames."""
    with Path("/dev/shm").joinpath(f"tensor-pool-bench-{time.monotonic_ns()}").open("x+b") as file:
        Path(file.name).unlink()
        file.truncate(FIRST_FRAMES * MIB)
        slots = np.memmap(file, "u1", "r+", shape=(FIRST_FRAMES, MIB))
        started = time.perf_counter_ns()
        for slot in slots:
            np.copyto(slot, source)
        return (time.perf_counter_ns() - started) / FIRST_FRAMES / 1000


def main() -> int:
    """Measures everything."""
    results = Results(Path(__file__).stem)
    if not peers_installed():
        print("iceoryx2 and pyzmq are not installed: measuring without them", file=sys.stderr)
    for copy in (False, True):
        for size in SIZES:
            reports = measure(results, size, copy=copy)
            if is_judged(size, copy=copy):
                judge(results, reports, size, copy=copy)
    measure_first_touch(results)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

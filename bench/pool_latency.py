"""How long a frame is under way between two processes, and what waiting for it costs; beside the peers.

Both ends are ordinary Python. The time counts from before the sender asks for memory until the receiver has
read the stamp from a NumPy array. Frames come at a steady rate, so that the receiver waits for each of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from links.pairs import best_of, run_pair
from links.plan import LinkPlan, LinkReport, peers_installed
from results import KIB, MIB, Results, label, progress

RATES_HZ = [200.0, 1000.0]
"""As cameras come, and as instruments do. Between frames the caches go cold, the more so the fewer come."""
ROUNDS = 6
SIZES = [64 * KIB, 640 * KIB, 8 * MIB]
LATENCY = {"client.wake_profile": "latency"}
IDLE_S = 5.0


def candidates(*, copy: bool, frame_bytes: int, rate_hz: float, seconds: float) -> dict[str, LinkPlan]:
    """Who is compared."""
    shared = {"copy": copy, "frame_bytes": frame_bytes, "rate_hz": rate_hz, "seconds": seconds}
    plans = {
        "pool, balanced": LinkPlan(link="pool", **shared),
        "pool, latency": LinkPlan(link="pool", settings=LATENCY, **shared),
    }
    if peers_installed():
        plans |= {
            "iceoryx2, listener": LinkPlan(link="iceoryx2", **shared),
            "iceoryx2, wait set": LinkPlan(link="iceoryx2", wait="waitset", **shared),
            "iceoryx2, spinning": LinkPlan(link="iceoryx2", wait="spin", **shared),
        }
        if copy:
            plans["ZeroMQ, ipc"] = LinkPlan(link="zmq", **shared)
    return plans


def measure(
    results: Results, *, copy: bool, frame_bytes: int, rate_hz: float, rounds: int
) -> dict[str, LinkReport]:
    """One table: the round with the lowest median of each."""
    kind = "copy in, copy out" if copy else "loan"
    title = f"{label(frame_bytes)}, {kind}, {rate_hz:g} Hz"
    progress(title)
    plans = candidates(copy=copy, frame_bytes=frame_bytes, rate_hz=rate_hz, seconds=1.5)
    reports = best_of(plans, rounds, better=lambda report: report.p50_us)
    columns = ["one way, us", "p50", "p99", "p99.9", "consumer CPU", "lost"]
    results.table(title, columns, [row(name, report) for name, report in reports.items()])
    return reports


def row(name: str, report: LinkReport) -> list[str]:
    """A line of a table."""
    cpu = f"{report.cpu_s / report.seconds:.1%}" if report.seconds else "-"
    times = [f"{us:.1f}" for us in (report.p50_us, report.p99_us, report.p999_us)]
    return [name, *times, cpu, str(report.lost)]


def judge(results: Results, reports: dict[str, LinkReport], *, rate_hz: float) -> None:
    """The goals, for loans of 1 MiB."""
    p50 = {name: report.p50_us for name, report in reports.items()}
    if not peers_installed():
        return
    at = f"1 MiB loan at {rate_hz:g} Hz, p50"
    events = max(p50["iceoryx2, listener"], 0.001)
    results.add(f"{at}: balanced / iceoryx2's events", p50["pool, balanced"] / events, "x", at_most=0.5)
    results.add(
        f"{at}: balanced / iceoryx2's wait set", p50["pool, balanced"] / p50["iceoryx2, wait set"], "x"
    )
    spinning = p50["iceoryx2, spinning"]
    results.add(
        f"{at}: latency profile / iceoryx2 spinning", p50["pool, latency"] / spinning, "x", at_most=1.0
    )


def measure_idle(results: Results) -> None:
    """What a consumer takes while nothing comes."""
    for profile in ("latency", "balanced", "eco"):
        progress(f"idle consumer, {profile}")
        plan = LinkPlan(
            link="pool", settings={"client.wake_profile": profile}, idle_s=IDLE_S, rate_hz=200.0, seconds=0.2
        )
        cpu = min(run_pair(plan).idle_cpu for _ in range(2))
        results.add(f"idle consumer, profile {profile}", cpu * 100, "% of core", at_most=1.0)
    if peers_installed():
        report = run_pair(LinkPlan(link="iceoryx2", idle_s=IDLE_S, rate_hz=200.0, seconds=0.2))
        results.add("idle consumer, iceoryx2's listener", report.idle_cpu * 100, "% of core")


def main() -> int:
    """Measures everything."""
    results = Results(Path(__file__).stem)
    if not peers_installed():
        print("iceoryx2 and pyzmq are not installed: measuring without them", file=sys.stderr)
    for rate_hz in RATES_HZ:
        judge(
            results,
            measure(results, copy=False, frame_bytes=MIB, rate_hz=rate_hz, rounds=ROUNDS),
            rate_hz=rate_hz,
        )
    measure(results, copy=True, frame_bytes=MIB, rate_hz=200.0, rounds=2)
    for size in SIZES:
        measure(results, copy=False, frame_bytes=size, rate_hz=200.0, rounds=1)
    measure_idle(results)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

"""How long a frame is under way between two processes, and what waiting for it costs; beside the peers.

Both ends are ordinary Python. The time counts from before the sender asks for memory until the receiver has
read the stamp from a NumPy array. Frames come at a steady rate, so that the receiver waits for each of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from links.pairs import in_rounds, run_pair
from links.plan import LinkPlan, LinkReport, peers_installed
from results import KIB, MIB, Results, label, progress

if TYPE_CHECKING:
    from collections.abc import Callable

RATES_HZ = [200.0, 1000.0]
"""As cameras come, and as instruments do. Between frames the caches go cold, the more so the fewer come."""
ROUNDS = 7
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
) -> dict[str, list[LinkReport]]:
    """One table: of each candidate the round with the middle p50.

    Returns:
        All rounds of each, from the lowest p50 to the highest.
    """
    kind = "copy in, copy out" if copy else "loan"
    title = f"{label(frame_bytes)}, {kind}, {rate_hz:g} Hz"
    progress(title)
    plans = candidates(copy=copy, frame_bytes=frame_bytes, rate_hz=rate_hz, seconds=1.5)
    reports = in_rounds(plans, rounds)
    for of_plan in reports.values():
        of_plan.sort(key=lambda report: report.p50_us)
    columns = ["one way, us", "p50", "p99", "p99.9", "consumer CPU", "lost"]
    results.table(title, columns, [row(name, typical(of_plan)) for name, of_plan in reports.items()])
    return reports


def typical(ordered: list[LinkReport]) -> LinkReport:
    """What a user may expect. Which cores two processes get, and what the host does, is luck."""
    return ordered[len(ordered) // 2]


def luckiest(ordered: list[LinkReport]) -> LinkReport:
    """The round with the lowest p50."""
    return ordered[0]


def row(name: str, report: LinkReport) -> list[str]:
    """A line of a table."""
    cpu = f"{report.cpu_s / report.seconds:.1%}" if report.seconds else "-"
    times = [f"{us:.1f}" for us in (report.p50_us, report.p99_us, report.p999_us)]
    return [name, *times, cpu, str(report.lost)]


def judge(results: Results, reports: dict[str, list[LinkReport]], *, rate_hz: float) -> None:
    """The goals, for loans of 1 MiB."""
    if not peers_installed():
        return
    at = f"1 MiB loan at {rate_hz:g} Hz, p50"

    def ratio(ours: str, theirs: str, pick: Callable[[list[LinkReport]], LinkReport]) -> float:
        return pick(reports[ours]).p50_us / max(pick(reports[theirs]).p50_us, 0.001)

    for ours, theirs, goal in [
        ("pool, balanced", "iceoryx2, listener", 0.5),
        ("pool, balanced", "iceoryx2, wait set", None),
        ("pool, latency", "iceoryx2, spinning", 1.0),
    ]:
        results.add(f"{at}: {ours} / {theirs}", ratio(ours, theirs, typical), "x", at_most=goal)
        results.add(f"{at}: the same, luckiest rounds", ratio(ours, theirs, luckiest), "x")


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

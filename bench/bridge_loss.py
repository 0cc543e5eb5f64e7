"""Frames that arrive over a link that loses packets: Aeron asks for them again, the bridge waits so long.

A camera on loopback; its media driver drops a part of all UDP messages, those that ask again included. Every
frame is counted by itself: published and arrived whole, or not.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from line_chart import LineChart
from results import KIB, Results, label, progress, save
from streams.pairs import run_pair
from streams.plan import PairReport, StreamPlan

FRAME_BYTES: Final = 640 * KIB
RATE_HZ: Final = 30.0
FRAMES: Final = 190
SETTLE_S: Final = 2.0
"""After the last frame: eight times the assembly time-out."""
LOSSES: Final = (0.0, 0.001, 0.01, 0.05, 0.2)
GOALS: Final = {0.01: 0.99, 0.05: 0.9}
MTUS: Final = (8192, 1408)
COLUMNS: Final = ["lost packets", "frames", "arrived", "p50, ms", "p99, ms", "not sent", "given up"]


def measure(mtu: int, loss: float) -> PairReport:
    """Sends some hundred frames over a link that loses a part of them."""
    progress(f"packets of {mtu} bytes, {loss:.1%} of them lost")
    return run_pair(
        StreamPlan(
            way="bridge",
            frame_bytes=FRAME_BYTES,
            mtu=mtu,
            rate_hz=RATE_HZ,
            frames=FRAMES,
            loss=loss,
            seconds=FRAMES / RATE_HZ + SETTLE_S,
            warm_up_s=0.5,
        )
    )


def arrived(report: PairReport) -> float:
    """The part of the frames that arrived."""
    return report.received.frames / report.sent.frames


def row(loss: float, report: PairReport) -> list[str]:
    """A line of a table, with why frames were lost at the sender and at the receiver."""
    return [
        f"{loss:.1%}",
        str(report.sent.frames),
        f"{arrived(report):.1%}",
        f"{report.received.p50_us / 1000:.1f}",
        f"{report.received.p99_us / 1000:.1f}",
        reasons(report.sent.dropped),
        reasons(report.received.dropped),
    ]


def reasons(dropped: dict[str, int]) -> str:
    """Numbers by reason, in one cell."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items())) or "-"


def main() -> int:
    """Measures everything and draws it."""
    results = Results(Path(__file__).stem)
    curves: dict[str, list[tuple[float, float]]] = {}
    for mtu in MTUS:
        found = {loss: measure(mtu, loss) for loss in LOSSES}
        title = f"{label(FRAME_BYTES)} at {RATE_HZ:.0f} Hz, packets of {mtu} bytes"
        results.table(title, COLUMNS, [row(loss, report) for loss, report in found.items()])
        for loss, goal in GOALS.items():
            name = f"frames that arrive, {loss:.0%} loss, packets of {mtu}"
            results.add(name, arrived(found[loss]), "", at_least=goal)
        curves[f"packets of {mtu} bytes"] = [
            (100 * loss, 100 * arrived(report)) for loss, report in found.items()
        ]
    curves["goal"] = [(100 * loss, 100 * goal) for loss, goal in GOALS.items()]
    chart = LineChart(
        f"{label(FRAME_BYTES)} frames at {RATE_HZ:.0f} Hz over a lossy link",
        "lost packets, %",
        "frames that arrive, %",
        curves,
        even=True,
    )
    print(f"drawn as {save('bridge-loss.svg', chart.svg())}")
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())

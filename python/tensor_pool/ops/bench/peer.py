"""One of a benchmark's two processes: ``python -m tensor_pool.ops.bench.peer producer|consumer PLAN``.

It says what it does as JSON lines on standard output, and ends when its standard input does.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from tensor_pool.config import load_config
from tensor_pool.errors import TensorPoolError
from tensor_pool.host.connection import connect
from tensor_pool.ops.bench.plan import STREAM, BenchPlan, PeerReport
from tensor_pool.runtime import Histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.producer import Producer

__all__ = ["hear", "main", "say", "wait_until_ns"]

_PATIENCE_S: Final = 20.0
_SPIN_NS: Final = 100_000
"""Before a frame is due its time is waited for without sleeping."""
_SECOND_NS: Final = 1_000_000_000


def main(arguments: list[str]) -> None:
    """Runs a process of the plan."""
    role, text = arguments
    plan = msgspec.json.decode(text, type=BenchPlan)
    try:
        config = load_config(Path(plan.config_file), environ={}, search=False)
        with connect(config=config, name=f"bench {role}") as pool:
            if role == "producer":
                _produce(pool, plan)
            else:
                _consume(pool)
    except TensorPoolError as e:
        say(PeerReport(role=role, event="failed", error=e.message, hint=e.hint))


def say(report: msgspec.Struct) -> None:
    """Tells the parent something, as a line of JSON; a parent that is gone ends this process too."""
    try:
        os.write(sys.stdout.fileno(), msgspec.json.encode(report) + b"\n")
    except BrokenPipeError:
        raise SystemExit(1) from None


def hear(timeout_s: float) -> str:
    """A line of the parent's, or nothing; the end of it ends this process too."""
    if not select.select([sys.stdin], [], [], timeout_s)[0]:
        return ""
    data = os.read(sys.stdin.fileno(), 4096)
    if not data:
        raise SystemExit(1)
    return data.decode().strip()


def wait_until_ns(due_ns: int) -> None:
    """Sleeps, then spins: sleeps end when they like."""
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > _SPIN_NS:
        time.sleep((left_ns - _SPIN_NS) / _SECOND_NS)
    while time.monotonic_ns() < due_ns:
        pass


def _produce(pool: Pool, plan: BenchPlan) -> None:
    with pool.producer(STREAM, max_bytes=plan.frame_bytes, slots=plan.slots) as out:
        frame = np.ones(plan.frame_bytes, np.uint8)
        for _ in range(plan.slots):  # everything is touched once before it counts
            out.publish(frame)
        say(PeerReport(role="producer", event="ready"))
        while hear(_PATIENCE_S) != "go":
            pass
        cpu, started_ns = time.process_time(), time.monotonic_ns()
        frames = _publish(out, frame, plan, started_ns)
        seconds = (time.monotonic_ns() - started_ns) / 1e9
        cpu = time.process_time() - cpu
        say(PeerReport(role="producer", event="done", frames=frames, seconds=seconds, cpu_seconds=cpu))
        hear(_PATIENCE_S)  # the stream stays until the consumer has read the last frame


def _publish(out: Producer, frame: NDArray[np.uint8], plan: BenchPlan, started_ns: int) -> int:
    end_ns = started_ns + round(plan.seconds * _SECOND_NS)
    period_ns = 0 if plan.rate_hz is None else round(_SECOND_NS / plan.rate_hz)
    frames, due_ns = 0, started_ns
    while (now_ns := time.monotonic_ns()) < end_ns:
        if now_ns < due_ns:
            wait_until_ns(due_ns)
            continue
        if plan.loan:
            with out.claim(frame.shape, np.uint8, timestamp_ns=time.monotonic_ns()):
                pass
        else:
            out.publish(frame, timestamp_ns=time.monotonic_ns())
        frames += 1
        due_ns = max(due_ns + period_ns, now_ns - _SECOND_NS)  # what was missed for long is not made up for
    return frames


def _consume(pool: Pool) -> None:
    delays = Histogram()
    with pool.consumer(STREAM, wait_s=_PATIENCE_S, max_outstanding_seq_gap=0) as inp:
        inp.latest()
        say(PeerReport(role="consumer", event="ready"))
        cpu = time.process_time()
        first_ns = last_ns = 0
        first_seq = last_seq = -1
        frames = 0
        told_ns = time.monotonic_ns()
        while True:
            frame = inp.poll(timeout=0.1)
            now_ns = time.monotonic_ns()
            if frame is not None:
                delays.record(now_ns - frame.timestamp_ns)
                frames += 1
                if first_seq < 0:
                    first_seq, first_ns = frame.seq, now_ns
                last_seq, last_ns = frame.seq, now_ns
            if now_ns - told_ns >= _SECOND_NS:
                told_ns = now_ns
                say(_report("progress", delays, frames, (now_ns - first_ns) / 1e9 if frames else 0.0))
            # Only when there is nothing left to read: then the producer's end is ours.
            if frame is None and hear(0.0) == "stop":
                break
        report = _report("done", delays, frames, (last_ns - first_ns) / 1e9)
        missed = last_seq - first_seq + 1 - frames if frames else 0
        say(msgspec.structs.replace(report, cpu_seconds=time.process_time() - cpu, missed=missed))


def _report(event: str, delays: Histogram, frames: int, seconds: float) -> PeerReport:
    found = delays.summary()
    us = [
        round(ns / 1e3, 1) if frames else None
        for ns in (found.min_ns, found.p50_ns, found.p99_ns, found.p999_ns, found.max_ns)
    ]
    return PeerReport(
        role="consumer",
        event=event,
        frames=frames,
        seconds=seconds,
        min_us=us[0],
        p50_us=us[1],
        p99_us=us[2],
        p999_us=us[3],
        max_us=us[4],
    )


if __name__ == "__main__":
    main(sys.argv[1:])

"""One end of the bridge's benchmark: ``python -m tensor_pool.ops.bench.bridge_peer sender|receiver PLAN``.

It says what it does as JSON lines on standard output, and ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from tensor_pool.config import load_config
from tensor_pool.errors import FrameOverwrittenError, TensorPoolError
from tensor_pool.host.bridge import BridgeService
from tensor_pool.host.connection import connect
from tensor_pool.ops.bench.bridge_plan import DEST, PHASES, SOURCE, BridgePlan, EndReport, PhaseReport
from tensor_pool.ops.bench.peer import hear, say, wait_until_ns
from tensor_pool.runtime import Histogram

if TYPE_CHECKING:
    from tensor_pool.pool.frame import Frame
    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.producer import Producer

__all__ = ["main"]

_PATIENCE_S: Final = 20.0
_TOLD_NS: Final = 200_000_000
_QUIET_NS: Final = 400_000_000
"""Without a frame for so long, longer than frames may take, nothing more comes."""
_PAUSE_S: Final = 0.0002
_MOST_AHEAD: Final = 32
"""Consumers that are hundreds of frames behind jump to the newest, and so does a bridge."""
_SECOND_NS: Final = 1_000_000_000


def main(arguments: list[str]) -> None:
    """Runs an end of the plan."""
    role, text = arguments
    plan = msgspec.json.decode(text, type=BridgePlan)
    try:
        role_of_bridge = {"bridge.role": role}
        config = load_config(Path(plan.config_file), overrides=role_of_bridge, environ={}, search=False)
        with connect(config=config, name=f"bench {role}") as pool, BridgeService(config) as bridge:
            if role == "sender":
                _send(pool, bridge, plan)
            else:
                _receive(pool, bridge)
    except TensorPoolError as e:
        say(EndReport(role=role, event="failed", error=e.message, hint=e.hint))


def _send(pool: Pool, bridge: BridgeService, plan: BridgePlan) -> None:
    with pool.producer(SOURCE, max_bytes=plan.frame_bytes, slots=plan.slots) as out:
        for _ in range(plan.slots):  # everything is touched once before it counts
            _publish(out, plan, 0)
        say(EndReport(role="sender", event="ready"))
        while hear(_PATIENCE_S) != "go":
            pass
        _settle(bridge)
        cpu, lost_before = time.process_time(), _unsent(bridge)
        phases = {"fast": _send_fast(out, bridge, plan), "steady": _send_steady(out, plan)}
        say(
            EndReport(
                role="sender",
                event="done",
                phases=phases,
                lost={why: count - lost_before.get(why, 0) for why, count in _unsent(bridge).items()},
                cpu_seconds=time.process_time() - cpu,
            )
        )
        hear(_PATIENCE_S)  # the stream stays until the receiver has read the last frame


def _publish(out: Producer, plan: BridgePlan, phase: int) -> None:
    now_ns = time.monotonic_ns()
    with out.claim((plan.frame_bytes,), np.uint8, timestamp_ns=now_ns) as slot:
        slot.array[0] = phase


def _send_fast(out: Producer, bridge: BridgeService, plan: BridgePlan) -> PhaseReport:
    """Stays at most half a ring ahead of the bridge: then none is lost here."""
    look_every = min(plan.slots // 4, _MOST_AHEAD)
    started_ns, before, frames = time.monotonic_ns(), _passed(bridge), 0
    end_ns = started_ns + round(plan.seconds * _SECOND_NS)
    while time.monotonic_ns() < end_ns:
        if frames % look_every == 0:
            while frames - (_passed(bridge) - before) > look_every and time.monotonic_ns() < end_ns:
                time.sleep(_PAUSE_S)
        _publish(out, plan, 1)
        frames += 1
    return PhaseReport(frames=frames, seconds=(time.monotonic_ns() - started_ns) / _SECOND_NS)


def _send_steady(out: Producer, plan: BridgePlan) -> PhaseReport:
    time.sleep(_QUIET_NS / 2 / _SECOND_NS)  # frames of the first phase are not what these wait for
    started_ns, frames = time.monotonic_ns(), max(2, round(plan.seconds * plan.rate_hz))
    for number in range(frames):
        wait_until_ns(started_ns + round(number * _SECOND_NS / plan.rate_hz))
        _publish(out, plan, 2)
    return PhaseReport(frames=frames, seconds=(time.monotonic_ns() - started_ns) / _SECOND_NS)


def _settle(bridge: BridgeService) -> None:
    """Waits until what was published so far is sent or dropped: who counts from here on counts right."""
    before = -1
    while before != (now := _passed(bridge)):
        before = now
        time.sleep(_QUIET_NS / 2 / _SECOND_NS)


def _unsent(bridge: BridgeService) -> dict[str, int]:
    sent = bridge.stats[0].sent
    return {} if sent is None else sent.dropped


def _passed(bridge: BridgeService) -> int:
    sent = bridge.stats[0].sent
    return 0 if sent is None else sent.frames + sum(sent.dropped.values())


class _Arrivals:
    """What came of one phase."""

    def __init__(self) -> None:
        self.frames = self._first_ns = self._last_ns = 0
        self._delays = Histogram()

    def add(self, frame: Frame, now_ns: int) -> None:
        self._first_ns = self._first_ns or now_ns
        self._last_ns = now_ns
        self.frames += 1
        self._delays.record(now_ns - frame.timestamp_ns)

    def report(self) -> PhaseReport:
        found = self._delays.summary()
        us = [
            round(ns / 1e3, 1) if self.frames else None for ns in (found.p50_ns, found.p99_ns, found.max_ns)
        ]
        return PhaseReport(
            frames=self.frames,
            seconds=(self._last_ns - self._first_ns) / _SECOND_NS,
            p50_us=us[0],
            p99_us=us[1],
            max_us=us[2],
        )


def _receive(pool: Pool, bridge: BridgeService) -> None:
    arrivals: dict[str, _Arrivals] = {phase: _Arrivals() for phase in PHASES}
    with pool.consumer(DEST, wait_s=_PATIENCE_S, max_outstanding_seq_gap=0) as inp:
        say(EndReport(role="receiver", event="ready"))
        cpu, ends = time.process_time(), False
        told_ns = last_ns = time.monotonic_ns()
        while not (ends and time.monotonic_ns() - last_ns > _QUIET_NS):
            frame = inp.poll(timeout=0.1)
            now_ns = time.monotonic_ns()
            if frame is not None:
                last_ns = now_ns
                with contextlib.suppress(FrameOverwrittenError):  # read too late: one more that is lost
                    if phase := int(frame.array[0]):
                        arrivals[PHASES[phase - 1]].add(frame, now_ns)
            if now_ns - told_ns >= _TOLD_NS:
                told_ns = now_ns
                say(_report("progress", arrivals))
            ends = ends or (frame is None and hear(0.0) == "stop")
        received = bridge.stats[0].received
        done = msgspec.structs.replace(
            _report("done", arrivals),
            cpu_seconds=time.process_time() - cpu,
            lost={} if received is None else received.frames_lost,
        )
        say(done)


def _report(event: str, arrivals: dict[str, _Arrivals]) -> EndReport:
    phases = {phase: seen.report() for phase, seen in arrivals.items()}
    return EndReport(role="receiver", event=event, phases=phases)


if __name__ == "__main__":
    main(sys.argv[1:])

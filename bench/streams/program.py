"""One end of a bridge with who uses it: ``python bench/streams/program.py send|receive PLAN``.

It says ``ready`` when frames can go, then obeys lines on its standard input: ``go``, ``begin``, ``end``
(which reports what happened since ``begin``), and ends with its input; like the bare stream's program.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path[0] = str(Path(__file__).parent.parent)  # so that this folder is a package, as for the benchmarks

import msgspec  # noqa: E402 - the path comes first
import numpy as np  # noqa: E402

import tensor_pool as tp  # noqa: E402
from streams.plan import DEST, SOURCE, EndReport, StreamPlan  # noqa: E402

if TYPE_CHECKING:
    from tensor_pool.host.bridge import BridgeService

_PATIENCE_S: Final = 20.0
_SLICE_S: Final = 0.1
_REST_S: Final = 0.3
_SPIN_NS: Final = 100_000
"""Before a frame is due its time is waited for without sleeping: sleeps end when they like."""
_MOST_AHEAD: Final = 8
_LEAST_AHEAD: Final = 3
"""How many frames a producer without a rate is ahead of the bridge: never so many that some are lost."""
_TOUCHED: Final = 1
"""What is in frames that only touch memory."""


class End:
    """Counts what passes, and reports it."""

    def __init__(self, plan: StreamPlan, pool_threads: set[int]) -> None:
        self.plan = plan
        self._pool_threads = pool_threads
        self.goes = threading.Event()
        self.ends = threading.Event()
        self.frames = 0
        self.delays_ns: list[int] = []
        self._worker = threading.Thread(target=self.work)

    def work(self) -> None:
        """Publishes or reads."""
        raise NotImplementedError

    def user_cpu_s(self) -> float:
        """CPU time of who publishes or reads so far, with the threads of its own connection."""
        assert self._worker.native_id is not None
        return sum(map(cpu_s, self._pool_threads | {self._worker.native_id}))

    def lost(self) -> Counter[str]:
        """What did not pass so far, by reason."""
        return Counter()

    def obey(self) -> None:
        """Does what is said on standard input until that ends."""
        self._worker.start()
        say("ready")
        gc.freeze()
        frames, started, cpu, user_cpu, lost = 0, time.monotonic(), time.process_time(), 0.0, self.lost()
        for line in sys.stdin:
            if line.strip() == "go":
                self.goes.set()
            elif line.strip() == "begin":
                self.delays_ns = []
                frames, lost = self.frames, self.lost()
                started, cpu, user_cpu = time.monotonic(), time.process_time(), self.user_cpu_s()
            else:
                cpu, seconds = time.process_time() - cpu, time.monotonic() - started
                user_cpu = self.user_cpu_s() - user_cpu
                frames, delays = self.frames - frames, sorted(self.delays_ns)
                report = EndReport(
                    frames=frames,
                    nbytes=frames * self.plan.frame_bytes,
                    seconds=seconds,
                    cpu_s=cpu,
                    user_cpu_s=user_cpu,
                    p50_us=percentile(delays, 0.5),
                    p99_us=percentile(delays, 0.99),
                    dropped=dict(self.lost() - lost),
                )
                say(msgspec.json.encode(report).decode())
        self.ends.set()
        self.goes.set()
        self._worker.join()


class SendingEnd(End):
    """A producer and the bridge that sends its frames."""

    def __init__(
        self, plan: StreamPlan, pool: tp.Pool, bridge: BridgeService, pool_threads: set[int]
    ) -> None:
        super().__init__(plan, pool_threads)
        self._bridge = bridge
        self._passed_before, self._started = 0, 0.0
        self._out = pool.producer(SOURCE, max_bytes=plan.frame_bytes, slots=plan.buffers)
        for _ in range(plan.buffers):  # nobody measures the first touch of memory
            with self._out.claim((plan.words,), np.uint64) as slot:
                slot.array[:] = _TOUCHED

    def lost(self) -> Counter[str]:
        """Frames that the bridge did not send."""
        sent = self._bridge.stats[0].sent
        return Counter() if sent is None else Counter(sent.dropped)

    def work(self) -> None:
        """Publishes frames; the bridge sends them on a thread of its own."""
        self._wait_for_rest()
        self.goes.wait()
        self._passed_before, self._started = self._passed(), time.monotonic()
        due_ns = time.monotonic_ns()
        while not self.ends.is_set() and not 0 < self.plan.frames <= self.frames:
            if self.plan.rate_hz:
                due_ns += round(1e9 / self.plan.rate_hz)
                wait_until_ns(due_ns)
            elif self.frames % (_MOST_AHEAD - _LEAST_AHEAD) == 0:
                self._let_bridge_catch_up()
            with self._out.claim((self.plan.words,), np.uint64) as slot:
                if self.plan.rate_hz:
                    slot.array[0] = time.monotonic_ns()
            self.frames += 1
        self.ends.wait()  # what its thread took of the processor is asked for while it lives

    def _wait_for_rest(self) -> None:
        """Until nothing is under way of the frames that touched the memory: they would count as passed."""
        passed, since = self._passed(), time.monotonic()
        while time.monotonic() - since < _REST_S:
            time.sleep(_REST_S / 10)
            if self._passed() != passed:
                passed, since = self._passed(), time.monotonic()

    def _passed(self) -> int:
        sent = self._bridge.stats[0].sent
        return 0 if sent is None else sent.frames + sum(sent.dropped.values())

    def _let_bridge_catch_up(self) -> None:
        while not self.ends.is_set():
            passed = self._passed() - self._passed_before
            behind = self.frames - passed - _LEAST_AHEAD
            if behind <= 0:
                return
            frame_s = (time.monotonic() - self._started) / max(1, passed)
            # As long as that takes: each look costs more than a frame, and some frames are left to send then.
            time.sleep(min(0.1, behind * frame_s))


class ReceivingEnd(End):
    """A consumer of what the bridge receives."""

    def __init__(
        self, plan: StreamPlan, pool: tp.Pool, bridge: BridgeService, pool_threads: set[int]
    ) -> None:
        super().__init__(plan, pool_threads)
        self._bridge = bridge
        self._inp = pool.consumer(DEST, wait_s=_PATIENCE_S, max_outstanding_seq_gap=0)

    def lost(self) -> Counter[str]:
        """Frames that the bridge gave up."""
        received = self._bridge.stats[0].received
        return Counter() if received is None else Counter(received.frames_lost)

    def work(self) -> None:
        """Counts frames; those that come at a rate say when they were published."""
        while not self.ends.is_set():
            frame = self._inp.poll(_SLICE_S)
            if frame is None:
                continue
            if self.plan.rate_hz:
                sent_ns, now_ns = int(frame.array[0]), time.monotonic_ns()
                if sent_ns == _TOUCHED:
                    continue  # sent before anything was measured, over a link that took its time
                self.delays_ns.append(now_ns - sent_ns)
            self.frames += frame.still_valid()


def threads() -> set[int]:
    """All threads of this process, native ones too."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def cpu_s(thread: int) -> float:
    """User and system time of a thread so far."""
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii").split()[0]) / 1e9


def wait_until_ns(due_ns: int) -> None:
    """Sleeps, then spins."""
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > _SPIN_NS:
        time.sleep((left_ns - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < due_ns:
        pass


def percentile(ordered_ns: list[int], part: float) -> float:
    """In microseconds."""
    return ordered_ns[min(len(ordered_ns) - 1, int(len(ordered_ns) * part))] / 1000 if ordered_ns else 0.0


def say(line: str) -> None:
    """A line for whoever started this process."""
    print(line, flush=True)


def main() -> None:
    """Runs one end."""
    role, text = sys.argv[1:]
    plan = msgspec.json.decode(text, type=StreamPlan)
    name = {"send": "sender", "receive": "receiver"}[role]
    config = tp.load_config(overrides={**plan.settings, "bridge.role": name}, environ={}, search=False)
    before = threads()
    with tp.connect(config=config) as pool:
        pool_threads = threads() - before
        with tp.bridge(config=config) as bridge:
            say("listening")
            (SendingEnd if role == "send" else ReceivingEnd)(plan, pool, bridge, pool_threads).obey()


if __name__ == "__main__":
    main()

"""Runs a benchmark: a host of its own, two processes on it, and their reports put together."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.config.toml_text import config_toml
from tensor_pool.errors import TensorPoolError
from tensor_pool.host.embedded import start_drivers
from tensor_pool.ops.bench.plan import BenchPlan, BenchResult, PeerReport, Report, measure_memcpy
from tensor_pool.transport.media import temporary_aeron_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.config import Config

__all__ = ["Peer", "await_report", "pool_peer", "private_host", "result", "run_bench"]

_PATIENCE_S: Final = 30.0
_END_S: Final = 2.0


ReportT = TypeVar("ReportT", bound=Report)


class Peer(Closing, Generic[ReportT]):
    """One of the two processes.

    Args:
        role: Which, such as ``producer`` or ``consumer``.
        plan: What to do.
        module: What it runs.
        reports: What it says.
    """

    def __init__(self, role: str, plan: msgspec.Struct, *, module: str, reports: type[ReportT]) -> None:
        self.role = role
        self._reports = reports
        command = [sys.executable, "-m", module, role, msgspec.json.encode(plan).decode()]
        # A session of its own: Ctrl-C in a terminal is for us, and the end of its input ends it.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._output, self._input = self._process.stdout, self._process.stdin
        self._unread = b""
        self._is_done = False

    def fileno(self) -> int:
        """Readable when it has said something, or ended."""
        return self._output.fileno()

    def say(self, word: str) -> None:
        """Tells it something."""
        with contextlib.suppress(BrokenPipeError):  # what it said before it ended tells more
            self._input.write(word.encode() + b"\n")
            self._input.flush()

    def read(self) -> list[ReportT]:
        """What it has said.

        Raises:
            TensorPoolError: It failed, and says why; or it ended without a word.
        """
        data = os.read(self.fileno(), 65536)
        if not data:
            raise TensorPoolError(
                f"the {self.role} of the benchmark ended with exit code {self._process.wait()}",
                hint="what it wrote stands above",
            )
        *lines, self._unread = (self._unread + data).split(b"\n")
        reports = [msgspec.json.decode(line, type=self._reports) for line in lines]
        for report in reports:
            if report.event == "failed":
                raise TensorPoolError(f"the {self.role} failed: {report.error}", hint=report.hint)
            self._is_done |= report.event == "done"
        return reports

    def close(self) -> None:
        """Ends it; may be called again."""
        with contextlib.suppress(OSError):
            self._input.close()
        if not self._is_done:  # it does not listen while it works, and nobody wants that any more
            self._process.terminate()
        for insist in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(timeout=_END_S)
                break
            except subprocess.TimeoutExpired:
                insist()
        self._process.wait()
        self._output.close()


def run_bench(
    config: Config, plan: BenchPlan, *, on_progress: Callable[[PeerReport], object] = lambda _: None
) -> BenchResult:
    """Runs it.

    Args:
        config: How drivers and clients run; their directories are temporary whatever it says.
        plan: What to measure; where the host is gets filled in here.
        on_progress: Told what the consumer reports once a second.

    Raises:
        TensorPoolError: A process failed.
    """
    memcpy = measure_memcpy(plan.frame_bytes, plan.slots)
    private = {"aeron.dir": temporary_aeron_dir(), "client.wake_profile": plan.profile}
    with contextlib.ExitStack() as resources:
        file = private_host(config.replace(private), resources)
        plan = msgspec.structs.replace(plan, config_file=str(file))
        producer = resources.enter_context(pool_peer("producer", plan))
        await_report([producer], "producer", "ready", _PATIENCE_S, on_progress)
        consumer = resources.enter_context(pool_peer("consumer", plan))
        both = [producer, consumer]
        await_report(both, "consumer", "ready", _PATIENCE_S, on_progress)
        producer.say("go")
        published = await_report(both, "producer", "done", plan.seconds + _PATIENCE_S, on_progress)
        consumer.say("stop")
        received = await_report(both, "consumer", "done", _PATIENCE_S, on_progress)
    return result(plan, published, received, memcpy_gb_per_s=memcpy)


def pool_peer(role: str, plan: BenchPlan) -> Peer[PeerReport]:
    """The producer or the consumer of a pool's benchmark."""
    return Peer(role, plan, module="tensor_pool.ops.bench.peer", reports=PeerReport)


def private_host(config: Config, resources: contextlib.ExitStack) -> Path:
    """Starts drivers that nobody else uses; the configuration file with which processes join them."""
    host = start_drivers(config, resources)
    directory = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="tensor-pool-bench-")))
    file = directory / "tensor-pool.toml"
    file.write_text(config_toml(host), encoding="utf-8")
    return file


def await_report(
    peers: list[Peer[ReportT]],
    role: str,
    event: str,
    timeout_s: float,
    on_progress: Callable[[ReportT], object],
) -> ReportT:
    """Waits for a report of one of them; what else they say is handed on meanwhile."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        for peer in select.select(peers, [], [], left_s)[0]:
            for report in peer.read():
                if (report.role, report.event) == (role, event):
                    return report
                on_progress(report)
    raise TensorPoolError(f"the {role} of the benchmark is not {event} after {timeout_s:g} s")


def result(
    plan: BenchPlan, published: PeerReport, received: PeerReport, *, memcpy_gb_per_s: float
) -> BenchResult:
    """What both reports come to.

    Example:
        >>> from tensor_pool.ops.bench.plan import BenchMode
        >>> plan = BenchPlan(mode=BenchMode.THROUGHPUT, frame_bytes=1_000_000)
        >>> done = PeerReport(role="consumer", event="done", frames=1_001, seconds=0.1)
        >>> result(plan, done, done, memcpy_gb_per_s=20.0).of_memcpy
        0.5
    """
    # The first frame is where the clock starts.
    frames_per_s = (received.frames - 1) / received.seconds if received.frames > 1 else 0.0
    gb_per_s = frames_per_s * plan.frame_bytes / 1e9
    return BenchResult(
        mode=plan.mode,
        profile=plan.profile,
        loan=plan.loan,
        frame_bytes=plan.frame_bytes,
        slots=plan.slots,
        rate_hz=plan.rate_hz,
        seconds=round(received.seconds, 3),
        published=published.frames,
        received=received.frames,
        missed=received.missed,
        frames_per_s=round(frames_per_s, 1),
        gb_per_s=round(gb_per_s, 3),
        memcpy_gb_per_s=round(memcpy_gb_per_s, 3),
        of_memcpy=round(gb_per_s / memcpy_gb_per_s, 3) if memcpy_gb_per_s else 0.0,
        min_us=received.min_us,
        p50_us=received.p50_us,
        p99_us=received.p99_us,
        p999_us=received.p999_us,
        max_us=received.max_us,
        producer_cpu_s=round(published.cpu_seconds, 3),
        consumer_cpu_s=round(received.cpu_seconds, 3),
    )

"""One of a pair's two processes: ``python bench/links/program.py send|receive PLAN``."""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path[0] = str(Path(__file__).parent.parent)  # so that this folder is a package, as for the benchmarks

import msgspec  # noqa: E402 - the path comes first

from links.ends import END, WARM_UP  # noqa: E402
from links.plan import LinkPlan, LinkReport, SenderReport  # noqa: E402

if TYPE_CHECKING:
    from links.ends import Receiver, Sender

_PATIENCE_S: Final = 30.0
_SLICE_S: Final = 0.1
_SPIN_NS: Final = 100_000
"""Before a frame is due its time is waited for without sleeping: sleeps end when they like."""
_GOODBYES: Final = 25
"""How often the end is told: a receiver that is behind must not miss it."""


def make_sender(plan: LinkPlan) -> Sender:
    """The sending end of a plan's link."""
    if plan.link == "pool":
        from links.pool import PoolSender  # noqa: PLC0415 - a process carries only what it measures

        return PoolSender(plan)
    if plan.link == "iceoryx2":
        from links.iceoryx import Iceoryx2Sender  # noqa: PLC0415

        return Iceoryx2Sender(plan)
    if plan.link == "plain":
        from links.plain import PlainSender  # noqa: PLC0415

        return PlainSender(plan)
    from links.zeromq import ZmqSender  # noqa: PLC0415

    return ZmqSender(plan)


def make_receiver(plan: LinkPlan) -> Receiver:
    """The receiving end of a plan's link."""
    if plan.link == "pool":
        from links.pool import PoolReceiver  # noqa: PLC0415 - a process carries only what it measures

        return PoolReceiver(plan)
    if plan.link == "iceoryx2":
        from links.iceoryx import Iceoryx2Receiver  # noqa: PLC0415

        return Iceoryx2Receiver(plan)
    if plan.link == "plain":
        from links.plain import PlainReceiver  # noqa: PLC0415

        return PlainReceiver(plan)
    from links.zeromq import ZmqReceiver  # noqa: PLC0415

    return ZmqReceiver(plan)


def send(plan: LinkPlan) -> None:
    """Sends frames when told to."""
    sender = make_sender(plan)
    say("ready")
    sys.stdin.readline()
    for _ in range(min(2 * plan.slots, 64)):
        sender.send(WARM_UP)
        time.sleep(0.002)
    gc.freeze()
    period_ns = 0 if plan.rate_hz is None else round(1e9 / plan.rate_hz)
    due_ns = time.monotonic_ns()
    end_ns = due_ns + round(plan.seconds * 1e9)
    number = WARM_UP
    cpu = time.process_time()
    while (now_ns := time.monotonic_ns()) < end_ns:
        if period_ns:
            due_ns += period_ns
            if due_ns - now_ns > _SPIN_NS:
                time.sleep((due_ns - now_ns - _SPIN_NS) / 1e9)
            while time.monotonic_ns() < due_ns:
                pass
        number += 1
        sender.send(number)
    cpu = time.process_time() - cpu
    for _ in range(_GOODBYES):
        time.sleep(0.01)
        sender.send(END)
    say(msgspec.json.encode(SenderReport(frames=number, cpu_s=cpu)).decode())
    sys.stdin.readline()
    sender.close()


def receive(plan: LinkPlan) -> None:
    """Receives frames until told the end; reports."""
    receiver = make_receiver(plan)
    say("ready")
    idle_cpu = idle(receiver, plan.idle_s)
    say("waiting")
    gc.freeze()
    delays: list[int] = []
    first = last = first_ns = last_ns = 0
    cpu = time.process_time()
    deadline = time.monotonic() + plan.seconds + _PATIENCE_S
    while True:
        found = receiver.receive(_SLICE_S)
        now_ns = time.monotonic_ns()
        if found is None:
            if time.monotonic() > deadline:
                break
            continue
        number, sent_ns = found
        if number == END:
            break
        if number == WARM_UP:
            cpu = time.process_time()
            continue
        delays.append(now_ns - sent_ns)
        if not first:
            first, first_ns = number, now_ns
        last, last_ns = number, now_ns
    cpu = time.process_time() - cpu
    delays.sort()
    report = LinkReport(
        frames=len(delays),
        lost=last - first + 1 - len(delays) if delays else 0,
        seconds=(last_ns - first_ns) / 1e9,
        cpu_s=cpu,
        idle_cpu=idle_cpu,
        p50_us=percentile(delays, 0.5),
        p99_us=percentile(delays, 0.99),
        p999_us=percentile(delays, 0.999),
    )
    say(msgspec.json.encode(report).decode())
    receiver.close()


def idle(receiver: Receiver, seconds: float) -> float:
    """CPU time a second while nothing comes."""
    if not seconds:
        return 0.0
    receiver.receive(_SLICE_S)
    cpu, started = time.process_time(), time.monotonic()
    while time.monotonic() - started < seconds:
        receiver.receive(_SLICE_S)
    return (time.process_time() - cpu) / (time.monotonic() - started)


def percentile(ordered_ns: list[int], part: float) -> float:
    """In microseconds."""
    return ordered_ns[min(len(ordered_ns) - 1, int(len(ordered_ns) * part))] / 1000 if ordered_ns else 0.0


def say(line: str) -> None:
    """A line for whoever started this process."""
    print(line, flush=True)


if __name__ == "__main__":
    role, text = sys.argv[1:]
    {"send": send, "receive": receive}[role](msgspec.json.decode(text, type=LinkPlan))

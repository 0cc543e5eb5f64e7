"""Runs pairs of processes and picks the best of several rounds."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from links.plan import LinkPlan, LinkReport, SenderReport
from tensor_pool.testing import Cluster, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PROGRAM: Final = Path(__file__).with_name("program.py")


def run_pair(plan: LinkPlan) -> LinkReport:
    """Runs two processes, on a host of their own where the link needs one."""
    if plan.link != "pool":
        return _run(plan)
    with Cluster(plan.settings) as cluster:
        return _run(msgspec.structs.replace(plan, settings=cluster.settings))


def _run(plan: LinkPlan) -> LinkReport:
    # A name of its own: iceoryx2 remembers services of processes that were killed.
    plan = msgspec.structs.replace(plan, name=f"{plan.name}-{secrets.token_hex(4)}")
    with _start("send", plan) as sender:
        assert sender.read_line() == "ready"
        with _start("receive", plan) as receiver:
            assert receiver.read_line() == "ready"
            assert receiver.read_line(plan.idle_s + 30) == "waiting"
            sender.say("go")
            report = msgspec.json.decode(receiver.read_line(plan.seconds + 60), type=LinkReport)
            sent = msgspec.json.decode(sender.read_line(plan.seconds + 60), type=SenderReport)
            sender.say("end")
            sender.wait()
            receiver.wait()
    return msgspec.structs.replace(report, sender=sent)


def _start(role: str, plan: LinkPlan) -> Process:
    arguments = [sys.executable, str(_PROGRAM), role, msgspec.json.encode(plan).decode()]
    return Process(arguments, environ=os.environ)


def in_rounds(plans: Mapping[str, LinkPlan], rounds: int) -> dict[str, list[LinkReport]]:
    """All reports of each plan; rounds are interleaved, so that all meet the machine's bad moments."""
    reports: dict[str, list[LinkReport]] = {name: [] for name in plans}
    for _ in range(rounds):
        for name, plan in plans.items():
            reports[name].append(run_pair(plan))
    return reports


def best_of(
    plans: Mapping[str, LinkPlan],
    rounds: int,
    better: Callable[[LinkReport], float],
    earlier: Mapping[str, LinkReport] | None = None,
) -> dict[str, LinkReport]:
    """The best report of each plan, of interleaved rounds.

    Args:
        plans: By name.
        rounds: How often each is run.
        better: What is smaller, the better.
        earlier: Reports of rounds before, which count too.
    """
    reports = in_rounds(plans, rounds)
    for name, report in (earlier or {}).items():
        reports.setdefault(name, []).append(report)
    return {name: min(of_plan, key=better) for name, of_plan in reports.items()}

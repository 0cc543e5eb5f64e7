"""Runs pairs of processes over loopback, with a media driver of their own."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streams.plan import DEST, SOURCE, EndReport, PairReport, StreamPlan
from tensor_pool.bridging.config import BridgeSection
from tensor_pool.bridging.udp import for_chunks_in, for_chunks_out
from tensor_pool.channels import for_publication, for_subscription
from tensor_pool.config import load_config
from tensor_pool.testing import Cluster, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parent.parent.parent
_PROGRAM: Final = Path(__file__).with_name("program.py")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def bare_program() -> Path:
    """The native program that sends and receives without a bridge; `make bench-bridge` builds it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", _ROOT / "target"))
    return target / "release" / "examples" / "bare_stream"


def run_pair(plan: StreamPlan) -> PairReport:
    """Runs both ends on a host of their own, until what was asked for is measured."""
    with Cluster(plan.settings, loss=plan.loss) as cluster:
        plan = msgspec.structs.replace(plan, settings=cluster.settings | bridge_settings(plan))
        receiving, sending = _command("receive", plan), _command("send", plan)
        with Process(receiving, environ=os.environ) as receiver:
            assert receiver.read_line() == "listening"
            with Process(sending, environ=os.environ) as sender:
                return _measure(plan, cluster, sender, receiver)


def _measure(plan: StreamPlan, cluster: Cluster, sender: Process, receiver: Process) -> PairReport:
    if plan.way == "bridge":
        assert sender.read_line() == "listening"
    assert sender.read_line() == "ready"
    assert receiver.read_line() == "ready"
    # A number of frames is counted from the first on, a rate when everything runs as it will.
    steps = ("begin", "go") if plan.frames else ("go", "begin")
    if plan.frames:
        time.sleep(plan.warm_up_s)
    for end in (receiver, sender):
        end.say(steps[0])
    if not plan.frames:
        time.sleep(plan.warm_up_s)
    media_cpu_s = _cpu_s(cluster.media.pid)
    for end in (sender, receiver):
        end.say(steps[1])
    time.sleep(plan.seconds)
    for end in (sender, receiver):
        end.say("end")
    media_cpu_s = _cpu_s(cluster.media.pid) - media_cpu_s
    sent, received = (msgspec.json.decode(end.read_line(), type=EndReport) for end in (sender, receiver))
    return PairReport(sent=sent, received=received, media_cpu_s=media_cpu_s)


def bridge_settings(plan: StreamPlan) -> dict[str, Any]:
    """The configuration of both bridges."""
    payload, control = (f"aeron:udp?endpoint=127.0.0.1:{port}" for port in _free_ports(2))
    parameters = [payload, f"mtu={plan.mtu}"]
    if plan.term_length:
        parameters.append(f"term-length={plan.term_length}")
    if plan.channel:
        parameters.append(plan.channel)
    mapping = {"source_stream_id": SOURCE, "dest_stream_id": DEST}
    return {
        "bridge.instance_id": "bench",
        "bridge.payload_channel": "|".join(parameters),
        "bridge.control_channel": control,
        "bridge.forward_metadata": "false",
        "bridge.mappings": [mapping],
    }


def _command(role: str, plan: StreamPlan) -> list[str]:
    if plan.way == "bridge":
        return [sys.executable, str(_PROGRAM), role, msgspec.json.encode(plan).decode()]
    config = load_config(overrides=plan.settings, environ={}, search=False)
    (mapping,) = config[BridgeSection].resolved_mappings
    channel, stream_id = mapping.payload
    defaults = config.aeron.channel_defaults
    if role == "send":
        channel = for_publication(for_chunks_out(channel), defaults)
    else:
        channel = for_subscription(for_chunks_in(channel), defaults)
    numbers = [stream_id, plan.frame_bytes, plan.buffers, mapping.slices.later, plan.rate_hz]
    return [str(bare_program()), role, str(plan.settings["aeron.dir"]), channel, *map(str, numbers)]


def _free_ports(count: int) -> Iterator[int]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    for each in sockets:
        with each:
            yield each.getsockname()[1]


def _cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS

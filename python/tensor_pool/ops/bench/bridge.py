"""Runs the benchmark of the bridge: a host of its own, two ends on it that talk over loopback."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.bridging.config import BridgeSection
from tensor_pool.ops.bench.bridge_plan import DEST, PHASES, SOURCE, BridgeResult, EndReport
from tensor_pool.ops.bench.run import Peer, await_report, private_host
from tensor_pool.transport.media import temporary_aeron_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.config import Config
    from tensor_pool.ops.bench.bridge_plan import BridgePlan

__all__ = ["bridge_settings", "result", "run_bridge_bench"]

_PATIENCE_S: Final = 30.0
_MIB: Final = 1 << 20


def run_bridge_bench(
    config: Config, plan: BridgePlan, *, on_progress: Callable[[EndReport], object] = lambda _: None
) -> BridgeResult:
    """Runs it.

    Args:
        config: How drivers and clients run; directories are temporary, and the bridge its own.
        plan: What to measure; where the host is gets filled in here.
        on_progress: Told what the receiver reports a few times a second.

    Raises:
        ConfigError: No frame of this length can be sent in such packets.
        TensorPoolError: A process failed.
    """
    private = {"aeron.dir": temporary_aeron_dir(), **bridge_settings(plan)}
    with contextlib.ExitStack() as resources:
        file = private_host(config.replace(private), resources)
        plan = msgspec.structs.replace(plan, config_file=str(file))
        sender = resources.enter_context(_end("sender", plan))
        await_report([sender], "sender", "ready", _PATIENCE_S, on_progress)
        receiver = resources.enter_context(_end("receiver", plan))
        both = [sender, receiver]
        await_report(both, "receiver", "ready", _PATIENCE_S, on_progress)
        sender.say("go")
        sent = await_report(both, "sender", "done", len(PHASES) * plan.seconds + _PATIENCE_S, on_progress)
        receiver.say("stop")
        received = await_report(both, "receiver", "done", _PATIENCE_S, on_progress)
    return result(plan, sent, received)


def _end(role: str, plan: BridgePlan) -> Peer[EndReport]:
    return Peer(role, plan, module="tensor_pool.ops.bench.bridge_peer", reports=EndReport)


def bridge_settings(plan: BridgePlan) -> dict[str, Any]:
    """A section ``bridge`` of its own: one mapping over loopback, everything else as by default."""
    defaults = dict(zip(BridgeSection.__struct_fields__, BridgeSection.__struct_defaults__, strict=True))
    payload, control = (f"aeron:udp?endpoint=127.0.0.1:{port}" for port in _free_ports(2))
    ours = {
        "instance_id": "bench",
        "payload_channel": f"{payload}|mtu={plan.mtu}",
        "control_channel": control,
        "forward_metadata": False,
        "mappings": [{"source_stream_id": SOURCE, "dest_stream_id": DEST}],
    }
    return {f"bridge.{name}": value for name, value in (defaults | ours).items()}


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        sockets = [
            open_ones.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)
        ]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def result(plan: BridgePlan, sent: EndReport, received: EndReport) -> BridgeResult:
    """What both reports come to.

    Example:
        >>> from tensor_pool.ops.bench.bridge_plan import BridgePlan, PhaseReport
        >>> sent, received = (
        ...     EndReport(
        ...         role="", event="done",
        ...         phases={
        ...             "fast": PhaseReport(frames=count, seconds=0.5),
        ...             "steady": PhaseReport(frames=100, p50_us=900.0),
        ...         },
        ...     )
        ...     for count in (300, 201)
        ... )
        >>> found = result(BridgePlan(frame_bytes=1 << 20), sent, received)
        >>> found.mib_per_s, found.p50_us, found.loss, found.lost
        (400.0, 900.0, 0.2475, {'unread': 99})
    """
    fast, steady = (received.phases[phase] for phase in PHASES)
    # The first frame is where the clock starts.
    frames_per_s = (fast.frames - 1) / fast.seconds if fast.frames > 1 else 0.0
    published, arrived = (sum(phase.frames for phase in end.phases.values()) for end in (sent, received))
    lost = Counter(sent.lost) + Counter(received.lost)
    if (unread := published - arrived - lost.total()) > 0:
        lost["unread"] = unread
    return BridgeResult(
        frame_bytes=plan.frame_bytes,
        mtu=plan.mtu,
        slots=plan.slots,
        rate_hz=plan.rate_hz,
        mib_per_s=round(frames_per_s * plan.frame_bytes / _MIB, 1),
        frames_per_s=round(frames_per_s, 1),
        p50_us=steady.p50_us,
        p99_us=steady.p99_us,
        max_us=steady.max_us,
        published=published,
        received=arrived,
        loss=round(1 - arrived / published, 6) if published else 0.0,
        lost=dict(lost),
        sender_cpu_s=round(sent.cpu_seconds, 3),
        receiver_cpu_s=round(received.cpu_seconds, 3),
    )

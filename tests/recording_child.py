"""A recorder in a process of its own that can be killed, and what it had acknowledged by then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tensor_pool.testing import Cluster
    from tensor_pool.testing.cluster import Process

__all__ = ["acknowledged", "recording_child"]

_RECORD = """
    from tensor_pool.pipeline.record import Recorder
    recorder = Recorder(pool, ["camera-1"], {out!r}, **{options!r})
    print("ready")
    before = None
    while True:
        durable = recorder.progress["camera-1"].durable_seq
        if durable != before:
            print(durable)
            before = durable
        time.sleep(0.001)
"""


def recording_child(host: Cluster, out: Path, *, fault: str = "", **options: Any) -> Process:
    """Records the stream ``camera-1``; dies at the named fault, if there is one."""
    environ = {"TENSOR_POOL_FAULT": fault} if fault else {}
    child = host.run_python(_RECORD.format(out=str(out), options=options), environ=environ)
    assert child.read_line() == "ready"
    return child


def acknowledged(recorder: Process) -> int:
    """What the dead recorder said last."""
    durable = -1
    while True:
        try:
            line = recorder.read_line(timeout_s=5)
        except AssertionError:
            return durable
        durable = max(durable, int(line) if line.isdecimal() else -1)

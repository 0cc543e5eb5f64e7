"""A camera whose frames go over a bridge for as long as one likes: nothing grows.

`make soak` runs it for SOAK_SECONDS (600). The memory of both bridges over time is printed; what is shared
grows until the logs of slow streams are touched everywhere.
"""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path

import pytest

from bridges import DEST, SOURCE, end_of_bridge, free_endpoints
from soak_traces import HEAD, SECONDS, SETTINGS, check_flat, sample_while_running
from tensor_pool.testing import Cluster, Process

RATE_HZ = 60
FRAME_BYTES = 640 << 10
SLOTS = 32
LEAST_ARRIVED = 0.99
"""A receiver that a busy machine keeps from running for 0.1 s misses the next half second."""

CAMERA = f"""
    import json, select
    out = pool.producer({SOURCE}, dtype="uint8", shape=({FRAME_BYTES},), slots={SLOTS})
    image = np.zeros({FRAME_BYTES}, "uint8")
    print("ready")
    sys.stdin.readline()
    first, due = None, time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        image[0] = image[-1] = out.stats.frames % 251
        seq = out.publish(image)
        first = seq if first is None else first
        now = time.monotonic()
        due = max(due + 1 / {RATE_HZ}, now - 0.1)  # no burst after a pause of the machine
        time.sleep(max(0.0, due - now))
    print(json.dumps(dict(first=first, last=seq)))
    sys.stdin.readline()
"""

VIEWER = f"""
    import json, select
    inp = pool.consumer({DEST}, wait_s=30)
    print("ready")
    wrong = 0
    while True:
        frame = inp.poll(timeout=0.5)
        if frame is not None:
            try:
                with frame as image: wrong += not image[0] == image[-1] == frame.seq % 251
            except tp.FrameOverwrittenError:
                pass  # counted
        elif select.select([sys.stdin], [], [], 0)[0]:
            break
    stats = inp.stats
    print(json.dumps(dict(
        delivered=stats.delivered, last=stats.last_seq, wrong=wrong, reconnects=stats.reconnects,
    )))
"""


def start_bridge(host: Cluster, directory: Path, role: str, endpoints: list[str]) -> Process:
    file = directory / f"{role}.toml"
    file.write_text(textwrap.dedent(end_of_bridge(role, *endpoints)))
    process = host.start("bridge", "run", "--config", str(file), "--format", "jsonl")
    process.read_line()
    return process


def files_of(host: Cluster) -> set[str]:
    """The files that it has in shared memory."""
    return {str(path) for path in Path(host.directory).rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 180)
def test_a_bridge_does_not_grow(tmp_path: Path) -> None:
    with Cluster(SETTINGS) as host:
        endpoints = free_endpoints(3)
        receiver = start_bridge(host, tmp_path, "receiver", endpoints)
        camera = host.run_python(CAMERA)
        camera.read_line()
        sender = start_bridge(host, tmp_path, "sender", endpoints)
        viewer = host.run_python(VIEWER)
        viewer.read_line()
        assert host.driver is not None
        processes = {
            "receiver": receiver,
            "sender": sender,
            "camera": camera,
            "viewer": viewer,
            "SHM driver": host.driver,
            "media driver": host.media,
        }
        time.sleep(1.0)  # both ends of the payload channel find each other before the first frame
        camera.say("go")
        files: list[set[str]] = []
        traces = sample_while_running(processes, on_sample=lambda: files.append(files_of(host)))
        camera.say("stop")
        published = json.loads(camera.read_line())
        viewer.say("stop")
        seen = json.loads(viewer.read_line())
        said = {name: process.errors() for name, process in processes.items()}
    print("", HEAD, *(trace.row() for trace in traces), published, seen, sep="\n")
    for trace in traces[:2]:
        print(f"{trace.name}, RSS in KiB:", *(each.anon_kib + each.shared_kib for each in trace.samples))

    frames = published["last"] - published["first"] + 1
    assert frames > 0.9 * RATE_HZ * SECONDS, "the machine was too busy for a camera"
    assert seen["delivered"] >= LEAST_ARRIVED * frames, (seen, published)
    assert (seen["wrong"], seen["reconnects"]) == (0, 0)
    check_flat(traces)
    assert all(each == files[0] for each in files), "files come and go"
    assert not any(said.values()), said

"""A camera on one host and its viewer on another, with a bridge between them; both hosts are on this machine.

Each has a network, a media driver, an SHM driver and shared memory of its own; needs root to make networks.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tensor_pool as tp
from tensor_pool.testing import TwoHosts, wait_until

SIZE = (480, 640)


def bridge_settings(role: str, receiver: str) -> dict[str, object]:
    """What both hosts agree on: where the receiver listens, and which stream becomes which."""
    return {
        "bridge.instance_id": role,
        "bridge.role": role,
        "bridge.payload_channel": f"aeron:udp?endpoint={receiver}:20121|mtu=8192",
        "bridge.control_channel": f"aeron:udp?endpoint={receiver}:20122",
        "bridge.metadata_channel": f"aeron:udp?endpoint={receiver}:20123",
        "bridge.mappings": [{"source_stream_id": 10_000, "name": "camera-1"}],
    }


def run(frames: int) -> None:
    with (
        TwoHosts() as (left, right),
        tp.bridge(config=left.config, settings=bridge_settings("sender", right.address)),
        tp.bridge(config=right.config, settings=bridge_settings("receiver", right.address)) as receiving,
        left.connect() as here,
        right.connect() as there,
        here.producer(10_000, dtype="uint8", shape=SIZE, metadata={"lens": "wide"}) as camera,
        there.consumer("camera-1") as viewer,
    ):
        wait_until(lambda: receiving.stats[0].received.epoch)  # the stream is there
        came = 0
        for number in range(frames):
            camera.publish(np.full(SIZE, number % 256, "uint8"))
            frame = viewer.poll(timeout=1.0)
            came += frame is not None and bool((frame.copy() == frame.seq % 256).all())
            time.sleep(0.01)
        wait_until(lambda: "lens" in viewer.metadata)  # a message, which may come after the frames
        print(f"{came} of {frames} frames came whole to {right.address}, lens: {viewer.metadata['lens']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100)
    why_not = TwoHosts.why_not()
    if why_not is None:
        run(parser.parse_args().frames)
    else:
        print(f"skipped: {why_not}")

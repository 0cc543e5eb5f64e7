"""Producers that overtake the bridge, and consumers that the bridge overtakes: nobody sees half a frame."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, is_ready
from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import wait_until

WORDS = 1 << 17
"""A megabyte: the sender needs longer for it than the producer."""
SLOTS = 4


def publish_in_bursts(out: tp.Producer, stop: threading.Event) -> None:
    """Frames full of their own number, now more at a time than the ring has slots, now fewer."""
    chance = random.Random(5)
    while not stop.is_set():
        for _ in range(chance.randint(1, 3 * SLOTS)):
            out.publish(np.full(WORDS, out.stats.frames, np.uint64))
        time.sleep(chance.random() * 0.02)


@pytest.mark.req("BRG-2.1-1", "BRG-6-16")
def test_torn_frames_are_never_shown(pool: tp.Pool, bridge: Callable[..., BridgeService]) -> None:
    """The hunt counts when frames were overwritten under the sender and under the consumer."""
    chance = random.Random(6)
    stop = threading.Event()
    whole = overwritten = 0
    with pool.producer(SOURCE, dtype="uint64", shape=(WORDS,), slots=SLOTS) as out:
        running = bridge()
        wait_until(lambda: is_ready(running))
        inp = pool.consumer(DEST)
        camera = threading.Thread(target=publish_in_bursts, args=(out, stop))
        camera.start()
        try:
            deadline = time.monotonic() + 30
            while whole < 50 or overwritten < 5 or running.stats[0].sent.dropped.get("torn", 0) < 10:
                assert time.monotonic() < deadline, (
                    f"{whole} whole, {overwritten} overwritten, {running.stats}"
                )
                frame = inp.poll(timeout=0.1)
                if frame is None:
                    continue
                time.sleep(chance.choice((0, 0, 0.05)))
                try:
                    values = frame.copy()
                except FrameOverwrittenError:
                    overwritten += 1
                    continue
                whole += 1
                assert (values == frame.seq).all(), f"frame {frame.seq} is made of several"
        finally:
            stop.set()
            camera.join()
        wait_until(lambda: accounted(running) == out.stats.frames)


def accounted(bridge: BridgeService) -> int:
    """Frames that were sent, or are told as lost: each once."""
    sent = bridge.stats[0].sent
    return sent.frames + sum(sent.dropped.values())

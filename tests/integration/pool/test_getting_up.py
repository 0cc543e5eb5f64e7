"""Consumers of steady streams are up before a frame is due; nobody may notice."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.testing import wait_until


@pytest.fixture(scope="module")
def pool():
    with tp.connect(embedded=True) as pool:
        yield pool


@pytest.mark.parametrize("shape", [(4,), (2, 2), (0,)], ids=str)
def test_getting_up_for_frames_of_a_steady_stream_counts_nothing_twice(pool, shape):
    """A reader that gets up for a frame tries out what it will do with it on the one before, in any ring."""
    frames = 300
    with pool.producer(f"steady {shape}", max_bytes=64, slots=2) as out, pool.consumer(out.name) as inp:

        def publish_steadily() -> None:
            start_s = time.monotonic()
            for number in range(frames):
                time.sleep(max(0.0, start_s + number * 0.002 - time.monotonic()))
                out.publish(np.zeros(shape, "uint32"))

        publishing = threading.Thread(target=publish_steadily)
        publishing.start()
        while inp.poll(timeout=0.2 if publishing.is_alive() else 0) is not None or publishing.is_alive():
            pass
        publishing.join()
        stats = inp.stats
    assert stats.validated + stats.overwritten == stats.delivered
    assert stats.delivered + stats.drops == frames, stats


def test_finalizers_that_poll_the_consumer_they_interrupt_hold_nobody_up(pool):
    """Python collects garbage wherever objects are made, also where a reader gets up for a frame."""
    frame, nested, is_over = np.zeros(4, "uint32"), 0, threading.Event()
    with pool.producer("interrupted", max_bytes=64, slots=64) as out, pool.consumer(out.name) as inp:

        def poll_again(phase: str, _info: object) -> None:
            nonlocal nested
            if phase == "start" and threading.current_thread() is polling:
                inp.poll(timeout=0.0001)
                nested += 1

        def poll() -> None:
            while not is_over.is_set():
                inp.poll(timeout=0.1)

        def publish_steadily() -> None:
            start_s, number = time.monotonic(), 0
            while not is_over.wait(max(0.0, start_s + number * 0.002 - time.monotonic())):
                out.publish(frame)
                number += 1

        def has_collected(often: int) -> bool:
            # So many objects that the next one that anybody makes has garbage collected: one of the reader's.
            gc.disable()
            kept = [[] for _ in range(2000)]
            gc.enable()
            time.sleep(0.0012)
            return len(kept) > 0 and nested >= often

        polling, publishing = (
            threading.Thread(target=work, daemon=True) for work in (poll, publish_steadily)
        )
        gc.callbacks.append(poll_again)
        try:
            polling.start()
            publishing.start()
            wait_until(lambda: has_collected(50), timeout_s=60)
        finally:
            gc.callbacks.remove(poll_again)
            is_over.set()
        for thread in (polling, publishing):
            thread.join(timeout=10)
            assert not thread.is_alive()

"""Frames through this pool."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

import tensor_pool as tp
from links.ends import read_stamp, stamp

if TYPE_CHECKING:
    from links.plan import LinkPlan


class PoolSender:
    """Publishes copies, or claimed slots."""

    def __init__(self, plan: LinkPlan) -> None:
        self._copy = plan.copy
        self._shape = (plan.words,)
        self._pool = _connect(plan)
        self._out = self._pool.producer(plan.name, max_bytes=plan.frame_bytes, slots=plan.slots)
        self._source = np.zeros(plan.words, np.uint64)

    def send(self, number: int) -> None:
        """Publishes a frame."""
        now_ns = time.monotonic_ns()
        if self._copy:
            stamp(self._source, number, now_ns)
            self._out.publish(self._source)
        else:
            with self._out.claim(self._shape, np.uint64) as slot:
                stamp(slot.array, number, now_ns)

    def close(self) -> None:
        """Ends the connection."""
        self._pool.close()


class PoolReceiver:
    """Polls for frames; how it waits is the profile's business."""

    def __init__(self, plan: LinkPlan) -> None:
        self._copy = plan.copy
        self._pool = _connect(plan)
        self._inp = self._pool.consumer(plan.name, wait_s=20, max_outstanding_seq_gap=0)

    def receive(self, timeout_s: float) -> tuple[int, int] | None:
        """The next frame, if it was still whole after it was read."""
        frame = self._inp.poll(timeout_s)
        if frame is None:
            return None
        try:
            if self._copy:
                return read_stamp(frame.copy())
            words = frame.array
            found, last = (int(words[0]), int(words[1])), int(words[-1])
        except tp.FrameOverwrittenError:
            return None
        if not frame.still_valid():
            return None
        if last != found[0]:
            raise ValueError(f"a torn frame: {found[0]} at its beginning, {last} at its end")
        return found

    def close(self) -> None:
        """Ends the connection."""
        self._pool.close()


def _connect(plan: LinkPlan) -> tp.Pool:
    return tp.connect(config=tp.load_config(overrides=plan.settings, environ={}, search=False))

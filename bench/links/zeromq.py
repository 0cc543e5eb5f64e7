"""Frames through ZeroMQ, over a Unix socket: no loans, the kernel copies each frame in and out."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from links.ends import read_stamp, stamp
from links.plan import PEERS

if TYPE_CHECKING:
    from links.plan import LinkPlan

sys.path.append(str(PEERS))
import zmq

_SOURCES: Final = 64
"""Arrays that are sent from in turn: ZeroMQ reads them after `send` has returned."""

_PATIENCE_MS: Final = 500


class ZmqSender:
    """Pushes arrays without a copy of its own."""

    def __init__(self, plan: LinkPlan) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.set_hwm(min(plan.slots, _SOURCES // 2))
        self._socket.setsockopt(zmq.SNDTIMEO, _PATIENCE_MS)
        self._socket.bind(f"ipc://@tensor-pool-{plan.name}")
        self._sources = [np.zeros(plan.words, np.uint64) for _ in range(_SOURCES)]

    def send(self, number: int) -> None:
        """Hands a frame over; waits when the receiver is behind."""
        now_ns = time.monotonic_ns()
        source = self._sources[number % _SOURCES]
        stamp(source, number, now_ns)
        with contextlib.suppress(zmq.Again):  # nobody is there any more to hear of the end
            self._socket.send(source, copy=False)

    def close(self) -> None:
        """Ends the connection."""
        self._context.destroy(linger=0)


class ZmqReceiver:
    """Pulls frames; each lies in memory of its own."""

    def __init__(self, plan: LinkPlan) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.set_hwm(min(plan.slots, _SOURCES // 2))
        self._socket.connect(f"ipc://@tensor-pool-{plan.name}")

    def receive(self, timeout_s: float) -> tuple[int, int] | None:
        """The next frame."""
        if not self._socket.poll(round(timeout_s * 1000)):
            return None
        return read_stamp(np.frombuffer(self._socket.recv(copy=False).buffer, np.uint64))

    def close(self) -> None:
        """Ends the connection."""
        self._context.destroy(linger=0)

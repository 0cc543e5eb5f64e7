"""A thread that takes chunks from the network, for all streams of a subscription."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.errors import TensorPoolError
from tensor_pool.runtime.repeats import limit_repeats

if TYPE_CHECKING:
    from tensor_pool.transport import AeronSubscription

__all__ = ["ChunkPoll"]

_LOG: Final = limit_repeats(logging.getLogger(__name__))
_TURN_S: Final = 0.05
_CHUNKS_A_TURN: Final = 1024
_YIELDS: Final = 2
_SHORTEST_PAUSE_S: Final = 0.000_1
_LONGEST_PAUSE_S: Final = 0.001
"""Between looks at a subscription that nothing comes from: how late a frame may be noticed."""


class ChunkPoll(Closing):
    """Takes chunks from one subscription for all its streams, on a thread of its own.

    Args:
        subscription: Where chunks come from.
    """

    def __init__(self, subscription: AeronSubscription) -> None:
        self.receiver: Final = _native.ChunkReceiver(subscription.native)
        self.error: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bridge receive", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it takes chunks; ends by itself only by an error."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.receiver.receive(
                    _TURN_S,
                    limit=_CHUNKS_A_TURN,
                    yields=_YIELDS,
                    shortest_pause_s=_SHORTEST_PAUSE_S,
                    longest_pause_s=_LONGEST_PAUSE_S,
                )
        except TensorPoolError as e:
            self.error = e.message
            _LOG.error("the bridge receives no more: %s", e)

    def close(self) -> None:
        """Takes no more. May be called again."""
        self._stop.set()
        self._thread.join()

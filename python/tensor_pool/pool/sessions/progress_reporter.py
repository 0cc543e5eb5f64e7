"""Tells consumers how far a frame is that is being written in place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool import _native
    from tensor_pool.pool.progress.throttle import ProgressThrottle
    from tensor_pool.wire.messages import FrameProgress

__all__ = ["ProgressReporter"]


class ProgressReporter:
    """The progress of one claim, from STARTED to COMPLETE.

    Args:
        throttle: Decides what is worth a message.
        send: Sends it.
        claim: What is being written; its header is there already.
        epoch: The stream's epoch.
    """

    __slots__ = ("_send", "_throttle")

    def __init__(
        self,
        throttle: ProgressThrottle,
        send: Callable[[FrameProgress], None],
        claim: _native.Claim,
        *,
        epoch: int,
    ) -> None:
        self._throttle = throttle
        self._send = send
        array = claim.array
        self._tell(
            throttle.start(
                epoch=epoch,
                seq=claim.seq,
                values_len_bytes=claim.nbytes,
                now_ns=time.monotonic_ns(),
                major_stride_bytes=array.strides[0] if array.ndim else 0,
            )
        )

    def advance(self, bytes_filled: int) -> None:
        """So many bytes are there now."""
        self._tell(self._throttle.advance(bytes_filled, time.monotonic_ns()))

    def complete(self) -> None:
        """The frame is committed."""
        self._tell(self._throttle.complete())

    def abort(self) -> None:
        """The frame was given up."""
        self._throttle.abort()

    def _tell(self, message: FrameProgress | None) -> None:
        if message is not None:
            self._send(message)

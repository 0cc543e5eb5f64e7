"""How fast a consumer reads: as it was asked to, or limited because the stream's authority says so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tensor_pool.pool.pacing import RateGate
from tensor_pool.wire.messages import Mode

if TYPE_CHECKING:
    from tensor_pool import _native
    from tensor_pool.pool.sessions.consumer_options import ConsumerOptions

__all__ = ["Pace"]


class Pace:
    """The mode of a consumer. Changed by the agent's thread, used by user threads.

    Args:
        options: What the program asked for.
        limited_rate_hz: Frames a second for who is limited by others and named no rate.

    Example:
        >>> from tensor_pool.pool.sessions.consumer_options import ConsumerOptions
        >>> pace = Pace(ConsumerOptions(), limited_rate_hz=10)
        >>> pace.told(Mode.RATE_LIMITED), pace.mode.name, pace.told(Mode.RATE_LIMITED)
        (True, 'RATE_LIMITED', False)
    """

    def __init__(self, options: ConsumerOptions, limited_rate_hz: int) -> None:
        self.mode = options.mode
        """How it reads now; what it asked for is in its hellos."""
        self.gate = RateGate(options.max_rate_hz) if options.mode is Mode.RATE_LIMITED else None
        """Thins frames out while the producer does not do it for us."""
        self._asked_for_it = options.mode is Mode.RATE_LIMITED
        self._told_rate_hz = options.max_rate_hz or limited_rate_hz
        self._thinned = 0
        self._passed_over = 0  # apart from the others: user threads count these

    @property
    def thinned(self) -> int:
        """Frames that were left out to keep the rate."""
        gate = self.gate
        return self._thinned + self._passed_over + (0 if gate is None else gate.refused)

    @property
    def keeps_up(self) -> bool:
        """Whether it goes to the newest frame by itself, without losing what lies between."""
        return self.gate is not None and not self._asked_for_it

    def told(self, mode: Mode) -> bool:
        """The authority says how to read; whether that is news. Who asked to be limited stays so."""
        if self._asked_for_it or mode is self.mode:
            return False
        self.mode = mode
        if self.gate is not None:
            self._thinned += self.gate.refused
        self.gate = RateGate(self._told_rate_hz) if mode is Mode.RATE_LIMITED else None
        return True

    def restart(self) -> None:
        """Another ring: the next frame passes."""
        if self.gate is not None:
            self.gate.restart()

    def take(self, reader: _native.RingReader) -> _native.Frame | None:
        """The next frame that the rate allows.

        Raises:
            ClosedError: The ring was replaced at this moment.
        """
        if self.keeps_up:
            self._keep_up(reader)
        frame = reader.poll()
        while frame is not None and not self.allows(frame):
            frame = reader.poll()
        return frame

    def allows(self, frame: _native.Frame) -> bool:
        """Whether the rate lets this frame pass."""
        gate = self.gate  # the agent may take it away any time
        return gate is None or gate.accept(frame.timestamp_ns, now_ns=time.monotonic_ns())

    def _keep_up(self, reader: _native.RingReader) -> None:
        """Who was limited because it can't keep up goes to the newest frame before the writer laps it.

        What lies between is left out and not lost: it was not to get all of it anyway.
        """
        newest, next_seq = reader.newest(), reader.next_seq
        if newest is not None and newest - next_seq >= reader.address.nslots // 2:
            reader.seek(newest, seen=True)
            self._passed_over += newest - next_seq

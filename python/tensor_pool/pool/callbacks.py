"""Frames handed to a function, for programs that would rather be called."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.frame import Frame

__all__ = ["FrameCallback"]

_LOG: Final = logging.getLogger(__name__)
_SLICE_S: Final = 0.1


class FrameCallback(Closing):
    """Calls a function with each frame, from a thread of its own; made by `Consumer.on_frame`.

    Args:
        consumer: Where frames come from; nobody else can poll it meanwhile.
        callback: What to call. What it raises is logged and ends the calls.

    Raises:
        ConfigError: The consumer's frames go to another function.
    """

    def __init__(self, consumer: Consumer, callback: Callable[[Frame], object]) -> None:
        self.error: BaseException | None = None
        """What the callback raised, if it did."""
        self._consumer = consumer
        self._callback = callback
        self._stop = threading.Event()
        is_ready: SimpleQueue[ConfigError | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(is_ready,), name="frame callback", daemon=True
        )
        self._thread.start()
        refusal = is_ready.get()
        if refusal is not None:
            raise refusal

    @property
    def is_running(self) -> bool:
        """Whether it still calls."""
        return self._thread.is_alive()

    def _run(self, is_ready: SimpleQueue[ConfigError | None]) -> None:
        try:
            self._consumer.reserve()
        except ConfigError as e:  # they are another function's
            is_ready.put(e)
            return
        is_ready.put(None)
        try:
            while (frame := self._next()) is not None:
                self._callback(frame)
        except BaseException as e:  # nobody above would see it
            self.error = e
            _LOG.exception("the callback of %r failed, no more frames for it", self._consumer)
        finally:
            self._consumer.release()

    def _next(self) -> Frame | None:
        """The next frame; None when there will be no more."""
        frame = None
        try:
            while frame is None and not self._stop.is_set():
                frame = self._consumer.poll(timeout=_SLICE_S)
        except (ClosedError, SystemExit):  # closed, or the interpreter is about to end
            return None
        return frame

    def __repr__(self) -> str:
        state = "running" if self.is_running else "ended" if self.error is None else "failed"
        return f"<FrameCallback of {self._consumer!r}, {state}>"

    def request_stop(self) -> None:
        """Ends the calls after the present one, without waiting for it."""
        self._stop.set()

    def close(self) -> None:
        """Ends the calls and waits for the present one, unless called from it. May be called again."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

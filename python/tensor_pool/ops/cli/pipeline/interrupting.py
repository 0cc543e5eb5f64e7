"""Ctrl-C while Spark works: the command ends, and says nothing of what it was doing inside."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from tensor_pool.closing import Closing

__all__ = ["QuietInterrupts"]


class QuietInterrupts(Closing):
    """Keeps the handler of SIGINT that a program has, while it is open.

    Spark puts its own in its place, which talks to Java in the middle of another talk with it. That fails
    with pages of text, and takes Ctrl-C away from commands that end in good order.

    An interrupt while Spark starts waits until it has, since half a start leaves Java running; a second one
    does not wait.
    """

    def __init__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before = signal.getsignal(signal.SIGINT)
        self.came = False
        """Whether there was an interrupt that ends the command."""
        self._disabled = logging.root.manager.disable
        self._has_started = False
        self._take_over()

    def started(self) -> None:
        """Spark has started, and put its own handler there.

        Raises:
            KeyboardInterrupt: There was one meanwhile.
        """
        self._has_started = True
        self._take_over()
        if self.came:
            raise KeyboardInterrupt

    def _take_over(self) -> None:
        if self._is_main:
            is_usual = self._before is signal.default_int_handler
            signal.signal(signal.SIGINT, self._interrupt if is_usual else self._before)

    def close(self) -> None:
        """Gives the signal back; may be called again."""
        if self._is_main:
            signal.signal(signal.SIGINT, self._before)
            logging.disable(self._disabled)

    def _interrupt(self, signum: int, frame: Any) -> None:
        is_first, self.came = not self.came, True
        logging.disable(logging.CRITICAL)  # py4j logs as an error that it was interrupted
        if self._has_started or not is_first:
            signal.default_int_handler(signum, frame)

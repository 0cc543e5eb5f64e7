"""What daemon threads see of a normal end of the program, which closes pools under their hands."""

from __future__ import annotations

import os
import threading
from typing import Final

__all__ = ["ProgramEnd", "program_end"]


class ProgramEnd:
    """Whether the program ends; ends the threads that would otherwise be told of a closed pool.

    Only daemon threads are left by then. `SystemExit` ends them without the traceback of an error that the
    program did not make and can't prevent, as the native waits do.

    Example:
        >>> ProgramEnd().end_thread()
    """

    def __init__(self) -> None:
        self._pid: int | None = None

    def begin(self) -> None:
        """From now on pools are closed because the program ends."""
        self._pid = os.getpid()  # a child that is forked by then may go on

    def end_thread(self) -> None:
        """Ends this thread if the program ends, unless it is the main one.

        Raises:
            SystemExit: The program ends.
        """
        if self._pid == os.getpid() and threading.current_thread() is not threading.main_thread():
            raise SystemExit


program_end: Final = ProgramEnd()
"""That of this program."""

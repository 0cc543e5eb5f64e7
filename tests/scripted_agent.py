"""An agent for tests of the runtime: it does as it is told and remembers what happened to it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class ScriptedAgent:
    """Works through a script; each step is a work count, an error to raise, or something to call.

    After the script it has no more work, but goes on.
    """

    def __init__(
        self,
        script: Iterable[int | BaseException | Callable[[], int]] = (),
        *,
        name: str = "scripted",
        start: BaseException | Callable[[], None] | None = None,
        close: BaseException | None = None,
        journal: list[str] | None = None,
    ) -> None:
        self.name = name
        self._script = iter(script)
        self._start = start
        self._close = close
        self.journal: list[str] = [] if journal is None else journal
        self.threads: list[threading.Thread] = []
        self.cycles = 0
        self.script_done = threading.Event()

    def on_start(self) -> None:
        self._note("start")
        if isinstance(self._start, BaseException):
            raise self._start
        if self._start is not None:
            self._start()

    def do_work(self) -> int:
        self.cycles += 1
        step = next(self._script, None)
        if step is None:
            self.script_done.set()
            return 0
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else step

    def on_close(self) -> None:
        self._note("close")
        if self._close is not None:
            raise self._close

    def _note(self, what: str) -> None:
        self.journal.append(f"{self.name} {what}")
        self.threads.append(threading.current_thread())

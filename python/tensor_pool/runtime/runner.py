"""An agent on a thread of its own, from its start to the interpreter's exit."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import traceback
import weakref
from typing import TYPE_CHECKING, Final, Self

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.errors import AeronClientLostError, ClosedError, ForkedProcessError, NoMediaDriverError
from tensor_pool.runtime.agent import StopAgent
from tensor_pool.runtime.clock import SystemClock
from tensor_pool.runtime.duty_cycle import DutyCycle
from tensor_pool.runtime.error_log import ErrorLog
from tensor_pool.runtime.idle import BackOff

if TYPE_CHECKING:
    from tensor_pool.runtime.agent import Agent
    from tensor_pool.runtime.clock import CachedClock, Clock
    from tensor_pool.runtime.counters import CounterFactory, CounterSet
    from tensor_pool.runtime.idle import IdleStrategy

__all__ = ["AgentRunner", "ErrorPolicy"]

_LOG: Final = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 1.0


class ErrorPolicy(msgspec.Struct, frozen=True):
    """What a runner does when a duty cycle raises.

    Every error goes to the error log. After one the runner pauses, twice as long each time in a row and at
    most a second, so that a failing agent never burns a core; a cycle without error starts over.

    Args:
        limit: Errors in a row that it goes on after; one more stops the agent.

    Example:
        >>> ErrorPolicy.stop_at_first().gives_up(errors_in_row=1)
        True
        >>> keep_going = ErrorPolicy(limit=16)
        >>> keep_going.gives_up(errors_in_row=16), keep_going.gives_up(errors_in_row=17)
        (False, True)
    """

    limit: int = 16

    @classmethod
    def stop_at_first(cls) -> ErrorPolicy:
        """The policy that stops the agent at its first error."""
        return cls(limit=0)

    def gives_up(self, errors_in_row: int) -> bool:
        """Whether this many errors in a row are too many."""
        return errors_in_row > self.limit

    def pause_s(self, errors_in_row: int) -> float:
        """How long to pause after this many errors in a row."""
        return min(_FIRST_PAUSE_S * 2.0 ** min(errors_in_row - 1, 16), _LONGEST_PAUSE_S)


class AgentRunner(Closing):
    """Runs an agent on a thread of its own.

    The thread is a daemon, so a forgotten runner never keeps a program from ending; at interpreter exit all
    running agents are closed first, in time, while their native handles are still valid. A forked child has
    no thread: there the runner refuses to start and closing it does nothing.

    Args:
        agent: What to run.
        idle: How to pass the time without work; `BackOff` by default.
        error_log: Where errors of the agent go; one of its own by default.
        policy: What to do after an error.
        clock: What cycles are measured with and errors are stamped with.
        cycle_clock: The agent's cached clock, refreshed before each duty cycle.
        counters: Where the counters of the runner come from.
        overrun_ms: A duty cycle longer than this counts as an overrun.
        close_timeout_s: How long `close` waits for the agent.

    Example:
        >>> class Greeter:
        ...     name = "greeter"
        ...     def on_start(self) -> None: print("start")
        ...     def do_work(self) -> int: raise StopAgent
        ...     def on_close(self) -> None: print("close")
        >>> with AgentRunner(Greeter()) as runner:
        ...     ended = runner.wait(timeout_s=5.0)
        start
        close
        >>> ended, runner.error
        (True, None)
    """

    def __init__(
        self,
        agent: Agent,
        *,
        idle: IdleStrategy | None = None,
        error_log: ErrorLog | None = None,
        policy: ErrorPolicy | None = None,
        clock: Clock | None = None,
        cycle_clock: CachedClock | None = None,
        counters: CounterFactory | None = None,
        overrun_ms: float = 100.0,
        close_timeout_s: float = 5.0,
    ) -> None:
        self.error_log = ErrorLog(logger=_LOG) if error_log is None else error_log
        self._idle = BackOff() if idle is None else idle
        self._policy = ErrorPolicy() if policy is None else policy
        self._clock = SystemClock() if clock is None else clock
        self._cycle = DutyCycle(
            agent,
            clock=self._clock,
            cycle_clock=cycle_clock,
            counters=counters,
            overrun_ms=overrun_ms,
        )
        self.close_timeout_s = close_timeout_s
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._started = threading.Event()
        # Instead of Thread.join() and is_alive(): after a Ctrl-C in join(), Python before 3.13 believes that
        # the thread has ended.
        self._ended = threading.Event()
        self._lock = threading.Lock()  # guards the step from "not started" to one of its two successors
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._start_failed = False

    @property
    def agent(self) -> Agent:
        """The agent that this runs."""
        return self._cycle.agent

    @property
    def counters(self) -> CounterSet:
        """Cycles, work, errors, overruns and the longest cycle."""
        return self._cycle.counters

    @property
    def error(self) -> BaseException | None:
        """What ended the agent, or None when it runs, was closed or finished."""
        return self._error

    @property
    def is_running(self) -> bool:
        """Whether the agent was started in this process and has not ended."""
        return self._thread is not None and self._pid == os.getpid() and not self._ended.is_set()

    def start(self) -> Self:
        """Start the thread and wait until the agent has started.

        Raises:
            Exception: What the agent's `on_start` raised; the agent is closed by then.
            ClosedError: The runner was started or closed before.
            ForkedProcessError: The runner belongs to the parent process.
        """
        if self._pid != os.getpid():
            raise ForkedProcessError(
                f"the runner of {self.agent.name} belongs to process {self._pid}",
                hint="make a new runner in the forked child",
            )
        with self._lock:
            if self._thread is not None or self._stop.is_set():
                raise ClosedError(
                    f"the runner of {self.agent.name} was started or closed before",
                    hint="make a new runner for each start",
                )
            self._thread = threading.Thread(target=self._run, name=self.agent.name, daemon=True)
        _close_at_exit(self)
        try:
            self._thread.start()
            self._started.wait()
        except RuntimeError:  # the system has no thread left
            self._ended.set()
            self.counters.close()
            raise
        except BaseException:  # Ctrl-C while the agent starts, perhaps before its thread runs
            self._stop.set()
            raise
        if self._start_failed:
            assert self._error is not None
            raise self._error
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the agent has ended by itself or by `close` elsewhere; says whether it has."""
        if self.is_running and self._thread is not threading.current_thread():
            self._ended.wait(timeout_s)
        return not self.is_running

    def close(self, timeout_s: float | None = None) -> bool:
        """Ask the agent to end and wait for it. May be called twice and from any thread.

        From the agent's own thread it asks and returns: the agent ends after this duty cycle.

        Args:
            timeout_s: How long to wait; None for the runner's own time-out.

        Returns:
            Whether the agent has ended. If not, the log says where its thread is stuck.
        """
        if self._pid != os.getpid():
            return True  # a forked child has no thread to end, and its copies of the locks may be held
        with self._lock:
            self._stop.set()
            if self._thread is None:
                self.counters.close()
        timeout_s = self.close_timeout_s if timeout_s is None else timeout_s
        if self.wait(timeout_s):
            return True
        if self._thread is not threading.current_thread():
            _LOG.error(
                "%s did not end within %.1f s, it is at %s", self.agent.name, timeout_s, self._position()
            )
        return False

    def request_stop(self) -> None:
        """Ask the agent to end after its present duty cycle, without waiting for it."""
        self._stop.set()

    def __enter__(self) -> Self:
        return self.start()

    def _run(self) -> None:
        try:
            if self._start_agent():
                self._work_until_stopped()
        finally:
            try:
                self._close_agent()
            finally:
                self._ended.set()
                # A failed start is reported only now, so that its `start()` returns after `on_close`.
                self._started.set()

    def _start_agent(self) -> bool:
        try:
            self.agent.on_start()
        except BaseException as e:  # raised again by start(), in its thread
            self._error = e
            self._start_failed = True
            return False
        self._started.set()
        return True

    def _work_until_stopped(self) -> None:
        errors_in_row = 0
        run, idle, stopped = self._cycle.run, self._idle.idle, self._stop.is_set
        while not stopped():
            try:
                idle(run())
                errors_in_row = 0
            except StopAgent:
                return
            except Exception as e:  # the policy decides
                self._note(e)
                errors_in_row += 1
                final = _final_error(e)
                if final is not None or self._policy.gives_up(errors_in_row):
                    _LOG.error("%s stops after %d errors in a row", self.agent.name, errors_in_row)
                    self._error = final or e
                    return
                self._stop.wait(self._policy.pause_s(errors_in_row))
            except BaseException as e:  # sys.exit() in an agent ends the agent
                self._note(e)
                self._error = e
                return

    def _close_agent(self) -> None:
        try:
            self.agent.on_close()
        except BaseException as e:  # nobody above would see it
            self._note(e)
            self._error = self._error or e
        finally:
            self.counters.close()

    def _note(self, error: BaseException) -> None:
        self.error_log.record(error, self._clock.realtime_ns())
        self._cycle.errors.add()

    def _position(self) -> str:
        """Where the agent's thread is now: the last thing to know about an agent that does not end."""
        ident = None if self._thread is None else self._thread.ident
        frame = None if ident is None else sys._current_frames().get(ident)  # noqa: SLF001 - its documented use
        return (
            "an unknown place" if frame is None else traceback.format_stack(frame, limit=-1)[0].strip()
        ).replace("\n", " ")


_live: Final[weakref.WeakSet[AgentRunner]] = weakref.WeakSet()
_is_registered = False


def _close_at_exit(runner: AgentRunner) -> None:
    """Remember a runner; the exit hook comes with the first one, so that importing this changes nothing."""
    global _is_registered  # noqa: PLW0603 - once a process
    _live.add(runner)
    if not _is_registered:
        _is_registered = True
        atexit.register(_close_all)


def _close_all() -> None:
    """End all agents together: the time-outs overlap, they do not add up."""
    runners = [runner for runner in _live if runner.is_running]
    started_s = time.monotonic()
    for runner in runners:
        runner.request_stop()
    for runner in runners:
        left_s = runner.close_timeout_s - (time.monotonic() - started_s)
        runner.close(timeout_s=max(left_s, 0.0))


def _final_error(error: Exception) -> Exception | None:
    """What makes it useless to go on: a media driver that died, or gave this client up, is not coming back.

    Agents that share a thread share their media driver, and all of them notice.
    """
    if isinstance(error, NoMediaDriverError | AeronClientLostError):
        return error
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(_final_error, error.exceptions)), None)
    return None

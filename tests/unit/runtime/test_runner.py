"""An agent on its thread: start, errors, close, and every way to get these wrong."""

import logging
import signal
import threading
import time

import pytest

from scripted_agent import ScriptedAgent
from tensor_pool.errors import AeronClientLostError, ClosedError, NoMediaDriverError
from tensor_pool.runtime import AgentRunner, CounterType, ErrorLog, ErrorPolicy, Spin, StopAgent
from tensor_pool.runtime.clock import CachedClock, FakeClock

WAIT_S = 30.0  # an upper bound for a busy machine; nothing here sleeps that long


class TestLifeCycle:
    def test_everything_happens_on_one_thread_that_is_not_the_callers(self) -> None:
        agent = ScriptedAgent([1, 2])
        with AgentRunner(agent) as runner:
            assert runner.is_running
            assert agent.script_done.wait(WAIT_S)

        assert agent.journal == ["scripted start", "scripted close"]
        assert len(set(agent.threads)) == 1
        thread = agent.threads[0]
        assert thread is not threading.current_thread()
        assert (thread.name, thread.daemon) == ("scripted", True)
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert (runner.is_running, runner.error) == (False, None)

    def test_start_returns_after_the_agent_has_started(self) -> None:
        agent = ScriptedAgent()
        runner = AgentRunner(agent).start()

        assert agent.journal == ["scripted start"]
        assert runner.close()

    def test_an_agent_that_is_done_ends_by_itself_without_a_word(self) -> None:
        agent = ScriptedAgent([1, StopAgent()])
        runner = AgentRunner(agent).start()

        assert runner.wait(WAIT_S)
        assert agent.journal[-1] == "scripted close"
        assert (runner.error, len(runner.error_log)) == (None, 0)

    def test_close_may_be_called_twice_and_by_several_threads(self) -> None:
        agent = ScriptedAgent()
        runner = AgentRunner(agent).start()
        closers = [threading.Thread(target=runner.close) for _ in range(4)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(WAIT_S)

        assert runner.close()
        assert agent.journal.count("scripted close") == 1

    def test_an_agent_may_close_its_own_runner(self) -> None:
        ended: list[bool] = []

        def close_myself() -> int:
            ended.append(runner.close())
            return 1

        agent = ScriptedAgent([close_myself, 1, 1])
        runner = AgentRunner(agent)
        runner.start()

        assert runner.wait(WAIT_S)
        assert ended == [False]  # it can't wait for itself, and does not try
        assert (agent.cycles, agent.journal[-1]) == (1, "scripted close")

    def test_a_runner_starts_once(self) -> None:
        runner = AgentRunner(ScriptedAgent()).start()
        with pytest.raises(ClosedError, match="started or closed before"):
            runner.start()
        runner.close()
        with pytest.raises(ClosedError):
            runner.start()

    def test_a_runner_closed_before_its_start_calls_nothing(self) -> None:
        agent = ScriptedAgent()
        runner = AgentRunner(agent)

        assert runner.close()
        with pytest.raises(ClosedError):
            runner.start()
        assert agent.journal == []

    def test_wait_without_end_says_so(self) -> None:
        with AgentRunner(ScriptedAgent()) as runner:
            assert not runner.wait(timeout_s=0.01)

    def test_request_stop_does_not_wait(self) -> None:
        with AgentRunner(ScriptedAgent()) as runner:
            runner.request_stop()
            assert runner.wait(WAIT_S)


class TestFailedStart:
    def test_is_raised_by_start_after_the_agent_was_closed(self) -> None:
        agent = ScriptedAgent(start=OSError("no shared memory"))
        runner = AgentRunner(agent)

        with pytest.raises(OSError, match="no shared memory"):
            runner.start()
        assert agent.journal == ["scripted start", "scripted close"]
        assert len(set(agent.threads)) == 1
        assert agent.cycles == 0
        assert isinstance(runner.error, OSError)
        assert runner.close()

    def test_ctrl_c_while_the_agent_starts_interrupts_the_caller_and_ends_the_agent(self) -> None:
        interrupted = threading.Event()

        def slow_start() -> None:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert interrupted.wait(WAIT_S)

        agent = ScriptedAgent(start=slow_start)
        runner = AgentRunner(agent)

        with pytest.raises(KeyboardInterrupt):
            runner.start()
        interrupted.set()
        assert runner.wait(WAIT_S)
        assert agent.journal == ["scripted start", "scripted close"]
        assert agent.cycles == 0

    def test_a_system_without_threads_to_spare_is_an_error_and_leaves_nothing_to_wait_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_thread(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        agent = ScriptedAgent()
        runner = AgentRunner(agent)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                runner.start()

        assert not runner.is_running
        assert runner.close()
        assert agent.journal == []


class TestErrors:
    def test_the_agent_goes_on_and_the_errors_are_in_the_log(self) -> None:
        errors = ErrorLog()
        agent = ScriptedAgent([ValueError("a"), 1, ValueError("a"), KeyError("b"), 1])
        with AgentRunner(agent, error_log=errors) as runner:
            assert agent.script_done.wait(WAIT_S)
            assert runner.is_running

        assert [(entry.kind, entry.count) for entry in errors] == [("ValueError", 2), ("KeyError", 1)]
        assert runner.counters.snapshot()["errors"] == 3
        assert runner.error is None

    def test_errors_carry_the_real_time_of_the_clock(self) -> None:
        agent = ScriptedAgent([ValueError("a")])
        with AgentRunner(agent, clock=FakeClock(realtime_ns=123)) as runner:
            assert agent.script_done.wait(WAIT_S)

        assert next(iter(runner.error_log)).first_ns == 123

    def test_too_many_in_a_row_end_the_agent(self, caplog: pytest.LogCaptureFixture) -> None:
        agent = ScriptedAgent([ValueError(str(n)) for n in range(10)])
        runner = AgentRunner(agent, policy=ErrorPolicy(limit=2)).start()

        assert runner.wait(WAIT_S)
        assert agent.cycles == 3
        assert agent.journal[-1] == "scripted close"
        assert str(runner.error) == "2"
        assert "scripted stops after 3 errors in a row" in caplog.text

    def test_a_good_cycle_starts_the_count_over(self) -> None:
        agent = ScriptedAgent([ValueError("x"), ValueError("x"), 0, ValueError("x"), ValueError("x"), 0])
        with AgentRunner(agent, policy=ErrorPolicy(limit=2)) as runner:
            assert agent.script_done.wait(WAIT_S)
            assert runner.is_running

    def test_the_other_policy_ends_it_at_the_first(self) -> None:
        agent = ScriptedAgent([1, ValueError("x"), 1])
        runner = AgentRunner(agent, policy=ErrorPolicy.stop_at_first()).start()

        assert runner.wait(WAIT_S)
        assert (agent.cycles, type(runner.error)) == (2, ValueError)

    @pytest.mark.parametrize("error", [NoMediaDriverError, AeronClientLostError])
    def test_a_lost_media_driver_ends_it_at_once(self, error: type[Exception]) -> None:
        agent = ScriptedAgent([error("gone")] * 5)
        runner = AgentRunner(agent, policy=ErrorPolicy(limit=100)).start()

        assert runner.wait(WAIT_S)
        assert (agent.cycles, type(runner.error)) == (1, error)

    def test_agents_that_share_a_thread_end_with_their_media_driver(self) -> None:
        both = ExceptionGroup("members failed", [ValueError("first"), NoMediaDriverError("gone")])
        runner = AgentRunner(ScriptedAgent([both] * 5), policy=ErrorPolicy(limit=100)).start()

        assert runner.wait(WAIT_S)
        assert isinstance(runner.error, NoMediaDriverError)

    def test_exit_in_an_agent_ends_the_agent_and_nothing_else(self) -> None:
        agent = ScriptedAgent([SystemExit(5), 1])
        runner = AgentRunner(agent).start()

        assert runner.wait(WAIT_S)
        assert isinstance(runner.error, SystemExit)
        assert agent.journal[-1] == "scripted close"

    def test_a_failing_idle_strategy_is_an_error_like_any_other(self) -> None:
        class Broken:
            def idle(self, work_count: int) -> None:
                raise OSError("the bell's mapping is gone")

        runner = AgentRunner(ScriptedAgent(), idle=Broken(), policy=ErrorPolicy(limit=1)).start()

        assert runner.wait(WAIT_S)
        assert "mapping is gone" in str(runner.error)

    def test_a_failing_close_is_in_the_log_and_does_not_hide_what_came_before(self) -> None:
        agent = ScriptedAgent([ValueError("first")], close=OSError("second"))
        runner = AgentRunner(agent, policy=ErrorPolicy.stop_at_first()).start()

        assert runner.wait(WAIT_S)
        assert [entry.message for entry in runner.error_log] == ["first", "second"]
        assert str(runner.error) == "first"

    def test_a_failing_agent_does_not_burn_a_core_even_when_told_to_spin(self) -> None:
        agent = ScriptedAgent([ValueError("x")] * 9)
        started = time.monotonic()
        with AgentRunner(agent, idle=Spin(), policy=ErrorPolicy(limit=100)):
            assert agent.script_done.wait(WAIT_S)

        assert time.monotonic() - started > 0.4  # 1 + 2 + 4 + ... + 256 ms

    def test_pauses_double_up_to_a_second(self) -> None:
        pauses = [ErrorPolicy().pause_s(n) for n in (1, 2, 3, 10, 11, 10_000)]

        assert pauses == [0.001, 0.002, 0.004, 0.512, 1.0, 1.0]

    def test_close_interrupts_the_pause_after_an_error(self) -> None:
        class Patient(ErrorPolicy, frozen=True):
            def pause_s(self, errors_in_row: int) -> float:
                failed.set()
                return 600.0

        failed = threading.Event()
        runner = AgentRunner(ScriptedAgent([ValueError("x")]), policy=Patient()).start()
        assert failed.wait(WAIT_S)

        assert runner.close(timeout_s=WAIT_S)


class TestStuckAgents:
    def test_close_gives_up_in_time_and_says_where_the_agent_is(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        entered, release = threading.Event(), threading.Event()

        def hang_in_here() -> int:
            entered.set()
            release.wait(WAIT_S)
            return 0

        agent = ScriptedAgent([hang_in_here])
        runner = AgentRunner(agent, close_timeout_s=0.05).start()
        assert entered.wait(WAIT_S)

        assert not runner.close()
        assert runner.is_running
        (message,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert message.startswith("scripted did not end within 0.1 s, it is at File")
        assert "\n" not in message
        release.set()
        assert runner.close(timeout_s=WAIT_S)
        assert agent.journal[-1] == "scripted close"


class TestCountersAndClocks:
    def test_counters_come_from_the_factory_and_are_given_back(self) -> None:
        closed: list[str] = []

        class Cell:
            def __init__(self, label: str) -> None:
                self.label = label
                self.value = 0

            def add(self, amount: int = 1, /) -> None:
                self.value += amount

            def set(self, value: int, /) -> None:
                self.value = value

            def close(self) -> None:
                closed.append(self.label)

        class Factory:
            def create(self, kind: CounterType, label: str, *, key: bytes = b"") -> Cell:
                return Cell(label)

        agent = ScriptedAgent([3, 4])
        with AgentRunner(agent, counters=Factory()) as runner:
            assert agent.script_done.wait(WAIT_S)
            assert closed == []

        assert len(closed) == 5
        assert closed[0] == "scripted: cycles"
        assert runner.counters.snapshot()["work"] == 7
        assert runner.counters.snapshot()["cycles"] == agent.cycles

    def test_the_cycle_clock_is_refreshed_before_each_cycle(self) -> None:
        source = FakeClock(monotonic_ns=5)
        clock = CachedClock(source)
        seen: list[int] = []

        def look() -> int:
            seen.append(clock.monotonic_ns())
            source.advance(ns=1)
            return 1

        agent = ScriptedAgent([look] * 3)
        with AgentRunner(agent, cycle_clock=clock):
            assert agent.script_done.wait(WAIT_S)

        assert seen == [5, 6, 7]

"""An agent driven by hand."""

import pytest

from scripted_agent import ScriptedAgent
from tensor_pool.errors import ClosedError
from tensor_pool.runtime import AgentInvoker, CachedClock, CounterType, FakeClock, StopAgent


def test_runs_one_duty_cycle_a_call_on_the_callers_thread() -> None:
    agent = ScriptedAgent([2, 3])
    with AgentInvoker(agent) as invoker:
        assert [invoker.invoke(), invoker.invoke(), invoker.invoke()] == [2, 3, 0]

    assert agent.journal == ["scripted start", "scripted close"]
    assert len(set(agent.threads)) == 1
    assert invoker.agent is agent


def test_errors_reach_the_caller_are_counted_and_the_agent_goes_on() -> None:
    with AgentInvoker(ScriptedAgent([ValueError("once"), 7])) as invoker:
        with pytest.raises(ValueError, match="once"):
            invoker.invoke()

        assert invoker.invoke() == 7
        assert invoker.counters.snapshot()["errors"] == 1


def test_an_agent_that_is_done_is_closed() -> None:
    agent = ScriptedAgent([1, StopAgent()])
    invoker = AgentInvoker(agent).start()

    assert [invoker.invoke(), invoker.invoke()] == [1, 0]
    assert not invoker.is_running
    assert agent.journal == ["scripted start", "scripted close"]
    with pytest.raises(ClosedError):
        invoker.invoke()


def test_a_failed_start_closes_the_agent_once() -> None:
    agent = ScriptedAgent(start=OSError("no"))
    invoker = AgentInvoker(agent)

    with pytest.raises(OSError, match="no"):
        invoker.start()
    invoker.close()
    assert agent.journal == ["scripted start", "scripted close"]


def test_use_before_start_and_after_close_is_an_error() -> None:
    invoker = AgentInvoker(ScriptedAgent())
    with pytest.raises(ClosedError, match="not running"):
        invoker.invoke()
    invoker.start()
    with pytest.raises(ClosedError):
        invoker.start()
    invoker.close()
    invoker.close()
    with pytest.raises(ClosedError):
        invoker.invoke()


def test_closing_what_was_never_started_calls_nothing() -> None:
    agent = ScriptedAgent()
    AgentInvoker(agent).close()

    assert agent.journal == []


def test_the_agents_clock_is_refreshed_once_a_cycle() -> None:
    source = FakeClock(monotonic_ns=100)
    clock = CachedClock(source)
    seen: list[tuple[int, int]] = []

    def look_twice() -> int:
        first = clock.monotonic_ns()
        source.advance(ns=50)
        seen.append((first, clock.monotonic_ns()))
        return 1

    with AgentInvoker(ScriptedAgent([look_twice] * 3), cycle_clock=clock) as invoker:
        for _ in range(3):
            invoker.invoke()

    assert seen == [(100, 100), (150, 150), (200, 200)]


def test_cycles_work_overruns_and_the_longest_cycle_are_counted() -> None:
    clock = FakeClock()

    def taking(ms: int, work: int) -> int:
        clock.advance(ms=ms)
        return work

    script = [lambda: taking(1, 2), lambda: taking(30, 3), lambda: taking(10, 0), lambda: taking(11, 0)]
    with AgentInvoker(ScriptedAgent(script), clock=clock, overrun_ms=10) as invoker:
        for _ in script:
            invoker.invoke()

        assert invoker.counters.snapshot() == {
            "cycles": 4,
            "work": 5,
            "errors": 0,
            "cycle overruns": 2,
            "longest cycle ns": 30_000_000,
        }


def test_a_failing_cycle_is_measured_too() -> None:
    clock = FakeClock()

    def fail_late() -> int:
        clock.advance(ms=20)
        raise ValueError("late")

    with AgentInvoker(ScriptedAgent([fail_late]), clock=clock, overrun_ms=10) as invoker:
        with pytest.raises(ValueError, match="late"):
            invoker.invoke()

        assert invoker.counters[CounterType.AGENT_CYCLES].value == 1
        assert invoker.counters[CounterType.AGENT_OVERRUNS].value == 1

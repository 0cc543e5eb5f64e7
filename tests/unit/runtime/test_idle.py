"""Idle strategies: what they wait for, how long, and that they use no CPU meanwhile."""

import threading
import time
from typing import get_args

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.runtime import (
    AgentRunner,
    BackOff,
    Doorbell,
    EventBell,
    IdleName,
    IdleStrategy,
    Sleep,
    Spin,
    StopAgent,
    Yield,
    make_idle,
)


class RecordingBell:
    """Remembers how it was waited for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        return True


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float | str]:
    """What the strategies did instead of pausing."""
    done: list[float | str] = []
    monkeypatch.setattr("time.sleep", done.append)
    monkeypatch.setattr("os.sched_yield", lambda: done.append("yield"))
    return done


class TestPauses:
    @pytest.mark.parametrize("strategy", [Spin(), Yield(), Sleep(), BackOff(), Doorbell(RecordingBell())])
    def test_no_strategy_pauses_after_work(self, strategy: IdleStrategy, pauses: list[float | str]) -> None:
        strategy.idle(1)

        assert pauses == []

    def test_spin_never_pauses(self, pauses: list[float | str]) -> None:
        Spin().idle(0)

        assert pauses == []

    def test_yield_yields(self, pauses: list[float | str]) -> None:
        Yield().idle(0)

        assert pauses == ["yield"]

    def test_sleep_sleeps_its_time(self, pauses: list[float | str]) -> None:
        Sleep(0.002).idle(0)

        assert pauses == [0.002]

    def test_back_off_yields_then_doubles_its_sleep_up_to_the_limit(self, pauses: list[float | str]) -> None:
        strategy = BackOff(yields=2, min_pause_s=0.001, max_pause_s=0.005)
        for _ in range(7):
            strategy.idle(0)

        assert pauses == ["yield", "yield", 0.001, 0.002, 0.004, 0.005, 0.005]

    def test_work_starts_back_off_over(self, pauses: list[float | str]) -> None:
        strategy = BackOff(yields=1, min_pause_s=0.001, max_pause_s=0.005)
        for work in (0, 0, 0, 5, 0, 0):
            strategy.idle(work)

        assert pauses == ["yield", 0.001, 0.002, "yield", 0.001]

    def test_a_first_pause_above_the_limit_is_the_limit(self, pauses: list[float | str]) -> None:
        BackOff(yields=0, min_pause_s=0.1, max_pause_s=0.002).idle(0)

        assert pauses == [0.002]

    def test_doorbell_waits_for_its_bell(self) -> None:
        bell = RecordingBell()
        Doorbell(bell, timeout_s=0.05).idle(0)

        assert bell.waits == [0.05]

    @pytest.mark.parametrize("pause_s", [0, -1, 0.11, float("nan")])
    def test_pauses_are_short_enough_to_close_an_agent_in_time(self, pause_s: float) -> None:
        with pytest.raises(ConfigError, match="is not a pause"):
            Sleep(pause_s)
        with pytest.raises(ConfigError, match="is not a pause"):
            Doorbell(RecordingBell(), timeout_s=pause_s)


class TestMakeIdle:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [("backoff", BackOff), ("sleep", Sleep), ("doorbell", Doorbell), ("yield", Yield), ("spin", Spin)],
    )
    def test_every_name_has_its_strategy(self, name: str, kind: type) -> None:
        assert name in get_args(IdleName)
        assert type(make_idle(name, bell=RecordingBell())) is kind

    def test_all_names_are_covered(self) -> None:
        for name in get_args(IdleName):
            make_idle(name)

    def test_an_agent_without_a_bell_backs_off(self) -> None:
        assert isinstance(make_idle("doorbell"), BackOff)

    def test_the_pause_reaches_the_strategy(self, pauses: list[float | str]) -> None:
        bell = RecordingBell()
        make_idle("sleep", max_pause_s=0.003).idle(0)
        make_idle("doorbell", bell=bell, max_pause_s=0.004).idle(0)

        assert (pauses, bell.waits) == ([0.003], [0.004])

    def test_an_unknown_name_lists_the_known_ones(self) -> None:
        with pytest.raises(ConfigError, match="'busy'") as caught:
            make_idle("busy")
        assert caught.value.hint == "use one of backoff, sleep, doorbell, yield, spin"


class TestEventBell:
    def test_a_ring_before_the_wait_is_not_lost(self) -> None:
        bell = EventBell()
        bell.ring()

        assert bell.wait(60.0)

    def test_one_wait_takes_all_rings_before_it(self) -> None:
        bell = EventBell()
        bell.ring()
        bell.ring()

        assert [bell.wait(0.0), bell.wait(0.0)] == [True, False]

    def test_a_waiting_thread_is_woken(self) -> None:
        bell = EventBell()
        woken = []
        waiter = threading.Thread(target=lambda: woken.append(bell.wait(60.0)))
        waiter.start()
        bell.ring()
        waiter.join(timeout=10)

        assert woken == [True]

    def test_returns_after_its_time_out(self) -> None:
        started = time.monotonic()

        assert not EventBell().wait(0.01)
        assert 0.005 < time.monotonic() - started < 5


class IdleFor:
    """Has no work, ends after a while, and measures the CPU time of its thread."""

    name = "idle"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.cpu_s = 0.0

    def on_start(self) -> None:
        self._end = time.monotonic() + self._seconds
        self._cpu_at_start = time.thread_time()

    def do_work(self) -> int:
        if time.monotonic() > self._end:
            raise StopAgent
        return 0

    def on_close(self) -> None:
        self.cpu_s = time.thread_time() - self._cpu_at_start


@pytest.mark.parametrize("name", ["backoff", "doorbell"])
def test_an_idle_agent_uses_next_to_no_cpu(name: str) -> None:
    agent = IdleFor(seconds=0.5)
    with AgentRunner(agent, idle=make_idle(name, bell=EventBell())) as runner:
        assert runner.wait(timeout_s=30)

    assert agent.cpu_s < 0.05, f"{agent.cpu_s / 0.5:.1%} of a core"

"""The section `agents` of the configuration, turned into runners."""

import pytest

from tensor_pool.config import AgentsSection
from tensor_pool.host.agents import make_runner
from tensor_pool.runtime import ErrorPolicy, StopAgent


class Failing:
    name = "failing"

    def on_start(self) -> None: ...

    def do_work(self) -> int:
        raise ValueError("no")

    def on_close(self) -> None: ...


class Done(Failing):
    def do_work(self) -> int:
        raise StopAgent


def test_the_runner_gets_the_settings() -> None:
    runner = make_runner(AgentsSection(error_limit=0, close_timeout_ms=250), Failing()).start()

    assert runner.wait(timeout_s=30)
    assert isinstance(runner.error, ValueError)
    assert runner.close_timeout_s == 0.25


def test_defaults_are_those_of_the_runtime() -> None:
    assert AgentsSection().error_limit == ErrorPolicy().limit


@pytest.mark.parametrize("idle", ["backoff", "sleep", "doorbell", "yield", "spin"])
def test_every_idle_strategy_runs_an_agent(idle: str) -> None:
    runner = make_runner(AgentsSection(idle=idle, idle_max_pause_ms=1), Done()).start()

    assert runner.wait(timeout_s=30)
    assert runner.error is None

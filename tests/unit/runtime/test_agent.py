"""Several agents as one."""

import pytest

from scripted_agent import ScriptedAgent
from tensor_pool.runtime import AgentInvoker, CompositeAgent, StopAgent


def pair(first: list, second: list, **options: object) -> tuple[CompositeAgent, list[str]]:
    journal: list[str] = []
    agents = [
        ScriptedAgent(script, name=name, journal=journal) for name, script in (("a", first), ("b", second))
    ]
    return CompositeAgent(agents, **options), journal


def test_work_adds_up() -> None:
    both, _ = pair([3, 0], [4, 1])

    assert [both.do_work(), both.do_work(), both.do_work()] == [7, 1, 0]


def test_names_are_joined_or_given() -> None:
    assert pair([], [])[0].name == "a+b"
    assert pair([], [], name="host")[0].name == "host"


def test_starts_in_order_and_closes_in_reverse() -> None:
    both, journal = pair([], [])
    with AgentInvoker(both):
        pass

    assert journal == ["a start", "b start", "b close", "a close"]


def test_a_failing_member_does_not_starve_the_others() -> None:
    both, _ = pair([ValueError("a is broken")], [5, 6])

    with pytest.raises(ValueError, match="a is broken"):
        both.do_work()
    assert both.agents[1].cycles == 1
    assert both.do_work() == 6


def test_several_failures_are_raised_together() -> None:
    both, _ = pair([ValueError("1")], [KeyError("2")])

    with pytest.raises(ExceptionGroup) as caught:
        both.do_work()
    assert [type(error) for error in caught.value.exceptions] == [ValueError, KeyError]
    assert "a+b" in str(caught.value)


def test_a_member_that_is_done_ends_the_whole_after_the_round() -> None:
    both, _ = pair([StopAgent()], [1])

    with pytest.raises(StopAgent):
        both.do_work()
    assert both.agents[1].cycles == 1


def test_a_failure_counts_more_than_an_end() -> None:
    both, _ = pair([StopAgent()], [ValueError("b is broken")])

    with pytest.raises(ValueError, match="b is broken"):
        both.do_work()


def test_a_failed_start_closes_what_was_started_and_what_failed_but_nothing_else() -> None:
    journal: list[str] = []
    agents = [
        ScriptedAgent(name="a", journal=journal),
        ScriptedAgent(name="b", journal=journal, start=OSError("no shared memory")),
        ScriptedAgent(name="c", journal=journal),
    ]

    with pytest.raises(OSError, match="no shared memory"):
        AgentInvoker(CompositeAgent(agents)).start()
    assert journal == ["a start", "b start", "b close", "a close"]


def test_a_failing_close_does_not_keep_the_others_open() -> None:
    journal: list[str] = []
    agents = [ScriptedAgent(name=name, journal=journal, close=OSError(name)) for name in "ab"]
    both = CompositeAgent(agents)
    both.on_start()

    with pytest.raises(ExceptionGroup) as caught:
        both.on_close()
    assert [str(error) for error in caught.value.exceptions] == ["b", "a"]
    both.on_close()  # everything is closed already
    assert journal[2:] == ["b close", "a close"]


def test_needs_at_least_one_agent() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CompositeAgent([])

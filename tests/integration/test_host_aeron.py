"""The section `aeron` of the configuration, turned into a media driver, clients and counters."""

from __future__ import annotations

import itertools
import os
import uuid

import pytest

from tensor_pool import errors
from tensor_pool.config import AeronSection, AgentsSection, load_config
from tensor_pool.host import aeron
from tensor_pool.host.agents import make_runner
from tensor_pool.runtime import AgentInvoker, CounterType
from tensor_pool.transport import AeronCounters, default_aeron_dir, is_alive, read_counters


@pytest.fixture
def directory():
    return f"/dev/shm/tensor-pool-test-{uuid.uuid4().hex}"


@pytest.mark.parametrize("mode", ["embedded", "spawned"])
def test_a_media_driver_and_its_clients_from_one_section(directory, mode):
    section = AeronSection(dir=directory, media_driver=mode, term_length=64 << 10)
    with aeron.open_media_driver(section) as driver:
        assert driver.aeron_dir == directory
        assert (driver.pid == os.getpid()) == (mode == "embedded")
        external = AeronSection(dir=directory)
        with aeron.open_media_driver(external) as found, aeron.connect(section, name="test") as client:
            assert found.pid == driver.pid
            publication = client.add_publication("aeron:ipc", 1)
            assert "term-length=65536" in publication.channel
            assert publication.max_message_bytes == (64 << 10) // 8
        assert is_alive(directory), "leaving somebody else's media driver does not end it"
    assert not is_alive(directory)


def test_nobody_there_is_said_with_what_to_try(directory):
    with pytest.raises(errors.NoMediaDriverError, match="no live media driver") as caught:
        aeron.open_media_driver(AeronSection(dir=directory))
    assert f"tpool up --aeron-dir {directory}" in caught.value.hint


def test_without_a_directory_the_default_is_meant(monkeypatch):
    monkeypatch.setenv("AERON_DIR", "/dev/shm/elsewhere")
    assert aeron.aeron_dir(AeronSection()) == default_aeron_dir() == "/dev/shm/elsewhere"


VARIABLES = ["TENSOR_POOL__AERON__DIR", "TENSOR_POOL__AERON_DIR", "AERON_DIR"]


@pytest.mark.parametrize("values", list(itertools.product(["/dev/shm/a", "/dev/shm/b", "", None], repeat=3)))
def test_the_environment_names_the_same_directory_with_and_without_configuration(monkeypatch, values):
    for variable, value in zip(VARIABLES, values, strict=True):
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)

    def outcome(ask):
        try:
            return ask()
        except errors.ConfigError:
            return "refused"

    configured = outcome(lambda: aeron.aeron_dir(load_config(search=False).aeron))
    assert outcome(default_aeron_dir) == configured
    assert (configured == "refused") == (
        values[:2] in [("/dev/shm/a", "/dev/shm/b"), ("/dev/shm/b", "/dev/shm/a")]
    )


def test_time_outs_reach_channels_and_media_driver():
    section = AeronSection(
        untethered_window_limit_timeout_ms=60,
        untethered_linger_timeout_ms=70,
        untethered_resting_timeout_ms=80,
        timer_interval_ms=30,
    )
    options, defaults = aeron.media_driver_options(section), aeron.channel_defaults(section)
    assert (options.untethered_window_limit_ms, options.untethered_linger_ms) == (60, 70)
    assert (options.untethered_resting_ms, options.timer_interval_ms) == (80, 30)
    assert (defaults.window_limit_ms, defaults.linger_ms, defaults.resting_ms) == (60, 70, 80)


@pytest.mark.parametrize(
    ("timer_interval_ms", "timeout_ms"), [(1, 2), (2, 3), (1_000, 1_001), (1_000, 3_600_000)]
)
def test_a_media_driver_starts_at_the_limits_of_the_section(directory, timer_interval_ms, timeout_ms):
    names = [f"untethered_{name}_timeout_ms" for name in ("window_limit", "linger", "resting")]
    section = AeronSection(
        dir=directory,
        media_driver="embedded",
        timer_interval_ms=timer_interval_ms,
        **dict.fromkeys(names, timeout_ms),
    )
    with aeron.open_media_driver(section) as driver, aeron.connect(section) as client:
        client.add_publication("aeron:ipc", 1)
        assert driver.is_alive()


class Worker:
    name = "worker"

    def on_start(self) -> None: ...

    def do_work(self) -> int:
        return 5

    def on_close(self) -> None: ...


@pytest.mark.req("WIRE-15.16-2")
def test_counters_of_agents_are_aeron_counters(directory):
    section = AeronSection(dir=directory, media_driver="embedded")
    with aeron.open_media_driver(section) as driver, aeron.connect(section) as client:
        invoker = AgentInvoker(Worker(), counters=AeronCounters(client))
        invoker.start()
        for _ in range(3):
            invoker.invoke()
        (work,) = read_counters(directory, type_id=CounterType.AGENT_WORK.type_id)
        assert (work.label, work.value, work.owner_id) == ("worker: work", 15, client.client_id)
        with make_runner(AgentsSection(), Worker(), counters=AeronCounters(client)):
            assert len(read_counters(directory, type_id=CounterType.AGENT_CYCLES.type_id)) == 2
        # A media driver that goes away must not take the agent with it.
        driver.close()
        invoker.invoke()
        assert invoker.counters[CounterType.AGENT_WORK].value == 20
        invoker.close()

"""`tpool discover` and `tpool discovery run`, as people type them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridges import free_endpoints
from tensor_pool.ops.cli import exit_codes
from tensor_pool.testing import Cluster, wait_until

PERIOD_MS = 100


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A host whose driver tells a registry of its streams, and the configuration of those who ask it."""
    feed, queries = free_endpoints(2)
    directory = tmp_path_factory.mktemp("registry")
    registry, client = directory / "registry.toml", directory / "client.toml"
    registry.write_text(
        f'[discovery]\nchannel = "aeron:udp?endpoint={queries}"\n'
        f'[[discovery.sources]]\nchannel = "aeron:udp?endpoint={feed}"\n'
    )
    client.write_text(
        f'[discovery]\nstream_id = 4711\n[[discovery.providers]]\nchannel = "aeron:udp?endpoint={queries}"\n'
        f'[[discovery.registries]]\nchannel = "aeron:udp?endpoint={feed}"\nstream_id = 7001\n'
    )
    settings = {"driver.announce_interval_ms": PERIOD_MS, "discovery.host": "lab-a"}
    with Cluster(settings, driver=False) as host:
        running = host.start("discovery", "run", f"--config={registry}", "--format=jsonl")
        assert json.loads(running.read_line())["stream_id"] == 7000
        host.start_driver(f"--config={client}")
        yield host, client
        assert running.terminate() == exit_codes.OK


def test_a_stream_is_found_through_the_registry(
    registered: tuple[Cluster, Path], tpool: Callable[..., Any]
) -> None:
    host, client = registered
    where = (f"--config={client}", f"--aeron-dir={host.aeron_dir}")

    def found(*arguments: str) -> list[dict[str, object]]:
        outcome = tpool("discover", "--format=json", *arguments, *where)
        streams: list[dict[str, object]] = json.loads(outcome.out)
        assert outcome.code == (exit_codes.OK if streams else exit_codes.PROBLEMS)
        return streams

    with host.connect() as pool, pool.producer("left", dtype="uint8", shape=(4,), metadata={"tags": "cam"}):
        (stream,) = wait_until(lambda: found("--tag", "cam"), timeout_s=30)
        assert (stream["name"], stream["host"]) == ("left", "lab-a")
        assert found("--tag", "cam", "--name", "LEFT") == []
        shown = tpool("discover", "--tag", "host:lab-a", *where).out
        assert "left" in shown.splitlines()[1]


@pytest.mark.parametrize("filters", [("--tag", "CAM"), ("--tag", "cam,lab"), ("--name", "LEFT")])
def test_who_finds_nothing_hears_what_to_try(
    registered: tuple[Cluster, Path], tpool: Callable[..., Any], filters: tuple[str, ...]
) -> None:
    host, client = registered
    outcome = tpool(
        "discover", *filters, f"--config={client}", f"--aeron-dir={host.aeron_dir}", "--format=json"
    )
    assert (outcome.code, json.loads(outcome.out)) == (exit_codes.PROBLEMS, [])
    (line,) = outcome.err.splitlines()
    assert "Case counts" in line
    assert "--tag ONE --tag OTHER" in line


@pytest.mark.parametrize("option", ["--tag", "--name"])
@pytest.mark.parametrize("value", ["", "ü", "x" * 257])
def test_what_no_stream_can_be_called_is_refused(tpool: Callable[..., Any], option: str, value: str) -> None:
    outcome = tpool("discover", option, value)
    assert (outcome.code, outcome.out) == (exit_codes.USAGE, "")
    assert "1 to 256 ASCII characters" in outcome.err
    assert "try:" in outcome.err


def test_nobody_answers(registered: tuple[Cluster, Path], tmp_path: Path, tpool: Callable[..., Any]) -> None:
    nobody = tmp_path / "nobody.toml"
    nobody.write_text("[discovery]\nstream_id = 4712\n")
    where = (f"--config={nobody}", f"--aeron-dir={registered[0].aeron_dir}")
    outcome = tpool("discover", "--timeout", "0.3", *where)
    assert outcome.code == exit_codes.NO_DRIVER
    assert f"--aeron-dir {registered[0].aeron_dir}`" in outcome.err


def test_a_registry_is_asked_with_its_own_configuration(tmp_path: Path, tpool: Callable[..., Any]) -> None:
    """On a host without SHM driver; nobody is missed who need not be there."""
    feed, queries = free_endpoints(2)
    registry = tmp_path / "registry.toml"
    registry.write_text(
        f'[discovery]\nchannel = "aeron:udp?endpoint={queries}"\n'
        f'[[discovery.sources]]\nchannel = "aeron:udp?endpoint={feed}"\n'
    )
    with Cluster(driver=False) as host:
        running = host.start("discovery", "run", f"--config={registry}", "--format=jsonl")
        running.read_line()
        outcome = tpool("discover", f"--config={registry}", f"--aeron-dir={host.aeron_dir}", "--format=json")
        assert (json.loads(outcome.out), outcome.err) == ([], "")
        assert outcome.code == exit_codes.PROBLEMS
        running.terminate()


@pytest.fixture
def overfull(tmp_path: Path) -> Iterator[tuple[Cluster, Path]]:
    """A host whose driver answers, beside a registry that can't tell of more than one stream."""
    feed, queries = free_endpoints(2)
    registry, driver = tmp_path / "overfull.toml", tmp_path / "asks-both.toml"
    registry.write_text(
        f'[discovery]\nmax_results = 1\nchannel = "aeron:udp?endpoint={queries}"\n'
        f'[[discovery.sources]]\nchannel = "aeron:udp?endpoint={feed}"\n'
    )
    driver.write_text(
        f'[[discovery.providers]]\nchannel = "aeron:udp?endpoint={queries}"\n'
        f'[[discovery.registries]]\nchannel = "aeron:udp?endpoint={feed}"\nstream_id = 7001\n'
    )
    settings = {"driver.announce_interval_ms": PERIOD_MS, "discovery.host": "lab-b"}
    with Cluster(settings, driver=False) as host:
        running = host.start("discovery", "run", f"--config={registry}", "--format=jsonl")
        running.read_line()
        host.start_driver(f"--config={driver}")
        yield host, driver
        running.terminate()


def test_a_provider_that_fails_is_named(overfull: tuple[Cluster, Path], tpool: Callable[..., Any]) -> None:
    host, file = overfull
    where = (f"--config={file}", f"--aeron-dir={host.aeron_dir}", "--format=json")
    with (
        host.connect() as pool,
        pool.producer("one", dtype="uint8", shape=(4,)),
        pool.producer("two", dtype="uint8", shape=(4,)),
    ):
        outcome = wait_until(lambda: refused(tpool("discover", *where)), timeout_s=30)
        assert sorted(stream["name"] for stream in json.loads(outcome.out)) == ["one", "two"]
        assert "more than 1 streams match" in outcome.err
        assert outcome.code == exit_codes.PROBLEMS


def refused(outcome: Any) -> Any:
    return outcome if "says:" in outcome.err else None


def test_a_provider_that_is_silent_is_named(
    registered: tuple[Cluster, Path], tmp_path: Path, tpool: Callable[..., Any]
) -> None:
    host, client = registered
    (nobody,) = free_endpoints(1)
    file = tmp_path / "silent.toml"
    file.write_text(f'{client.read_text()}[[discovery.providers]]\nchannel = "aeron:udp?endpoint={nobody}"\n')
    where = (f"--config={file}", f"--aeron-dir={host.aeron_dir}", "--format=json", "--timeout=0.5")
    with host.connect() as pool, pool.producer("seen", dtype="uint8", shape=(4,)):
        outcome = wait_until(lambda: listing(tpool("discover", "--name=seen", *where)), timeout_s=30)
        assert [stream["name"] for stream in json.loads(outcome.out)] == ["seen"]
        assert f"{nobody}, stream 7000, does not answer" in outcome.err
        assert outcome.code == exit_codes.OK


def listing(outcome: Any) -> Any:
    return outcome if outcome.code == exit_codes.OK else None


def test_a_registry_without_sources_says_what_it_needs(
    registered: tuple[Cluster, Path], tpool: Callable[..., Any]
) -> None:
    outcome = tpool("discovery", "run", f"--aeron-dir={registered[0].aeron_dir}")
    assert outcome.code == exit_codes.USAGE
    assert "discovery.sources" in outcome.err

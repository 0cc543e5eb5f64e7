"""Every command that prints data prints it as a table, as JSON and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from pool_hosts import TALKATIVE
from tensor_pool.ops.cli.exit_codes import OK
from tensor_pool.ops.cli.root import tpool as root
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster
from written_recordings import numbered

COMMANDS = [
    "doctor",
    "streams",
    "info camera",
    "hz camera --seconds 0.2",
    "bw camera --seconds 0.2",
    "delay camera --seconds 0.2",
    "drops camera --listen 0",
    "snap camera {directory}/frame.npy",
    "clients --listen 0",
    "leases",
    "revoke {lease} --yes",
    "driver status",
    "discover --name camera",
    "supervisor status",
    "supervisor status --streams",
    "supervisor log",
    "services",
    "send driver log.level=info",
    "events --count 1",
    "tap announce --count 1",
    "tap bridge --channel aeron:ipc --count 1",
    "shm ls",
    "shm inspect {stream}",
    "shm verify",
    "shm gc --dry-run",
    "counters",
    "errors",
    "record camera --out {directory}/new --frames 3",
    "recordings ls {directory}/recording",
    "recordings info {directory}/recording",
    "recordings push {directory}/recording {directory}/copy",
    "verify {directory}/recording",
    "replay {directory}/recording --speed 0",
    "export npy {directory}/recording {directory}/arrays --overwrite",
    "pipeline list",
    "bench latency --bytes 4096 --seconds 0.2 --slots 8",
    "media status",
    "config check {directory}/wrong.toml",
    "config explain log.level",
    "config show",
    "version",
]
OWN_OUTPUT = {
    # It tells a story.
    "demo",
    # What they write has its form from elsewhere.
    *("wire decode", "wire encode", "config init", "completion"),
}
SEEN_BY_ANOTHER = {
    *("bench throughput", "bench bridge", "pipeline run", "pipeline monitor", "bridge run", "bridge status"),
    *("pipeline serve", "discovery run", "limit"),
}
"""Benchmarks take seconds, and print as ``bench latency`` does, by the same code; those of the pipeline need
Spark and are tried in ``tests/spark`` (``test_jobs_command.py``, ``test_frame_requests.py``), bridges in
``test_bridge_command.py``, registries in ``test_discovery_command.py``, rate limiters in
``test_limit_command.py``."""
SERVICES = ["up", "driver run", "media run", "supervisor run"]
"""They run until they are stopped, and say where they are."""
WITHOUT_A_HOST = ("config check", "version", "recordings", "verify", "export", "pipeline")
"""These take no configuration."""
FEED = """
from tensor_pool import wire
from tensor_pool.host.aeron import connect
from tensor_pool.wire.messages import BridgeFrameChunk
chunk = wire.encode(BridgeFrameChunk(10_000, 1, 7, 1, 2, 64, 4, 68, False, b"", b"data"))
chunks = connect(config.aeron).add_publication("aeron:ipc", 3000)
while True:
    out.publish(np.zeros(16, 'uint8'))
    chunks.offer(chunk)
    time.sleep(0.01)
"""


def every_command(
    group: click.Group = root, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_no_command_is_left_out() -> None:
    listed = {name for name, _ in every_command()}
    tried = {name for name in listed if any(f"{line} ".startswith(f"{name} ") for line in COMMANDS)}
    assert listed - tried == OWN_OUTPUT | SEEN_BY_ANOTHER | set(SERVICES)


def test_every_command_offers_the_same_formats() -> None:
    for name, command in every_command():
        offered = [param.type for param in command.params if "--format" in param.opts]
        assert bool(offered) == (name not in OWN_OUTPUT), name
        for choice in offered:
            assert isinstance(choice, click.Choice)
            assert list(choice.choices)[:3] == ["table", "json", "jsonl"], name


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with Cluster(TALKATIVE) as cluster:
        camera = cluster.run_python(
            'out = pool.producer("camera", dtype="uint8", shape=(16,), slots=64)\n'
            f"print(out.stream_id)\n{FEED}"
        )
        cluster.stream_id = camera.read_line()
        cluster.start("supervisor", "run").read_line()
        yield cluster


@pytest.fixture(scope="module")
def pool(host: Cluster) -> Iterator[Pool]:
    with host.connect() as connected:
        yield connected


@pytest.mark.parametrize("line", COMMANDS)
def test_each_format(tpool: Callable, host: Cluster, pool: Pool, tmp_path: Path, line: str) -> None:
    (tmp_path / "wrong.toml").write_text("[log]\nlevel = 5\n")
    numbered(tmp_path / "recording", "recorded", count=3)

    def ask(output_format: str) -> str:
        with pool.producer("short-lived", dtype="uint8", shape=(16,)) as out:
            (lease,) = (json.loads(row) for row in leases_of(out.stream_id))
            known = {"stream": host.stream_id, "lease": lease["lease_id"], "directory": tmp_path}
            arguments = line.format(**known).split()
            options = [] if line.startswith(WITHOUT_A_HOST) else settings
            outcome = tpool(*arguments, "--format", output_format, *options)
        # A doctor may have something to say about the machine, and this file is wrong.
        assert outcome.code == OK or line.startswith(("doctor", "config check", "drops")), outcome.err
        return outcome.out

    def leases_of(stream_id: int) -> list[str]:
        return tpool("leases", "--stream", str(stream_id), "--format", "jsonl", *settings).out.splitlines()

    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    table, document, lines = ask("table"), json.loads(ask("json")), ask("jsonl").splitlines()
    assert table
    assert not table.startswith(("{", "["))
    rows = [json.loads(row) for row in lines]
    assert all(isinstance(row, dict) for row in rows)
    if isinstance(document, dict):
        # Lines may come one by one before the whole, and say which they are.
        assert set(rows[-1]) - {"kind"} == set(document)
    elif document:
        assert set(rows[0]) == set(document[0])
    else:
        assert rows == []


def test_a_record_stays_on_one_line(tpool: Callable, host: Cluster) -> None:
    """Also one with tables inside: that is what jsonl is for."""
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    outcome = tpool("shm", "inspect", host.stream_id, "--format", "jsonl", *settings)
    (line,) = outcome.out.splitlines()
    assert json.loads(line)["superblock"]["stream_id"] == int(host.stream_id)


@pytest.mark.parametrize("command", SERVICES)
@pytest.mark.parametrize("output_format", ["table", "json", "jsonl"])
def test_services_say_where_they_are(command: str, output_format: str) -> None:
    with Cluster(driver=False) as host:
        if command == "media run":
            host.settings["aeron.dir"] = f"{host.directory}/another"
        service = host.start(*command.split(), "--format", output_format)
        if output_format == "json":
            lines = [service.read_line()]
            while lines[-1] != "}":
                lines.append(service.read_line())
            said = "".join(lines)
        else:
            said = service.read_line()
        if output_format == "table":
            assert f"aeron-dir={host.settings['aeron.dir']}" in said
        else:
            assert json.loads(said)["aeron_dir"] == host.settings["aeron.dir"]
        assert service.terminate() == OK

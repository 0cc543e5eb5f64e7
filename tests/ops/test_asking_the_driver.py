"""``tpool streams|leases|clients|revoke|driver status`` over real Aeron, from a driver with a script."""

import json
from collections.abc import Callable, Iterator

import pytest

from scripted_driver import ScriptedDriver, lease, stream
from tensor_pool.runtime import AgentRunner, make_idle
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
from tensor_pool.transport.media import temporary_aeron_dir
from tensor_pool.wire.messages import RevokeLease, Role


@pytest.fixture
def driver(client: AeronClient) -> Iterator[ScriptedDriver]:
    scripted = ScriptedDriver(client)
    scripted.streams = [stream(10000, "camera-1"), stream(10001, "camera-2", consumer_count=0)]
    scripted.leases = [lease(1, role=Role.PRODUCER), lease(2), lease(3, stream_id=10001)]
    with AgentRunner(scripted, idle=make_idle("sleep", max_pause_s=0.001)):
        yield scripted


@pytest.fixture
def ask(tpool: Callable, media: EmbeddedMediaDriver) -> Callable:
    return lambda *arguments: tpool(*arguments, "--aeron-dir", media.aeron_dir)


def rows(outcome: object) -> list[dict[str, object]]:
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_streams(ask: Callable, driver: ScriptedDriver) -> None:
    found = rows(ask("streams", "--format", "json"))

    assert [row["name"] for row in found] == ["camera-1", "camera-2"]
    assert found[0]["shape"] == [480, 640]
    table = ask("streams").out.splitlines()
    assert table[0].startswith("STREAM ID  NAME      STATE  DTYPE   SHAPE")
    assert "480x640" in table[1]


GONE = {"epoch": None, "producer_id": None, "consumer_count": 0}
"""What the driver says of a stream of which it only knows the name."""


def test_streams_that_ended_are_listed_when_asked_for(ask: Callable, driver: ScriptedDriver) -> None:
    driver.streams += [
        stream(10002, "abandoned", producer_id=None),
        stream(10003, "yesterday", **GONE),
        stream(10004, "waited-for", **GONE, activity_timestamp_ns=None),
    ]
    found = rows(ask("streams", "--all", "--format", "json"))
    assert {row["name"]: row["state"] for row in found} == {
        "camera-1": "live",
        "camera-2": "live",
        "abandoned": "waiting",
        "yesterday": "ended",
        "waited-for": "named",
    }
    shown = [row["name"] for row in rows(ask("streams", "--format", "json"))]
    assert shown == ["camera-1", "camera-2", "abandoned"]
    abandoned = ["10002", "abandoned", "waiting"]
    lines = ask("streams").out.splitlines()
    assert abandoned in [line.split()[:3] for line in lines], "nobody takes it for one that runs"
    lines = ask("streams", "--all").out.splitlines()[1:]
    assert lines[3].split()[:3] == ["10003", "yesterday", "ended"]


def test_streams_watched(ask: Callable, driver: ScriptedDriver) -> None:
    outcome = ask("streams", "--watch", "--count", "2", "--interval", "0.1", "--format", "jsonl")

    assert [json.loads(line)["stream_id"] for line in outcome.out.splitlines()] == [10000, 10001] * 2


def test_leases_and_clients(ask: Callable, driver: ScriptedDriver) -> None:
    assert [row["lease_id"] for row in rows(ask("leases", "--format", "json"))] == [1, 2, 3]
    assert [row["lease_id"] for row in rows(ask("leases", "--stream", "10001", "--format", "json"))] == [3]
    assert [row["role"] for row in rows(ask("clients", "--format", "json"))] == [
        "producer",
        "consumer",
        "consumer",
    ]
    assert ask("clients").out.splitlines()[0].split()[:2] == ["CLIENT", "ID"]


def test_driver_status(ask: Callable, driver: ScriptedDriver) -> None:
    found = json.loads(ask("driver", "status", "--format", "json").out)

    assert (found["state"], found["pid"], found["streams"]) == ("running", 4321, 2)
    assert "state                   running" in ask("driver", "status").out


def test_a_watched_json_document_ends_with_its_count(ask: Callable, driver: ScriptedDriver) -> None:
    found = rows(ask("streams", "--watch", "--count", "2", "--interval", "0.1", "--format", "json"))
    assert [row["name"] for row in found] == ["camera-1", "camera-2"] * 2
    assert len({row["at"] for row in found}) == 2


def test_leases_by_the_name_of_a_stream(ask: Callable, driver: ScriptedDriver) -> None:
    assert [row["lease_id"] for row in rows(ask("leases", "--stream", "camera-2", "--format", "json"))] == [3]
    refused = ask("leases", "--stream", "camra-2")
    assert refused.code == 1
    assert refused.err.startswith("error: there is no stream 'camra-2'\n   at: /")


def test_a_tap_takes_names_too(ask: Callable, driver: ScriptedDriver) -> None:
    assert ask("tap", "qos", "--stream", "camera-2", "--seconds", "0.1").code == 0
    assert "there is no stream 'nosuch'" in ask("tap", "qos", "--stream", "nosuch", "--seconds", "0.1").err


class TestRevoke:
    def test_yes(self, ask: Callable, driver: ScriptedDriver) -> None:
        outcome = ask("revoke", "2", "--yes", "--reason", "service", "--format", "json")
        (request,) = (r for r in driver.asked if isinstance(r, RevokeLease))

        assert json.loads(outcome.out)["revoked"] == 2
        assert (request.stream_id, request.reason) == (10000, "service")
        assert [entry.lease_id for entry in driver.leases] == [1, 3]

    def test_no(self, ask: Callable, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt="": "n")
        outcome = ask("revoke", "2")

        assert outcome.code == 1
        assert outcome.err.splitlines()[-1].startswith("nothing was done")
        assert not [r for r in driver.asked if isinstance(r, RevokeLease)]

    def test_one_that_there_is_not(
        self, ask: Callable, driver: ScriptedDriver, media: EmbeddedMediaDriver
    ) -> None:
        outcome = ask("revoke", "77", "--yes")

        assert outcome.code == 1
        assert outcome.err.splitlines() == [
            "error: there is no lease 77",
            f"   at: {media.aeron_dir}",
            "  try: `tpool leases` lists them",
        ]

    def test_the_token_comes_from_the_environment(
        self, ask: Callable, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver.token = "secret"

        refused = ask("revoke", "2", "--yes")
        assert refused.code == 1
        assert "REJECTED: the token is wrong" in refused.err
        monkeypatch.setenv("TPOOL_ADMIN_TOKEN", "secret")
        assert ask("revoke", "2", "--yes").code == 0


class TestWithoutADriver:
    COMMANDS = (
        *(["streams"], ["leases"], ["clients"], ["driver", "status"], ["revoke", "1", "--yes"]),
        *(["info", "a"], ["hz", "a"], ["snap", "a", "a.npy"], ["drops", "a"]),
    )

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_nobody_answers(self, ask: Callable, media: EmbeddedMediaDriver, command: list[str]) -> None:
        outcome = ask(*command, "--timeout", "0.2")

        start = f"`tpool driver run --aeron-dir {media.aeron_dir}`"
        assert outcome.code == 3
        assert outcome.err.splitlines() == [
            "error: no SHM driver answers",
            f"   at: {media.aeron_dir}",
            f"  try: start one with {start}; `tpool doctor` says what is missing",
        ]

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_no_media_driver(self, tpool: Callable, command: list[str]) -> None:
        outcome = tpool(*command, "--aeron-dir", temporary_aeron_dir())

        assert outcome.code == 3
        assert "no live media driver serves" in outcome.err


def test_what_a_driver_serves_and_leases_is_never_collected(
    tpool: Callable, media: EmbeddedMediaDriver, driver: ScriptedDriver, tmp_path
) -> None:
    from tensor_pool import _native

    driver.leases = [lease(1, epoch=6)]
    for epoch in (5, 6, 7):
        directory = tmp_path / "shm/tensorpool-ada/default/10000" / str(epoch)
        directory.mkdir(parents=True)
        _native.create_ring(directory, stream_id=10000, epoch=epoch, nslots=8, pools=[(1, 1024)])
        for file in directory.iterdir():
            with file.open("r+b") as opened:
                opened.seek(56)
                opened.write((1).to_bytes(8, "little"))
    places = ["--set", f"shm.shm_base_dir={tmp_path / 'shm'}", "--aeron-dir", media.aeron_dir]
    listed = rows(tpool("shm", "ls", "--format", "json", *places))
    collected = rows(tpool("shm", "gc", "--yes", "--format", "json", *places))

    assert {row["epoch"]: row["state"] for row in listed} == {5: "stale", 6: "leased", 7: "current"}
    assert {row["epoch"]: row["leases"] for row in listed} == {5: 0, 6: 1, 7: 0}
    assert [row["epoch"] for row in collected] == [5]


def test_the_doctor_hears_the_driver(ask: Callable, driver: ScriptedDriver) -> None:
    found = {row["check"]: row for row in json.loads(ask("doctor", "--format", "json").out)}

    assert found["SHM driver"]["status"] == "ok"
    assert "process 4321, 0.1.0, 2 streams" in found["SHM driver"]["found"]

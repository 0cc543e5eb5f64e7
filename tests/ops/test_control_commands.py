"""`tpool send`, `tpool services`, `tpool events`, and commands that can be commanded themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import tensor_pool as tp
from pool_hosts import TALKATIVE
from tensor_pool.control import Command, FrameRef, Property, reading
from tensor_pool.ops.cli.exit_codes import NO_DRIVER, OK, PROBLEMS, USAGE
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.testing import Cluster, wait_until
from written_recordings import numbered

CAMERA = """
    out = pool.producer("camera", dtype="uint8", shape=(16,), slots=64)
    print("ready")
    while True:
        out.publish(np.zeros(16, "uint8"))
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with Cluster({**TALKATIVE, "control.status_period_ms": 200}) as cluster:
        assert cluster.run_python(CAMERA).read_line() == "ready"
        yield cluster


@pytest.fixture
def done() -> list:
    return []


@pytest.fixture
def lamp(host: Cluster, done: list) -> Iterator[tp.Service]:
    with tp.Service(
        "lamp",
        doc="Shines.",
        properties={
            "brightness": Property(float, default=0.5, least=0, most=1, doc="How bright."),
            "label": Property(str, default=""),
            "hours": reading(int, "How long it shone."),
        },
        commands={
            "blink": Command(done.append, doc="Off and on."),
            "keep": Command(done.append, kind=FrameRef),
            "raw": Command(done.append, kind=bytes),
        },
        config=host.config,
    ) as service:
        yield service


def ask(tpool, host, *arguments):
    return tpool(*arguments, "--set", f"aeron.dir={host.aeron_dir}", "--set", "control.status_period_ms=200")


def test_a_service_is_told_and_answers(tpool, host, lamp, done):
    code, out, _ = ask(tpool, host, "send", "service:lamp", "brightness=1", "blink", "keep=ref:10000/3/42")
    assert code == OK
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["service:lamp", "brightness"],
        ["service:lamp", "blink"],
        ["service:lamp", "keep"],
    ]
    assert (lamp["brightness"], done) == (1.0, [None, FrameRef(10_000, 3, 42)])


def test_what_was_accepted_before_a_refusal_is_shown(tpool, host, lamp):
    code, out, told = ask(
        tpool, host, "send", "lamp", "brightness=1", "brightness=7", "blink", "--format", "json"
    )
    assert (code, lamp["brightness"]) == (PROBLEMS, 1.0)
    assert [(row["key"], row["value"]) for row in json.loads(out)] == [("brightness", 1)]
    assert "7.0 is not a number" in told


def test_values_are_what_they_look_like_or_what_is_said(tpool, host, lamp, done):
    assert ask(tpool, host, "send", "lamp", "label=on the left", "raw=hex:00ff")[0] == OK
    assert (lamp["label"], done) == ("on the left", [b"\x00\xff"])
    code, _, told = ask(tpool, host, "send", "lamp", "label=42")
    assert code == PROBLEMS
    assert "service:lamp does not accept label: 42 is not text" in told
    assert ask(tpool, host, "send", "lamp", "label=42", "--as", "string")[0] == OK
    assert lamp["label"] == "42"
    answer = ask(tpool, host, "send", "lamp", "brightness=0.25", "--correlation-id", "7", "--format", "json")
    (row,) = json.loads(answer[1])
    assert (row["key"], row["value"], row["correlation_id"]) == ("brightness", 0.25, 7)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("lamp", "hours=1"), PROBLEMS, "only the service itself sets it"),
        (("lamp", "colour=red"), PROBLEMS, "there is no such key; there are brightness, label"),
        (("stove", "on=true", "--timeout", "0.2"), PROBLEMS, "service:stove does not answer"),
        (("la mp", "on=true"), USAGE, "names no service"),
        (("lamp", "o n=true"), USAGE, "is no key"),
        (("lamp", "brightness=much", "--as", "float64"), USAGE, "'much' is no float64"),
        (("lamp", "brightness=300", "--as", "uint8"), USAGE, "300 is no UINT8"),
        (("lamp", "keep=ref:1/2"), USAGE, "is no frame"),
        (("lamp",), USAGE, "Missing argument"),
    ],
)
def test_what_is_wrong_is_said(tpool, host, lamp, *, arguments, code, said):
    found, out, told = ask(tpool, host, "send", *arguments)
    assert (found, out) == (code, "")
    assert said in told
    assert "Traceback" not in told


def test_without_a_media_driver_it_says_so(tpool, tmp_path):
    code, _, told = tpool("send", "lamp", "on=true", "--set", f"aeron.dir={tmp_path}/none")
    assert code == NO_DRIVER
    assert "media driver" in told


def test_services_are_listed_with_what_they_take(tpool, host, lamp):
    code, out, _ = ask(tpool, host, "services", "--format", "json")
    assert code == OK
    found = {row["service"]: row for row in json.loads(out)}
    assert {"service:driver", "service:lamp"} <= found.keys()
    assert found["service:lamp"]["properties"] == {"brightness": 0.5, "label": "", "hours": 0}
    assert found["service:lamp"]["commands"] == ["blink", "keep", "raw"]
    code, out, _ = ask(tpool, host, "services", "lamp")
    assert "brightness  0.5    a number from 0 up to 1" in out
    assert "command with a frame" in out


def test_a_service_that_is_not_there_is_named(tpool, host):
    code, out, told = ask(tpool, host, "services", "stove", "--listen", "0.1", "--format", "json")
    assert (code, json.loads(out)) == (PROBLEMS, [])
    assert told == (
        "no service 'stove' tells of itself; `tpool services` without a name lists those that do\n"
    )


def test_events_are_shown_and_chosen(tpool, host, lamp):
    code, out, _ = ask(tpool, host, "events", "--tag", "lamp", "--format", "jsonl")
    assert code == OK
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["service"] for row in rows} == {"service:lamp"}
    assert {"brightness", "label", "hours", "service.info"} <= {row["key"] for row in rows}
    _, out, _ = ask(tpool, host, "events", "--key", "hours", "--count", "2", "--format", "json")
    assert [row["key"] for row in json.loads(out)] == ["hours", "hours"]
    assert ask(tpool, host, "events", "--follow", "--format", "json")[0] == USAGE


def test_a_recording_is_switched_by_commands(tpool, host, tmp_path):
    place = tmp_path / "recording"
    recorder = host.start("record", "camera", "--out", str(place), "--standby", "--instance", "lab")
    with tp.ControlClient(config=host.config) as control:

        def recorder_values():
            known = control.services(only="recorder:lab", timeout_s=5)
            return known[0].values if known else {}

        wait_until(recorder_values, timeout_s=30)
        assert recorder_values()["record.active"] is False
        assert ask(tpool, host, "send", "recorder:lab", "record.enable=true")[0] == OK
        wait_until(lambda: recorder_values()["record.frames"] > 10, timeout_s=30)
        assert ask(tpool, host, "send", "recorder:lab", "record.enable=false")[0] == OK
        wait_until(lambda: not recorder_values()["record.active"], timeout_s=30)
        frames = recorder_values()["record.frames"]
        assert recorder_values()["record.frames"] == frames, "nothing more while it is off"
        assert len(list(Recording(place)["camera"].frames())) == frames
        ask(tpool, host, "send", "recorder:lab", "record.enable=true")
        wait_until(lambda: recorder_values()["record.frames"] > frames + 10, timeout_s=30)
    assert recorder.terminate() == OK
    assert tpool("verify", str(place))[0] == OK


def test_a_replay_is_held_hurried_and_ended_by_commands(tpool, host, tmp_path):
    numbered(tmp_path / "recording", count=200)  # two seconds
    replay = host.start("replay", str(tmp_path / "recording"), "--loop", "--prefix", "again/")
    with tp.ControlClient(config=host.config) as control:

        def values():
            known = control.services(only="replay", timeout_s=5)
            return known[0].values if known else {}

        wait_until(lambda: values().get("replay.frames"), timeout_s=30)
        control.send("replay", "replay.pause", value=True)
        held = wait_until(lambda: (now := values()["replay.frames"]) == values()["replay.frames"] and now)
        assert values()["replay.frames"] == held
        control.send("replay", "replay.speed", 100.0)
        control.send("replay", "replay.pause", value=False)
        wait_until(lambda: values()["replay.frames"] > held + 400, timeout_s=30)
        control.send("replay", "replay.stop")
    assert replay.wait() == OK

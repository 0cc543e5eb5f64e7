"""Frames that are named: by a command to the service of the pipeline, or on the command line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time

import numpy as np
import pytest
from PIL import Image

from recordings import record, record_arrays
from tensor_pool.control.values import FrameRef
from tensor_pool.errors import CommandRefusedError, ConfigError
from tensor_pool.host.control import ControlClient
from tensor_pool.ops.cli.root import run
from tensor_pool.pipeline.jobs import work_on_frames
from tensor_pool.pipeline.jobs.pipeline_service import PipelineService
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.testing import wait_until
from tensor_pool.transport import EmbeddedMediaDriver

STREAM, EPOCH = 10_000, 7
QUICK = {"control.status_period_ms": 200}


def ref(seq, epoch=EPOCH, stream_id=STREAM):
    return FrameRef(stream_id, epoch, seq)


def damage(recording, stream, values):
    """Changes a byte of the frame that has these values."""
    for path in recording[stream].place.local.glob("*.arrow"):
        content = bytearray(path.read_bytes())
        if values.tobytes() in content:
            content[content.index(values.tobytes())] ^= 0xFF
            path.write_bytes(content)


@pytest.fixture(scope="module")
def pictures():
    random = np.random.default_rng(5)
    return (
        random.integers(0, 250, (9, 24, 32), dtype="uint8")
        + np.arange(4, 13, dtype="uint8")[:, None, None] % 4
    )


@pytest.fixture(scope="module")
def recording(tmp_path_factory, pictures):
    """A stream with a gap, one of pictures of which one is damaged, one that can't be drawn."""
    directory = tmp_path_factory.mktemp("recording")
    record(directory, "camera/1", frames=40)
    record_arrays(directory, pictures, "pictures", stream_id=11)
    record_arrays(directory, np.zeros((2, 2, 2, 2, 2), "uint8"), "cubes", stream_id=12)
    damage(Recording(directory), "pictures", pictures[6])
    return directory


@pytest.fixture(scope="module")
def media():
    with EmbeddedMediaDriver.temporary() as driver:
        yield driver


@pytest.fixture(scope="module")
def heard(media):
    """Everything that services tell, by correlation id."""
    found, over = {}, threading.Event()

    def hear():
        with ControlClient(aeron_dir=media.aeron_dir) as control:
            while not over.is_set():
                for event in control.events(timeout_s=0.1):
                    if event.key.endswith((".done", ".failed")):
                        found[event.correlation_id] = (event.key, json.loads(event.value))

    thread = threading.Thread(target=hear)
    thread.start()

    def outcome(number, timeout_s=60.0):
        deadline = time.monotonic() + timeout_s
        while number not in found and time.monotonic() < deadline:
            time.sleep(0.01)
        return found.pop(number)

    outcome.all = found
    yield outcome
    over.set()
    thread.join()


@pytest.fixture
def serving(spark, media):
    @contextlib.contextmanager
    def serving(recording, out, **options):
        with (
            PipelineService(
                spark, recording, out, aeron_dir=media.aeron_dir, settings=QUICK, **options
            ) as service,
            ControlClient(aeron_dir=media.aeron_dir, settings=QUICK) as control,
        ):
            yield service, lambda *command: control.send("pipeline", *command).correlation_id

    return serving


def test_named_frames_are_drawn_and_measured_or_it_is_said_why_not(spark, recording, tmp_path, pictures):
    asked = [ref(5, stream_id=11), ref(6, stream_id=11), ref(9, stream_id=11), ref(1, stream_id=12), ref(8)]
    drawn = work_on_frames(spark, "thumbnails", recording, asked, tmp_path)
    assert [each.reason for each in drawn.frames] == [
        "",
        "its bytes are not those that were recorded",
        "it is not recorded yet: the newest frame of pictures is 7/8",
        "4 dimensions can not be drawn",
        "the recorder did not get it: lost",
    ]
    assert (drawn.done, drawn.failed, drawn.has_problems) == (1, 4, True)
    with Image.open(drawn.frames[0].values["file"]) as picture:
        values = np.asarray(picture).astype(float)
    # Values between the percentiles that are black and white are drawn in proportion: it is this very frame.
    assert np.corrcoef(values.ravel(), pictures[5].ravel())[0, 1] > 0.99
    measured = work_on_frames(spark, "statistics", recording, [ref(12), ref(5, stream_id=11)], tmp_path)
    found = [each.values for each in measured.frames]
    assert (found[0]["mean"], found[0]["minimum"], found[0]["size"]) == (12.0, 12.0, 6)
    assert found[1]["mean"] == pytest.approx(pictures[5].mean())
    assert found[1]["std"] == pytest.approx(pictures[5].std())
    with pytest.raises(ConfigError, match="the job quality takes no single frames"):
        work_on_frames(spark, "quality", recording, [ref(1)], tmp_path)


def test_a_frame_is_found_without_the_other_segments(spark, tmp_path):
    stream = record(tmp_path / "in", frames=40)["camera/1"]
    segments = stream.segments()
    assert len(segments) > 4
    wanted = next(each for each in segments if each.min_seq <= 25 <= each.max_seq)
    for each in segments:
        if each is not wanted:
            for ending in (".arrow", ".rows"):
                (stream.place.local / each.file.replace(".arrow", ending)).unlink()
    (found,) = work_on_frames(spark, "statistics", tmp_path / "in", [ref(25)], tmp_path).frames
    assert (found.reason, found.values["mean"]) == ("", 25.0)


def test_commands_are_accepted_at_once_and_told_later(
    serving, recording, media, heard, tmp_path, *, pictures
):
    told = {"recording": str(recording), "waiting": 0, "done": 3, "failed": 2}
    with serving(recording, tmp_path, wait_s=0) as (service, send):
        numbers = [
            send("thumbnail", ref(4, stream_id=11)),
            send("statistics", ref(4, stream_id=11)),
            send("thumbnail", ref(6, stream_id=11)),
            send("statistics", ref(99)),
            send("run", "lineage"),
        ]
        (drawn, measured, damaged, missing, ran) = (heard(number) for number in numbers)
        for command, said in (
            (
                ("thumbnail", ref(4, stream_id=99)),
                "no stream of the recording has the number 99; there are 11",
            ),
            (("thumbnail", 42), "42 is not a frame"),
            (("run", "nonsense"), "'nonsense' is not one of quality, latency"),
        ):
            with pytest.raises(CommandRefusedError, match=said):
                send(*command)
        with ControlClient(aeron_dir=media.aeron_dir) as control:
            # Readings are brought up to date several times a second.
            wait_until(lambda: control.services(only="pipeline")[0].values == told, what="the counts")
    file = tmp_path / "thumbnails" / "pictures" / "7-00000004.png"
    assert drawn == (
        "thumbnail.done",
        {
            "frame": "11/7/4",
            "stream": "pictures",
            "time": "1970-01-01T00:00:00.001000Z",
            "dtype": "uint8",
            "shape": [24, 32],
            "file": str(file),
        },
    )
    assert file.read_bytes()[1:4] == b"PNG"
    assert measured[0] == "statistics.done"
    assert measured[1]["mean"] == pytest.approx(pictures[4].mean())
    assert damaged == (
        "thumbnail.failed",
        {"frame": "11/7/6", "reason": "its bytes are not those that were recorded"},
    )
    assert missing[0] == "statistics.failed"
    assert "not recorded yet" in missing[1]["reason"]
    assert (ran[0], ran[1]["job"], ran[1]["has_problems"]) == ("run.done", "lineage", False)
    assert (tmp_path / "lineage.html").exists()
    assert service.tag == "service:pipeline"


def test_what_is_recorded_meanwhile_is_waited_for_and_the_queue_is_bounded(serving, heard, tmp_path):
    record(tmp_path / "in", frames=10)
    with serving(tmp_path / "in", tmp_path, wait_s=60, most_waiting=2) as (_, send):
        late, later = send("statistics", ref(3, epoch=8)), send("statistics", ref(5, stream_id=STREAM))
        assert heard(later)[1]["mean"] == 5.0
        never = send("statistics", ref(3, epoch=9))
        with pytest.raises(CommandRefusedError, match="2 requests are waiting already; ask again later"):
            send("statistics", ref(5))
        record(tmp_path / "in", frames=5, epoch=8)
        key, found = heard(late)
    assert (key, found["frame"], found["mean"]) == ("statistics.done", "10000/8/3", 3.0)
    # What waits at the end has failed, and that is told too.
    assert heard(never) == ("statistics.failed", {"frame": "10000/9/3", "reason": "the service ends"})


class GoneSpark:
    """A session whose Java was killed."""

    def __getattr__(self, name):
        raise ConnectionRefusedError(111, "Connection refused")


def test_without_java_it_ends_and_says_so(recording, media, heard, tmp_path):
    with (
        PipelineService(GoneSpark(), recording, tmp_path, aeron_dir=media.aeron_dir) as service,
        ControlClient(aeron_dir=media.aeron_dir) as control,
    ):
        assert service.is_running
        number = control.send("pipeline", "statistics", ref(5)).correlation_id
        reason = "Spark has ended; start this again"
        assert heard(number) == ("statistics.failed", {"frame": "10000/7/5", "reason": reason})
        assert not service.is_running
        assert str(service.error) == reason


def test_nobody_is_served_where_services_are_switched_off(spark, recording, media, tmp_path):
    with pytest.raises(ConfigError, match="nobody could command it"):
        PipelineService(
            spark, recording, tmp_path, aeron_dir=media.aeron_dir, settings={"control.enabled": False}
        )


@pytest.fixture
def tpool(spark, capsys):
    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_frames_on_the_command_line(tpool, recording, tmp_path):
    frames = ("--frame", "11/7/5", "--frame", "ref:11/7/6", "--frame", "11/3/1")
    arguments = ("pipeline", "run", "thumbnails", recording, "--out", tmp_path, *frames)
    code, table, err = tpool(*arguments, "--size", "16")
    assert (code, table.split()[:3]) == (1, ["FRAME", "STREAM", "TIME"]), err
    assert "2 of 3 frames: 11/7/6: its bytes are not those that were recorded; 11/3/1: it was never" in err
    found = json.loads((tmp_path / "thumbnails.json").read_text())["result"]
    assert (found["done"], found["failed"]) == (1, 2)
    with Image.open(found["frames"][0]["values"]["file"]) as picture:
        assert picture.size == (16, 12)
    assert "pictures 11/7/5" in (tmp_path / "thumbnails.html").read_text()
    one = ("pipeline", "run", "statistics", recording, "--out", tmp_path, "--frame", "10000/7/12")
    code, out, err = tpool(*one, "--format", "json")
    (frame,) = json.loads(out)["frames"]
    assert (code, frame["stream"], frame["values"]["mean"]) == (0, "camera/1", 12.0), err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("statistics", "--frame", "11/7"), "'11/7' is no frame: STREAM/EPOCH/SEQ"),
        (("latency", "--frame", "11/7/1"), "the job latency takes no single frames"),
        (("thumbnails", "--frame", "11/7/1", "--count", "3"), "takes no count for frames"),
        (("thumbnails", "--frame", "11/7/1", "--stream", "pictures"), "--frame names a frame"),
    ],
)
def test_frames_that_make_no_sense_are_refused(tpool, recording, arguments, said):
    name, *others = arguments
    code, out, err = tpool("pipeline", "run", name, recording, *others)
    assert (code, out) == (2, "")
    assert said in err


def test_serve_until_it_is_told_to_stop(tpool, recording, media, heard, tmp_path):
    numbers = []

    def command():
        with ControlClient(aeron_dir=media.aeron_dir) as control:
            known = control.services(only="pipeline:two", timeout_s=30)
            numbers.append(len(known))
            numbers.append(control.send("pipeline:two", "statistics", ref(12)).correlation_id)
            heard.last = heard(numbers[-1])
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=command)
    thread.start()
    code, out, err = tpool(
        *("pipeline", "serve", recording, "--out", tmp_path, "--instance", "two", "--format", "json"),
        *("--aeron-dir", media.aeron_dir, "--set", "control.status_period_ms=200"),
    )
    thread.join()
    assert (code, json.loads(out)["service"], numbers[0]) == (0, "service:pipeline:two", 1)
    assert heard.last[1]["mean"] == 12.0
    assert 'statistics.done {"frame":"10000/7/12"' in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{recording}", "--instance", "a b"), 2, "names no service"),
        (("/nowhere",), 1, "there is no recording in"),
        (("{recording}", "--set", "control.enabled=false"), 2, "control.enabled is false"),
        (("{recording}", "--aeron-dir", "{out}/none"), 3, "media driver"),
    ],
)
def test_what_is_wrong_with_serving_is_said_before_spark_starts(
    recording, tmp_path, capsys, monkeypatch, *, arguments, code, said
):
    monkeypatch.setattr("tensor_pool.ops.cli.pipeline.progress.spark_session", pytest.fail)
    given = [each.format(recording=recording, out=tmp_path) for each in arguments]
    assert run(["pipeline", "serve", *given]) == code
    assert said in capsys.readouterr().err

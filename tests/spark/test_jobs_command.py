"""`tpool pipeline run|monitor`, and the reports that they write."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from doc_pages import DOCS
from doc_pages import Page as DocPage
from recordings import record, record_arrays, record_rows
from tensor_pool.ops.cli.root import run
from tensor_pool.pipeline import jobs
from tensor_pool.pipeline.dataset import Samples, load_manifest, verify_dataset
from tensor_pool.pipeline.jobs.registry import JOBS
from tensor_pool.pipeline.record.consumers import CONSUMERS, RecordedConsumer, save_consumers
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.testing import wait_until

PROGRAM = "import sys; from tensor_pool.ops.cli.root import run; sys.exit(run())"
HOSTILE = '<img src=x onerror="alert(1)">'


class Page(HTMLParser):
    """What a page is made of, and the text that it shows."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recording")
    record(directory, "camera/1")
    record_arrays(directory, np.arange(600, dtype="uint16").reshape(12, 5, 10), HOSTILE, stream_id=2)
    record_rows(directory, [{"seq": 1, "count": 2, "status": "lost"}], "only-gaps", stream_id=3)
    return directory


@pytest.fixture
def tpool(spark, capsys):
    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("name", JOBS)
def test_every_job_prints_and_writes_a_report(tpool, recording, tmp_path, name):
    code, out, err = tpool("pipeline", "run", name, recording, "--out", tmp_path, "--format", "json")
    document = json.loads(out)
    # The one stream has nothing but gaps, which is bad; its drift is that of values that grow.
    assert code == (1 if name in {"quality", "statistics", "latency"} else 0), err
    assert f"{name}: done after" in err
    assert document["job"] == name
    assert {stream["stream"] for stream in document["streams"]} == {"camera/1", HOSTILE, "only-gaps"}
    written = json.loads((tmp_path / f"{name}.json").read_text())
    assert written["result"] == {k: v for k, v in document.items() if k not in {"job", "report"}}
    page = Page((tmp_path / f"{name}.html").read_text())
    assert page.tags.count("img") == (2 if name == "thumbnails" else 0)  # drawn ones, and no other
    assert "script" not in page.tags
    assert HOSTILE in page.text
    fetched = [value for key, value in page.attributes if key in {"src", "href"}]
    assert all(value.startswith("data:image/png;base64,") for value in fetched)


def test_tables_lines_streams_and_times(tpool, recording, tmp_path):
    out_dir = tmp_path / "report"
    common = ("--stream", "camera/1", "--out", out_dir)
    code, table, err = tpool("pipeline", "run", "quality", recording, *common)
    assert (code, table.splitlines()[0].split()[:3]) == (1, ["STREAM", "VERDICT", "WHY"])
    assert "missing_share is 0.15, above 0.01 (bad)" in table
    assert f"report: {out_dir}/quality.html" in err
    until = ("--to", "1970-01-01T00:00:00.001Z", "--format", "jsonl")
    code, lines, _ = tpool("pipeline", "run", "quality", recording, *common, *until)
    (stream,) = json.loads(lines)["streams"]
    assert (stream["frames"], stream["missing"], code) == (1, {}, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nonsense", "{}"), 2, "there is no job 'nonsense'"),
        (("quality", "/nowhere"), 1, "there is no recording in"),
        (("quality", "{}", "--stream", "camera-9"), 1, "there is no stream camera-9"),
        (("quality", "{}", "--count", "3"), 2, "the job quality takes no count"),
        (("quality", "{}", "--from", "yesterday"), 2, "a time like"),
        (("thumbnails", "{}", "--out", "/dev/null/x"), 2, "can't write a report into"),
        (("training-set", "{}", "--splits", "train=0.8"), 2, "fractions that are 1 together"),
        (("training-set", "{}", "--splits", "a=0.5,a=0.5"), 2, "each name once"),
        (("training-set", "{}", "--by", "time", "--splits", "a=yesterday,b"), 2, "'yesterday' is no time"),
        (("training-set", "{}", "--dataset", "{}"), 2, "is not empty: a training set is not written over"),
    ],
)
def test_what_is_wrong_is_said(tpool, recording, tmp_path, *, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    outcome = tpool("pipeline", "run", *(argument.format(recording) for argument in arguments))
    assert (outcome[0], outcome[1]) == (code, "")
    assert said in outcome[2]
    assert "Traceback" not in outcome[2]


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (("quality", "{}", "--windows", "5"), "the job quality takes no windows", "it takes read_bytes"),
        (("quality", "{}", "--master", "nonsense"), "there is no master 'nonsense'", "local[*] for all"),
        (("quality", "{}", "--master", "local[0]"), "there is no master 'local[0]'", "spark://host:7077"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(tmp_path, monkeypatch, capsys, *, arguments, said, hint):
    def start(*_, **__):
        pytest.fail("Spark was started")

    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", start)
    code = run(["pipeline", "run", *(argument.format(tmp_path) for argument in arguments)])
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert f"error: {said}" in told.err
    assert hint in told.err


def _is_working(session):
    """Whether one of Spark's own processes, below this one, has begun with a table."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is none
            is_ours = os.getsid(int(process.name)) == session
            if is_ours and b"worker.create_data_source" in (process / "cmdline").read_bytes():
                return True
    return False


def test_ctrl_c_ends_a_job_without_a_word_of_spark(recording, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "pipeline", "run", "statistics", recording, "--out", tmp_path],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait_until(lambda: _is_working(process.pid), timeout_s=60)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert "ERROR" not in told


def test_a_missing_segment_is_counted_and_ends_nothing(tpool, tmp_path):
    record(tmp_path / "in")
    stream = Recording(tmp_path / "in")["camera/1"]
    lost = stream.catalogue.segments[1]
    for ending in (".arrow", ".rows"):
        (stream.place.local / lost.file.replace(".arrow", ending)).unlink()
    arguments = ("quality", tmp_path / "in", "--out", tmp_path, "--format", "json", "--read-bytes")
    (found,) = json.loads(tpool("pipeline", "run", *arguments)[1])["streams"]
    assert found["missing"]["segment_missing"] == lost.frames + lost.lost
    assert found["frames"] + found["missing_frames"] == 20
    assert found["damaged"] == {}


def test_losses_of_consumers_are_told_worst_first(tpool, load, tmp_path):
    for name, stream_id in (("camera-1", 1), ("camera-2", 2), ("damaged", 3)):
        record_rows(tmp_path / "in", [{"seq": 0, "array": np.zeros(3)}], name, stream_id=stream_id)
    common = {"mode": "stream", "first_seen_ns": 1_000_000_000, "last_seen_ns": 61_250_000_000, "epoch": 7}
    known = [
        RecordedConsumer(consumer_id=1, is_recorder=True, passed=100, last_seq_seen=99, **common),
        RecordedConsumer(consumer_id=2, passed=100, drops_gap=1, drops_late=1, **common),
        RecordedConsumer(consumer_id=3_000_000, passed=4, drops_late=1, drops_before=8, **common),
    ]
    for name in ("camera-1", "damaged"):
        save_consumers(tmp_path / "in" / name, known)
    damaged = tmp_path / "in" / "damaged" / CONSUMERS
    damaged.write_bytes(damaged.read_bytes()[:-20])
    arguments = ("pipeline", "run", "quality", tmp_path / "in", "--out", tmp_path)
    code, table, err = tpool(*arguments)
    assert code == 0
    shown = table.partition("\nConsumers\n")[2].splitlines()
    assert shown[0].split() == [
        *("STREAM", "CONSUMER", "RECORDER", "MODE", "LOST", "SHARE", "DROPS", "GAP", "DROPS", "LATE"),
        *("DROPS", "BEFORE", "LAST", "SEQ", "SEEN", "FIRST", "SEEN", "LAST", "SEEN"),
    ]
    assert [line.split()[:5] for line in shown[1:]] == [
        ["camera-1", "2", "no", "stream", "0.02"],
        ["camera-1", "3000000", "no", "stream", "0.25"],
        ["camera-1", "1", "yes", "stream", "0"],
    ]
    assert "What consumers of 1 streams lost is not known" in err
    found = {
        each["stream"]: each
        for each in json.loads((tmp_path / "quality.json").read_text())["result"]["streams"]
    }
    assert found["camera-1"]["consumers"][1] == {
        "consumer_id": 3_000_000,
        "is_recorder": False,
        "mode": "stream",
        "first_seen": "1970-01-01T00:00:01.000Z",
        "last_seen": "1970-01-01T00:01:01.250Z",
        "epoch": 7,
        "last_seq_seen": None,
        "drops_gap": 0,
        "drops_late": 1,
        "drops_before": 8,
        "lost_share": 0.25,
    }
    assert (found["camera-2"]["consumers"], found["camera-2"]["consumers_error"]) == ([], None)
    assert found["damaged"]["consumers"] == []
    assert "can't be understood" in found["damaged"]["consumers_error"]
    page = Page((tmp_path / "quality.html").read_text())
    assert "Consumers" in page.text
    assert "3000000" in page.text
    by_function = jobs.quality(load(tmp_path / "in", stream="camera-1"), recording=tmp_path / "in").streams
    assert [each.consumer_id for stream in by_function for each in stream.consumers] == [2, 3_000_000, 1]


def test_a_training_set_tells_what_is_in_it(tpool, tmp_path):
    common = {"realtime_offset_ns": 0}
    rows = [
        {"seq": seq, "timestamp_ns": seq * 1_000_000, "array": np.full((2, 3), seq, "uint16"), **common}
        for seq in range(20)
    ]
    rows[7:10] = [{"seq": 7, "count": 3, "status": "lost", "timestamp_ns": 7_000_000, **common}]
    recording = tmp_path / "recording"
    record_rows(recording, rows, "camera/1")
    by_time = ("--by", "time", "--splits", "train=0.75,val=0.25", "--every", "2", "--format", "json")
    arguments = ("training-set", recording, "--out", tmp_path)
    code, out, err = tpool("pipeline", "run", *arguments, *by_time)
    found = json.loads(out)
    # Even numbers of 0 to 19 without 7 to 9: of the gap only 8 would have been taken.
    assert (code, found["dataset"]) == (0, str(tmp_path / "dataset")), err
    assert [(split["split"], split["frames"], split["nbytes"]) for split in found["splits"]] == [
        ("train", 7, 7 * 12),
        ("val", 2, 2 * 12),
    ]
    (stream,) = found["streams"]
    assert stream == {
        "stream": "camera/1",
        "frames": {"train": 7, "val": 2},
        "missing_frames": 1,
        "missing": {"lost": 1},
    }
    for split in found["splits"]:
        assert sum(part["frames"] for part in split["slices"]) == split["frames"]
    train, val = ([p["start_s"] for p in s["slices"] if p["frames"]] for s in found["splits"])
    assert max(train) < min(val)
    manifest = load_manifest(tmp_path / "dataset")
    assert (manifest.hash, manifest.options.where) == (found["hash"], "seq % 2 = 0 or status <> 'ok'")
    assert verify_dataset(found["dataset"]).ok
    assert sorted(sample["seq"] for sample in Samples(found["dataset"])) == [0, 2, 4, 6, 10, 12, 14, 16, 18]
    written = set(tmp_path.rglob("*"))
    again = tpool("pipeline", "run", *arguments)
    assert (again[0], again[1]) == (2, "")
    assert "is not empty" in again[2]
    assert set(tmp_path.rglob("*")) == written
    elsewhere = (*arguments, "--dataset", tmp_path / "other", "--splits", "train=0,val=1")
    code, table, err = tpool("pipeline", "run", *elsewhere)
    assert (code, [line.split()[:2] for line in table.splitlines()[1:]]) == (
        0,
        [["train", "0"], ["val", "17"]],
    )
    assert "There is no frame in train" in err


def test_a_training_set_of_damaged_frames_is_a_problem(tpool, tmp_path):
    record(tmp_path / "in")
    stream = Recording(tmp_path / "in")["camera/1"]
    first = stream.catalogue.segments[0]
    (stream.place.local / first.file).unlink()
    code, out, err = tpool(
        "pipeline", "run", "training-set", tmp_path / "in", "--out", tmp_path, "--format", "json"
    )
    (found,) = json.loads(out)["streams"]
    assert (code, found["missing"]["segment_missing"]) == (1, first.frames), err
    assert sum(found["frames"].values()) == 17 - first.frames


@pytest.mark.parametrize("name", [pytest.param("jobs.py", marks=pytest.mark.slow), "frames.py", "watch.py"])
def test_programs_of_the_guide_run(spark, recording, tmp_path, monkeypatch, capsys, *, name):
    """Here, where a session runs already; the page itself only compiles them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recordings").symlink_to(recording)
    program = DocPage(DOCS / "guides" / "pipeline.md").files[name]
    # A program of its own has workers in its directory; those of this session are elsewhere.
    program = program.replace('.load("recordings")', f".load({str(recording)!r})")
    exec(compile(program, name, "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    expected = {
        "jobs.py": "camera/1 bad {'lost': 3}",
        "frames.py": "10000/7/12 12.0\n10000/7/8 the recorder did not get it: lost\n",
        "watch.py": "windows",
    }
    assert expected[name] in printed

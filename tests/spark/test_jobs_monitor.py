"""The live monitor as a streaming query, over recordings that are there and that grow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from pool_hosts import quick_host
from recordings import record_rows
from tensor_pool.errors import ConfigError
from tensor_pool.ops.cli.root import run
from tensor_pool.pipeline import jobs
from tensor_pool.testing import wait_until

START_NS = 1_700_000_000 * 10**9
MS = 10**6


def frames(first, count, every_ms, begin_ms=0, age_ms=20, **changes):
    for n in range(count):
        at = (begin_ms + n * every_ms) * MS
        yield {
            "seq": first + n,
            "timestamp_ns": at,
            "realtime_offset_ns": START_NS,
            "recorded_ns": START_NS + at + age_ms * MS,
            "array": np.zeros(2, "uint8"),
        } | changes


def lost(seq, count, at_ms):
    return {
        "seq": seq,
        "count": count,
        "status": "lost",
        "timestamp_ns": at_ms * MS,
        "realtime_offset_ns": START_NS,
        "recorded_ns": START_NS + at_ms * MS,
    }


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Ten frames a second for 10 s, then five a second with a gap, silence, and a restart with old frames."""
    directory = tmp_path_factory.mktemp("watched")
    rows = [*frames(0, 100, 100), *frames(100, 25, 200, begin_ms=10_000), lost(125, 5, 15_000)]
    rows += frames(130, 25, 200, begin_ms=15_000)
    rows += frames(0, 50, 100, begin_ms=40_000, age_ms=900, epoch=8)
    record_rows(directory, rows, "camera")
    record_rows(directory, frames(0, 3, 1_000), "slow", stream_id=2)
    return directory


def test_windows_and_alarms(spark, recording, tmp_path):
    limits = jobs.MonitorLimits(min_rate_hz=8, max_age_s=0.5, max_silence_s=15)
    # Small batches: windows are put together from several.
    options = {"stream": "camera", "maxFramesPerTrigger": 60}
    with jobs.monitor(
        spark, str(recording), limits=limits, out=tmp_path, follow=False, **options
    ) as watching:
        assert watching.wait(timeout_s=100)
    windows = {window.start[17:19]: window for window in watching.windows}
    assert [(w.frames, w.missing) for _, w in sorted(windows.items())] == [(50, 0), (100, 0), (50, 5)]
    by_start = {window.start: window for window in watching.windows}
    first, second, last = (by_start[f"2023-11-14T22:1{at}Z"] for at in ("3:20", "3:30", "4:00"))
    assert first.rate_hz == pytest.approx(10)
    assert second.rate_hz == pytest.approx(49 / 9.8)
    assert (first.age_mean_s, last.age_max_s) == (pytest.approx(0.02), pytest.approx(0.9))
    assert all(window.is_over for window in watching.windows)
    assert {(alarm.name, alarm.start[14:19]) for alarm in watching.alarms} == {
        ("rate_low", "13:30"),
        ("missing_frames", "13:30"),
        ("silent", "13:39"),
        ("restarted", "14:00"),
        ("age_high", "14:00"),
    }
    written = [json.loads(line) for line in (tmp_path / "windows.jsonl").read_text().splitlines()]
    newest = {row["start"]: row for row in written}
    assert {start: row["frames"] for start, row in newest.items()} == {
        window.start: window.frames for window in watching.windows
    }
    assert max(row["batch"] for row in written) > 1
    assert len((tmp_path / "alarms.jsonl").read_text().splitlines()) == len(watching.alarms)


def test_a_recording_that_grows_is_followed_and_silence_is_noticed(spark, tmp_path):
    record_rows(tmp_path / "in", frames(0, 10, 100), "camera")
    limits = jobs.MonitorLimits(max_silence_s=1.0)
    heard = []
    with jobs.monitor(
        spark, str(tmp_path / "in"), limits=limits, on_window=heard.append, every_s=0.1
    ) as watching:
        patience = time.monotonic() + 100
        while sum(window.frames for window in watching.windows) < 10:
            assert not watching.wait(timeout_s=0.1)
            assert time.monotonic() < patience
        record_rows(tmp_path / "in", frames(10, 10, 100, begin_ms=1_000), "camera")
        while sum(window.frames for window in watching.windows) < 20 or not watching.alarms:
            assert not watching.wait(timeout_s=0.1)
            assert time.monotonic() < patience
    assert {alarm.name for alarm in watching.alarms} == {"silent"}
    assert heard[-1].frames == 20
    assert watching.query.exception() is None


def test_the_command(spark, recording, capsys):
    code = run(["pipeline", "monitor", str(recording), "--format", "json", "--min-rate", "0.5"])
    captured = capsys.readouterr()
    rows = json.loads(captured.out)
    assert (code, len(rows)) == (1, 4)
    assert [row["frames"] for row in rows if row["stream"] == "slow"] == [3]
    assert "alarm missing_frames: camera at 2023-11-14T22:13:30Z: 5, limit 0" in captured.err
    arguments = ["--stream", "slow", "--format", "jsonl"]
    assert run(["pipeline", "monitor", str(recording), *arguments]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["rate_hz"] == pytest.approx(1)
    assert run(["pipeline", "monitor", str(recording), "--stream", "slow"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["STREAM", "START"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "name a RECORDING"),
        (["--live"], 2, "name a RECORDING"),
        (["/nowhere"], 1, "there is no recording"),
        (["{}", "--stream", "nobody"], 1, "there is no stream nobody"),
        (["{}", "--option", "x"], 2, "--option x"),
        (["{}", "--option", "nonsense=1"], 2, "unknown option 'nonsense'"),
    ],
    ids=str,
)
def test_wrong_calls_are_said(spark, recording, capsys, *, arguments, code, said):
    assert run(["pipeline", "monitor", *(argument.format(recording) for argument in arguments)]) == code
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_the_command_with_its_table(recording):
    program = "from tensor_pool.ops.cli import main; main()"
    command = [sys.executable, "-c", program, "pipeline", "monitor", str(recording), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        told = []
        while not told or "at 2023" not in told[-1]:  # a window is over
            told.append(process.stderr.readline())
            assert told[-1], "".join(told)
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 1, "there were alarms"
    assert "Traceback" not in "".join(told) + rest
    assert out.count("camera") == 3, out


def test_windows_that_make_no_sense_are_refused(spark, recording):
    with pytest.raises(ConfigError, match="window_s=0"):
        jobs.monitor(spark, str(recording), window_s=0)


def test_live_streams_are_watched_the_same_way(spark):
    with quick_host() as host, host.connect() as pool:
        settings = json.dumps({key: str(value) for key, value in host.settings.items()})
        camera = pool.producer("camera", dtype="uint8", shape=(4,), slots=1024)
        over = threading.Event()

        def take():
            while not over.wait(0.02):
                camera.publish(np.zeros(4, "uint8"))

        thread = threading.Thread(target=take)
        thread.start()
        limits = jobs.MonitorLimits(max_missing=None, max_silence_s=2.0)
        options = {"mode": "live", "stream": "camera", "settings": settings}
        try:
            with jobs.monitor(spark, limits=limits, every_s=0.1, **options) as watching:
                wait_until(lambda: sum(w.frames for w in watching.windows) >= 50, timeout_s=90)
                over.set()
                thread.join()
                wait_until(lambda: watching.wait(0.1) or watching.alarms, timeout_s=30)
        finally:
            over.set()
            thread.join()
            camera.close()
    assert {alarm.name for alarm in watching.alarms} == {"silent"}
    assert watching.windows[0].rate_hz == pytest.approx(50, rel=0.5)
    assert 0 < watching.windows[0].age_mean_s < 20

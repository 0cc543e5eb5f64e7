"""The demo: two real processes; and what it says when the camera is killed."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tensor_pool.config import load_config
from tensor_pool.ops.cli.demo import print_summary
from tensor_pool.ops.demo import picture, viewer
from tensor_pool.transport import EmbeddedMediaDriver, read_counters


def start(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from tensor_pool.ops.cli import main; main()", "demo", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


class Demo(NamedTuple):
    """A demo that has started its camera."""

    process: subprocess.Popen[str]
    camera: int
    ring: Path

    def left_behind(self) -> list[Path]:
        """What there is of the ring and of the media driver's directory."""
        return [
            path
            for path in (self.ring, *Path("/dev/shm").glob(f"tensor-pool-{self.process.pid}-*"))
            if path.exists()
        ]

    def await_frames(self) -> None:
        while "frame " not in self.process.stdout.readline():
            pass


def begin(*args: str) -> Demo:
    process = start(*args)
    camera, ring = re.search(r"camera: process (\d+),.* ring below (\S+)", process.stdout.readline()).groups()
    assert "viewer" in process.stdout.readline()
    return Demo(process, int(camera), Path(ring))


@pytest.mark.quiet
def test_every_picture_arrives_right_in_every_pixel():
    demo = begin("--seconds", "2", "--rate", "30")
    out, err = demo.process.communicate(timeout=60)
    assert demo.process.returncode == 0, err
    assert "60 right in every pixel, 0 wrong, 0 missed, 0 overwritten" in out
    descriptors = int(re.search(r"(\d+) descriptors over Aeron", out)[1])
    assert descriptors in {59, 60}, "the first may be sent before the viewer has found the camera's stream"
    assert demo.left_behind() == []


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_a_killed_camera_is_reported_and_what_it_committed_is_whole(sig):
    demo = begin("--seconds", "600", "--rate", "200")
    demo.await_frames()
    os.kill(demo.camera, sig)
    out, err = demo.process.communicate(timeout=60)
    assert demo.process.returncode == 1, err
    assert f"the camera (process {demo.camera}) was killed by {sig.name}" in out
    assert re.search(r"the last frame it had committed was \d+", out)
    assert " 0 wrong, " in out


@pytest.mark.parametrize("while_watching", [False, True])
@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stop_signals_end_both_processes_and_leave_nothing(sig, code, while_watching):
    demo = begin("--seconds", "600")
    if while_watching:
        demo.await_frames()
    assert demo.left_behind()
    demo.process.send_signal(sig)
    _, err = demo.process.communicate(timeout=60)
    assert (demo.process.returncode, err.strip()) == (code, "")
    with pytest.raises(ProcessLookupError):
        os.kill(demo.camera, 0)
    assert demo.left_behind() == []


def test_the_camera_does_not_outlive_a_killed_viewer():
    demo = begin("--seconds", "600")
    demo.await_frames()
    ended = os.pidfd_open(demo.camera)
    try:
        demo.process.kill()
        demo.process.communicate(timeout=60)
        assert select.select([ended], [], [], 30)[0], "the camera goes on alone"
    finally:
        os.close(ended)
        for path in demo.left_behind():  # killed: nobody could clear up
            shutil.rmtree(path)


def test_a_stopped_camera_is_reported(capsys, monkeypatch):
    cameras: list[int] = []

    def stop(seen: viewer.Viewer) -> None:
        if seen.outcome.frames:
            monkeypatch.setattr(viewer, "PATIENCE_S", 0.5)
            os.kill(cameras[0], signal.SIGSTOP)

    seen = viewer.run(
        load_config(),
        seconds=600,
        rate_hz=30,
        on_start=lambda pid, _: cameras.append(pid),
        on_second=stop,
    )
    assert (seen.outcome.silent, seen.outcome.killed_by, seen.outcome.good) == (True, None, False)
    print_summary(seen)
    said = f"the camera (process {cameras[0]}) took no picture for 0.5 s and was ended; stopped, perhaps"
    assert said in capsys.readouterr().out


def test_a_single_wrong_pixel_is_noticed():
    image = np.empty((picture.HEIGHT, picture.WIDTH), np.uint8)
    picture.draw(300, image)
    assert picture.is_right(300, image)
    image[500, 700] ^= 1
    assert not picture.is_right(300, image)
    assert len(picture.sketch(image).splitlines()) == 16


def test_the_configuration_of_aeron_reaches_media_driver_and_channels():
    aeron_dir = f"/dev/shm/tensor-pool-test-{uuid.uuid4().hex}"
    process = start(
        *("--seconds", "600", "--rate", "30", "--aeron-dir", aeron_dir, "--set", "aeron.term_length=64k"),
        *("--set", "aeron.untethered_resting_timeout_ms=77"),
    )
    try:
        while "frame " not in process.stdout.readline():
            pass
        # The media driver labels its counters with the channels as they were asked for.
        labels = [reading.label for reading in read_counters(aeron_dir)]
        publications = [label for label in labels if label.startswith("pub-pos")]
        subscriptions = [label for label in labels if label.startswith("sub-pos")]
        assert len(publications) >= 5, "control, announces, descriptors, metadata and QoS"
        assert all("term-length=65536|" in label for label in publications + subscriptions)
        assert all("untethered-resting-timeout=77ms" in label for label in publications)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert not Path(aeron_dir).exists()


def test_a_directory_that_somebody_serves_is_refused():
    with EmbeddedMediaDriver.temporary() as theirs:
        process = start("--seconds", "1", "--aeron-dir", theirs.aeron_dir)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "already serves" in err
        assert theirs.is_alive()

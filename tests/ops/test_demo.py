"""The demo: two real processes; and what it says when the camera is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from tensor_pool.ops.demo import picture
from tensor_pool.transport import EmbeddedMediaDriver, read_counters


def start(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [Path(sys.executable).with_name("tpool"), "demo", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("tensor-pool-demo-*")}


def test_every_picture_arrives_right_in_every_pixel():
    before = shared_memory()
    process = start("--seconds", "2", "--rate", "30")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "60 right in every pixel, 0 wrong, 0 missed, 0 overwritten" in out
    assert "60 descriptors over Aeron" in out
    assert shared_memory() <= before, "nothing is left behind"


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_a_killed_camera_is_reported_and_what_it_committed_is_whole(sig):
    process = start("--seconds", "600", "--rate", "200")
    camera = int(re.search(r"camera: process (\d+)", process.stdout.readline()).group(1))
    assert "viewer" in process.stdout.readline()
    while "frame " not in process.stdout.readline():
        pass
    os.kill(camera, sig)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert f"the camera (process {camera}) was killed by {sig.name}" in out
    assert re.search(r"the last frame it had committed was \d+", out)
    assert " 0 wrong, " in out


def test_ctrl_c_ends_both_processes():
    process = start("--seconds", "600")
    camera = int(re.search(r"camera: process (\d+)", process.stdout.readline()).group(1))
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(camera, 0)


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
        assert len(publications) == len(subscriptions) == 2, "announces and descriptors"
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

"""The example programs run as they are, in processes of their own, and do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensor_pool.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST_S = 60
MOST_LINES = 60

ALONE = [
    ("two_cameras_wait.py", "--frames=10", r"left [1-9]\d* frames, right [1-9]\d* frames"),
    (
        "asyncio_reader.py",
        "--frames=20",
        r"(?s)first pixels: 190\ndelivered  20 frames: 20 validated\nlost  ",
    ),
    ("progress.py", "--frames=3", r"3 whole frames, looked at [1-9]\d* times before they were"),
    ("callback.py", "--frames=20", r"20 calls, sum 3040, all came: True, error: None"),
    (
        "torch_training.py",
        "--frames=40",
        r"skipped: this example needs PyTorch|loss \d+\.\d+ after 40 batches",
    ),
    ("two_hosts.py", "--frames=50", r"skipped: |(4\d|50) of 50 frames came whole to \S+, lens: wide"),
    ("driverless.py", "--frames=20", r"20 frames of (counter|10000), sum 190"),
]
"""Programs that bring their own drivers: file, argument, what they print."""
TOGETHER = ["camera.py", "viewer.py"]
"""Programs that meet at a driver which runs already."""


def run(name: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: PLW1510 - the tests look at the status
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize(("name", "argument", "printed"), ALONE, ids=[name for name, *_ in ALONE])
def test_examples_with_drivers_of_their_own(name, argument, printed):
    result = run(name, argument)
    assert result.returncode == 0, result.stderr
    assert re.search(printed, result.stdout), result.stdout


@pytest.fixture
def host() -> Iterator[dict[str, str]]:
    """What the environment says of a host whose drivers run already."""
    with Cluster() as cluster:
        yield {
            "TENSOR_POOL__AERON_DIR": cluster.aeron_dir,
            "TENSOR_POOL__SHM__SHM_BASE_DIR": str(cluster.settings["shm.shm_base_dir"]),
        }


def test_the_camera_is_seen_by_viewers_that_keep_up_and_by_those_that_do_not(host):
    camera = subprocess.Popen(
        [sys.executable, "-W", "error", str(EXAMPLES / "camera.py"), "--seconds=20"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **host},
    )
    with camera:
        try:
            fast = run("viewer.py", "--frames=100", **host)
            slow = run("viewer.py", "--frames=3", "--slow=0.9", **host)  # the ring lasts 0.64 s
        finally:
            camera.kill()
    assert fast.returncode == 0, fast.stderr
    assert re.search(r"brightness \d+\.\d, exposure 5\.0 ms", fast.stdout), fast.stdout
    assert "delivered  100 frames: 100 validated" in fast.stdout
    assert slow.returncode == 0, slow.stderr
    assert "delivered  3 frames: 3 overwritten in use" in slow.stdout, slow.stdout
    assert re.search(r"lost       [1-9]\d+ frames: [1-9]\d+ gap", slow.stdout), slow.stdout


def test_the_camera_ends_by_itself_and_says_what_it_did(host):
    result = run("camera.py", "--seconds=0.3", "--rate=50", **host)
    assert result.returncode == 0, result.stderr
    assert "published    15 frames" in result.stdout


def test_every_example_is_run_and_short_enough_to_read():
    files = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert set(files) == {name for name, *_ in ALONE} | set(TOGETHER)
    for name, text in files.items():
        assert len(text.splitlines()) < MOST_LINES, name
        assert "--seconds" in text or "--frames" in text, name

"""The demo's second half: what a camera with a defect leaves behind."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tensor_pool.config import load_config
from tensor_pool.errors import ConfigError
from tensor_pool.ops.demo import viewer
from tensor_pool.ops.demo.pipeline import Places, analyse
from tensor_pool.pipeline.dataset import verify_dataset

DEFECT = "defect found: rows 600 to 799 are dead from frame {} on"


def test_spark_finds_the_defect_and_makes_pictures_and_a_training_set(spark, tmp_path):
    places = Places(tmp_path / "results")
    seen = viewer.run(
        load_config(),
        seconds=1.5,
        rate_hz=20,
        on_start=lambda pid, base_dir: None,
        on_second=lambda seen: None,
        record_to=places.recording,
        dead_from=18,
    )
    assert (seen.outcome.frames, seen.outcome.wrong) == (30, 0)
    told: list[str] = []
    steps: list[str] = []

    @contextlib.contextmanager
    def step(name: str):
        steps.append(name)
        yield

    analyse(spark, places, step=step, tell=told.append)
    text = "\n".join(told)
    assert steps == ["quality", "statistics", "thumbnails", "training set"]
    # Behind a colon, or behind a warning of uneven times, which are this machine's.
    assert re.search(r"[:;] 30 frames \d+\.\d a second, 0 missing, 0 damaged", text)
    assert DEFECT.format(18) in text
    paths = dict(re.findall(r"^([a-z ]+): +(/.*)$", text, re.MULTILINE))
    assert Path(paths["contact sheet"]).read_bytes().startswith(b"\x89PNG")
    for report in ("quality report", "statistics report"):
        assert "demo-camera" in Path(paths[report]).read_text(encoding="utf-8")
    checked = verify_dataset(paths["training set"])
    assert checked.ok
    assert sum(map(int, re.findall(r"(\d+) for (?:train|val)", text))) == 30


def test_results_of_an_earlier_demo_are_replaced_and_nothing_else(tmp_path):
    first = Places(tmp_path / "results")
    first.recording.mkdir()
    Places(tmp_path / "results")
    assert not first.recording.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    with pytest.raises(ConfigError, match="is not empty, and no demo made it"):
        Places(tmp_path / "mine")
    assert (tmp_path / "mine" / "precious").exists()


@pytest.mark.slow
def test_the_command_ends_within_two_minutes(tmp_path):
    command = [sys.executable, "-c", "from tensor_pool.ops.cli import main; main()"]
    done = subprocess.run(
        [*command, "demo", "--pipeline", str(tmp_path / "results")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "300 right in every pixel" in done.stdout
    assert DEFECT.format(180) in done.stdout
    assert "Traceback" not in done.stderr

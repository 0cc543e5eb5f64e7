"""What the README shows runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import numpy as np

from doc_pages import ROOT, Page
from tensor_pool.testing import Cluster, wait_until

README = Page(ROOT / "README.md")
LONGEST_S = 60


def test_the_two_programs_run_as_written(tmp_path):
    for name, body in README.files.items():
        (tmp_path / name).write_text(body, encoding="utf-8")
    lines = [line for body in README.files.values() for line in body.splitlines() if line.strip()]
    assert len(lines) <= 20
    with Cluster(driver=False) as host:
        host.media.terminate()  # `tpool up` brings its own
        up = host.start("up")
        assert up.read_line().startswith("aeron-dir=")
        environ = {
            **os.environ,
            "TENSOR_POOL__AERON_DIR": host.aeron_dir,
            "TENSOR_POOL__SHM__SHM_BASE_DIR": str(host.settings["shm.shm_base_dir"]),
        }

        def start(name: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-W", "error", tmp_path / name]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)

        programs = [start("consumer.py")]
        with host.connect() as pool:  # a consumer that came second would begin with the newest frame
            wait_until(lambda: [stream.name for stream in pool.streams(ended=True)], 30.0)
        programs.append(start("producer.py"))
        consumed, produced = [program.communicate(timeout=LONGEST_S)[0] for program in programs]
        assert [program.returncode for program in programs] == [0, 0]
        assert up.terminate() == 0
    assert consumed.splitlines()[:2] == ["0 (480, 640) 0.0", "1 (480, 640) 1.0"]
    assert "499 (480, 640) 243.0" in consumed
    assert "delivered  500 frames: 500 validated\nlost       0 frames" in consumed
    assert "published    500 frames, 146.5 MiB" in produced


def test_the_one_process_version_runs_as_written():
    (code,) = [block.body for block in README.blocks if block.language == "python" and block.title is None]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONGEST_S,
    )
    assert result.stdout.splitlines() == ["0 66 True"]


def test_its_programs_pass_strict_type_checks(tmp_path):
    scripts = [block.body for block in README.blocks if block.language == "python"]
    files = [tmp_path / f"readme_{number}.py" for number in range(len(scripts))]
    for file, body in zip(files, scripts, strict=True):
        file.write_text(body, encoding="utf-8")
    command = ["mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}/cache", *map(str, files)]
    result = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, "MYPYPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_consumer_that_is_too_slow_goes_on_with_later_frames(tmp_path):
    slow = README.files["consumer.py"].replace(
        "image.mean()", "(image.mean(), __import__('time').sleep(0.2))[0]"
    )
    (tmp_path / "consumer.py").write_text(slow, encoding="utf-8")
    with Cluster() as host, host.connect() as pool:
        out = pool.producer("camera-1", dtype="uint8", shape=(480, 640), slots=8)
        environ = {
            **os.environ,
            "TENSOR_POOL__AERON_DIR": host.aeron_dir,
            "TENSOR_POOL__SHM__SHM_BASE_DIR": str(host.settings["shm.shm_base_dir"]),
        }
        command = [sys.executable, "-W", "error", tmp_path / "consumer.py"]
        consumer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        wait_until(lambda: out.stats.consumers, 30.0)
        for n in range(100):
            out.publish(np.full((480, 640), n, "uint8"))
            time.sleep(0.01)
        printed = consumer.communicate(timeout=LONGEST_S)[0]
    assert consumer.returncode == 0
    assert "99 (480, 640) 99.0" in printed
    assert "overwritten in use" in printed


def test_links_and_make_targets_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.text):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\$ make (\w+)", README.text):
        assert f"\n{target}:" in makefile

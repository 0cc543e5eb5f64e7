"""What ``tpool demo`` says when its camera can't start, and in whose directory its drivers run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensor_pool.config import load_config
from tensor_pool.errors import AttachRefusedError
from tensor_pool.ops.demo import camera, pipeline, viewer
from tensor_pool.ops.doctor import look
from tensor_pool.ops.doctor.machine import SharedMemory
from tensor_pool.pipeline.jobs.verdicts import Finding


class _NotStartedError(Exception):
    pass


@pytest.fixture
def chosen_dirs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Directories of media drivers that were to be started."""
    found: list[str] = []

    def connect(*, config: Any, **_: object) -> None:
        found.append(config.aeron.dir)
        raise _NotStartedError

    monkeypatch.setattr(viewer, "connect", connect)
    return found


def run(config: Any) -> None:
    with pytest.raises(_NotStartedError):
        viewer.run(config, seconds=1, rate_hz=1, on_start=lambda *_: None, on_second=lambda _: None)


def test_a_hosts_own_directory_is_left_alone(
    chosen_dirs: list[str], empty_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_directory / "tensor-pool.toml").write_text('[aeron]\ndir = "/dev/shm/of-the-host"\n')
    run(load_config())
    monkeypatch.setenv("TENSOR_POOL__AERON_DIR", "/dev/shm/of-the-host")
    run(load_config(search=False))
    assert all(directory.startswith("/dev/shm/tensor-pool-") for directory in chosen_dirs)
    assert len(set(chosen_dirs)) == 2


def test_one_that_is_named_for_the_demo_is_taken(chosen_dirs: list[str]) -> None:
    run(load_config(overrides={"aeron.dir": "/dev/shm/mine"}, overrides_from="command line"))
    assert chosen_dirs == ["/dev/shm/mine"]


def test_a_camera_that_fails_tells_why_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: camera.CameraOptions) -> None:
        raise AttachRefusedError("no room for 67108928 bytes", hint="`tpool doctor` looks")

    monkeypatch.setattr(camera, "run", refuse)
    monkeypatch.setattr(camera.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["camera", '{"settings": {}, "rate_hz": 1.0, "frames": 1}'])
    with pytest.raises(SystemExit, match="1"):
        camera.main()
    told = msgspec.json.decode(capsys.readouterr().out, type=camera.CameraFailure)
    assert told == camera.CameraFailure("no room for 67108928 bytes", "`tpool doctor` looks")


def test_the_viewer_hears_it() -> None:
    says_no = 'import sys; print(\'{"message": "no room"}\'); sys.exit(1)'
    with subprocess.Popen([sys.executable, "-c", says_no], stdout=subprocess.PIPE) as process:

        class Nothing:
            drops_gap = drops_late = descriptors_received = 0

        class Stream:
            stats = Nothing()

            def poll(self, timeout: float) -> None:
                process.wait(timeout)

        seen: Any = viewer.Viewer(Stream())  # type: ignore[arg-type]
        stop: Any = type("Never", (), {"received": lambda _: None})()
        viewer.watch(seen, process, 10, lambda _: None, stop)
    assert seen.outcome.camera_failure == camera.CameraFailure("no room")


@pytest.mark.parametrize(("measure", "is_said"), [("jitter_share", True), ("missing_share", False)])
def test_uneven_pictures_are_put_down_to_the_machine(measure: str, is_said: bool) -> None:
    finding = Finding(measure=measure, value=0.97, limit=0.25, verdict="warn")
    told = pipeline.of_the_machine([finding])
    assert bool(told) == is_said
    assert not is_said or "machine" in told[0]


@pytest.mark.parametrize(
    ("total_bytes", "hint"), [(64 << 20, "docker run --shm-size=2g"), (8 << 30, "ask the driver")]
)
def test_without_room_there_is_one_error_with_the_doctors_advice(
    tpool: Callable, monkeypatch: pytest.MonkeyPatch, total_bytes: int, hint: str
) -> None:
    def run(config: Any, **_: object) -> Any:
        seen: Any = type("Seen", (), {"outcome": viewer.Outcome(camera_exit=1)})()
        seen.outcome.camera_failure = camera.CameraFailure("no room", "ask the driver")
        return seen

    monkeypatch.setattr(viewer, "run", run)
    memory = SharedMemory(total_bytes=total_bytes, free_bytes=total_bytes)
    monkeypatch.setattr(look, "read_shared_memory", lambda _: memory)
    outcome = tpool("demo")
    assert (outcome.code, outcome.out) == (1, "")
    what, where, advice = outcome.err.splitlines()
    assert (what, where) == ("error: the camera can't start: no room", "   at: /dev/shm")
    assert advice.startswith(f"  try: {hint}")

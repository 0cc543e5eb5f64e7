"""Directories of embedded drivers: private to a program, and gone with it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tensor_pool as tp
from tensor_pool.config import ShmSection
from tensor_pool.driver.lock import BaseDirLock
from tensor_pool.host import instances
from tensor_pool.host.instances import (
    new_instance_id,
    remove_dead_instances,
    remove_dead_media,
    remove_instance,
)


@pytest.fixture
def shm(tmp_path) -> ShmSection:
    return ShmSection(shm_base_dir=str(tmp_path))


def make(shm: ShmSection, name: str) -> Path:
    user = (
        next(Path(shm.shm_base_dir).glob("tensorpool-*"), None) or Path(shm.shm_base_dir) / "tensorpool-root"
    )
    directory = user / name
    (directory / "10000" / "5").mkdir(parents=True)
    (directory / "10000" / "5" / "header.ring").write_bytes(b"x")
    return directory


def test_a_dead_instance_is_removed_and_a_live_one_is_not(shm, monkeypatch):
    monkeypatch.setattr("tensor_pool.driver.files.effective_user_name", lambda: "root")
    dead = make(shm, f"default-{new_instance_id()}")
    live = make(shm, f"default-{new_instance_id()}")
    configured = make(shm, "default")
    other = make(shm, "default-lab")
    with BaseDirLock(live):
        assert remove_dead_instances(shm) == 1
        assert [path.exists() for path in (dead, live, configured, other)] == [False, True, True, True]
        assert not remove_instance(live)
    assert remove_instance(live)
    assert not live.exists()
    assert remove_instance(live), "it is gone already"


def test_a_link_is_left_alone(shm, tmp_path):
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("keep")
    link = tmp_path / "link"
    link.symlink_to(target)
    remove_instance(link)
    assert (target / "file").read_text() == "keep"


def test_an_embedded_pool_leaves_nothing(tmp_path):
    with tp.connect(embedded=True, settings={"shm.shm_base_dir": str(tmp_path)}) as pool:
        pool.producer("a", dtype="uint8", shape=(4,), slots=8)
        (instance,) = next(tmp_path.iterdir()).iterdir()
        assert instance.name.startswith("default-embedded-")
    assert list(next(tmp_path.iterdir()).iterdir()) == []


def test_what_a_killed_program_left_goes_with_the_next(tmp_path):
    script = (
        "import sys, os, signal, tensor_pool as tp\n"
        f"pool = tp.connect(embedded=True, settings={{'shm.shm_base_dir': {str(tmp_path)!r}}})\n"
        "pool.producer('a', dtype='uint8', shape=(4,), slots=8)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    user = next(tmp_path.iterdir())
    assert len(list(user.iterdir())) == 1
    with tp.connect(embedded=True, settings={"shm.shm_base_dir": str(tmp_path)}):
        assert len(list(user.iterdir())) == 1, "its own"
    assert list(user.iterdir()) == []


def test_a_lock_file_that_was_removed_meanwhile_is_not_held_twice(tmp_path):
    first = BaseDirLock(tmp_path)
    first.remove()
    assert not first.held
    with BaseDirLock(tmp_path) as second:
        assert second.held
        with pytest.raises(tp.RegionError, match="another SHM driver"):
            BaseDirLock(tmp_path)


def test_the_directory_of_a_killed_media_driver_goes_when_it_is_surely_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(instances, "temporary_aeron_dir", lambda: str(tmp_path / "any"))
    script = f"""
        import os, time, tensor_pool as tp
        with tp.connect({str(tmp_path)!r} + f"/tensor-pool-{{os.getpid()}}-0123456789ab", embedded=True,
                        settings={{"shm.shm_base_dir": {str(tmp_path)!r}}}) as pool:
            print(pool.aeron_dir, flush=True)
            time.sleep(60)
    """
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    directory = Path(program.stdout.readline().strip())
    others = [tmp_path / name for name in ("tensor-pool-1-0123456789ab", "aeron-ada", "tensor-pool-x")]
    for other in others:
        other.mkdir()
    try:
        assert remove_dead_media(silent_s=0) == 0
    finally:
        program.kill()
        program.communicate()
    assert remove_dead_media() == 0, "it may only be stopped"
    assert directory.is_dir()
    assert remove_dead_media(silent_s=0) == 1
    assert not directory.exists()
    assert all(other.is_dir() for other in others)

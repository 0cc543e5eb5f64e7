"""A host inside one process leaves nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-test-") as directory:
        yield Path(directory)


def publish_one(base: Path, **settings: object) -> None:
    places = {"shm.shm_base_dir": str(base), "log.level": "warning", **settings}
    with (
        tp.connect(embedded=True, settings=places) as pool,
        pool.producer("a", dtype="u1", shape=(4,)) as out,
    ):
        out.publish(np.zeros(4, "u1"))
        assert list(base.rglob("header.ring")), "there was something to leave behind"


def test_a_private_instance_goes_with_all_its_files(base: Path) -> None:
    for _ in range(2):
        publish_one(base)
    (user,) = base.iterdir()
    assert list(user.iterdir()) == []


@pytest.mark.parametrize(
    "settings", [{"driver.instance_id": "mine"}, {"driver.cleanup_on_exit": False}], ids=["named", "kept"]
)
def test_what_was_configured_stays(base: Path, settings: dict[str, object]) -> None:
    publish_one(base, **settings)
    assert [file.name for file in base.rglob("driver-state.json")] == ["driver-state.json"]

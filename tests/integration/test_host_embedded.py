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


def test_an_instance_that_was_named_stays(base: Path) -> None:
    publish_one(base, **{"driver.instance_id": "mine"})
    assert [file.name for file in base.rglob("driver-state.json")] == ["driver-state.json"]

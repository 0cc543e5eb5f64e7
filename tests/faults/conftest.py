"""A host for programs that die; and what must hold once they are dead."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from pool_hosts import LAYOUTS, Ear, quick_host
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster


@pytest.fixture(scope="session", params=list(LAYOUTS))
def host(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with quick_host(request.param) as cluster:
        yield cluster


@pytest.fixture
def pool(host: Cluster) -> Iterator[Pool]:
    with host.connect() as connected:
        yield connected


@pytest.fixture
def ear(host: Cluster) -> Iterator[Ear]:
    with Ear(host, ["control", "announce"]) as listening:
        yield listening


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a stream that no other test uses."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")


@contextlib.contextmanager
def disk_of(size: str, directory):
    """A file system of its own, of so many bytes."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("can't mount")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.fixture
def small(tmp_path):
    """Four MiB of disk."""
    with disk_of("4m", tmp_path / "small") as directory:
        yield directory


@pytest.fixture
def room_for_large_frames(tmp_path):
    """Forty MiB of disk."""
    with disk_of("40m", tmp_path / "small") as directory:
        yield directory

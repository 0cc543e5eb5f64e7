"""Real media drivers in directories of their own, and scripts that must end as they should."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tensor_pool.transport import AeronClient, EmbeddedMediaDriver, SpawnedMediaDriver
from tensor_pool.transport.media import temporary_aeron_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def aeron_dir() -> Iterator[str]:
    """The name of a directory that nobody else uses; gone at the end with all whose names begin like it."""
    directory = Path(temporary_aeron_dir())
    yield str(directory)
    for left in directory.parent.glob(f"{directory.name}*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


@pytest.fixture
def media_driver(aeron_dir: str) -> Iterator[EmbeddedMediaDriver]:
    with EmbeddedMediaDriver(aeron_dir) as driver:
        yield driver


@pytest.fixture
def spawned_driver(aeron_dir: str) -> Iterator[SpawnedMediaDriver]:
    with SpawnedMediaDriver(aeron_dir) as driver:
        yield driver


@pytest.fixture
def client(media_driver: EmbeddedMediaDriver) -> Iterator[AeronClient]:
    with AeronClient.connect(media_driver.aeron_dir) as connected:
        yield connected


class RunScript(Protocol):
    def __call__(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run_script() -> RunScript:
    """Runs code in an interpreter of its own, to its end."""

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Waits for a condition; fails when it does not come true."""

    def wait(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.002)

    return wait

"""Drivers on a bench."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from driver_bench import DriverBench


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory in shared memory of the test's own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture
def start(base: Path) -> Iterator[Callable[..., DriverBench]]:
    """Starts drivers that end with the test."""
    with ExitStack() as stack:

        def start(**fields: Any) -> DriverBench:
            return stack.enter_context(DriverBench(base, **fields))

        yield start


@pytest.fixture
def driver(start: Callable[..., DriverBench]) -> DriverBench:
    return start()

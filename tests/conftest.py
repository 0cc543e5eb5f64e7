"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tensor_pool.runtime import logs

# Two cores, shared with drivers and other processes of the tests: an example that was slow once says nothing.
settings.register_profile("shared machine", deadline=None, print_blob=True)
settings.load_profile("shared machine")

# A shell that starts `make test &` from a script has SIGINT ignored, which every child inherits: none would
# end at Ctrl-C. A handler of ours is not inherited; children begin with what a terminal would give them.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST_FIRST = (
    "test_docs_tutorials.py",
    "test_docs_examples.py",
    "test_wheel.py",
    "test_killed_clients.py",
    "test_driver_and_clients.py",
    "test_jobs_command.py",
    "test_supervisor.py",
    "test_functions.py",
    "test_batch_source.py",
    "test_dataset.py",
)
"""Files that take most of a minute or more: begun last, one of them would run on alone."""


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that a test runs in this process sets up logging, to a stream that ends with the test."""
    yield
    logs.reset()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those first, then files with many tests; tests of a file keep the order that they have."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return  # the order of files does not matter, and pytest's own saves hosts
    rank = {name: place for place, name in enumerate(LONGEST_FIRST)}
    tests = Counter(item.path for item in items)
    # With its path at the end, since files that are equal otherwise must not be taken apart.
    items.sort(key=lambda i: (rank.get(i.path.name, len(rank)), -tests[i.path], str(i.path)))

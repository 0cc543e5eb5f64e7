"""The examples in docstrings run, with real media drivers where they use them."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ["backpressure", "client", "counters", "drain", "endpoints", "media", "memory", "spawned"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"tensor_pool.transport.{name}"))
    assert result.attempted > 0
    assert result.failed == 0

"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = [
    f"tensor_pool.{name}"
    for name in ("config", "driver", "host", "ops", "pipeline.dataset", "pool", "runtime")
]


def modules() -> list[str]:
    names = ["tensor_pool", "tensor_pool.channels", "tensor_pool.closing", "tensor_pool.errors"]
    names += [f"tensor_pool.testing.{name}" for name in ("loss", "namespaces", "relay", "waiting")]
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        names += [package, *(found.name for found in pkgutil.walk_packages(path, f"{package}."))]
    return names


@pytest.mark.parametrize("name", modules())
def test_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)

    assert outcome.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = sum(
        len(test.examples) for name in modules() for test in finder.find(importlib.import_module(name))
    )

    assert examples > 60

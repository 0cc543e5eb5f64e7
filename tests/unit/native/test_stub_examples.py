"""The examples in the native module's stub run and print what they say."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path

import pytest

import tensor_pool
from tensor_pool import _native

STUB = Path(tensor_pool.__file__).with_name("_native.pyi")


def examples() -> dict[str, doctest.DocTest]:
    parser, found = doctest.DocTestParser(), {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            test = parser.get_doctest(text, dict(vars(_native)), node.name, str(STUB), node.lineno)
            if test.examples:
                found[node.name] = test
    return found


@pytest.mark.parametrize("name", sorted(examples()))
def test_example(name: str) -> None:
    assert doctest.DocTestRunner().run(examples()[name]).failed == 0


def test_there_are_examples() -> None:
    assert {"AeronDrain", "BellWatcher", "RingKeeper", "RingWriter", "create_ring"} <= set(examples())

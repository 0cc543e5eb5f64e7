"""Packages whose names load when they are first used: workers of Spark start often, and need few of them."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_names"]


def lazy_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        package: Its name.
        names: Public names, and the modules of the package that define them. None is called like a module:
            importing that would put it in the name's place.

    Example:
        >>> find = lazy_names("tensor_pool.pipeline.record", {"Recording": "recording"})
        >>> find("Recording").__name__
        'Recording'
        >>> find("Tape")
        Traceback (most recent call last):
        AttributeError: module 'tensor_pool.pipeline.record' has no attribute 'Tape'
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{names[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find

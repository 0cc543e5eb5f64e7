"""Tests that fork on purpose, though there are threads: how they tell Python that they know.

From 3.12 on Python warns about it, and a warning is an error here. Only that one is let through.
"""

from __future__ import annotations

from typing import Final

import pytest

WARNING: Final = r"This process \(pid=\d+\) is multi-threaded, use of fork\(\) may lead to deadlocks"

forks = pytest.mark.filterwarnings(f"ignore:{WARNING}:DeprecationWarning")
"""Decorates a test that forks in its own process."""

SCRIPT_FORKS: Final = f"""
import warnings
warnings.filterwarnings("ignore", {WARNING!r}, DeprecationWarning)
"""
"""Stands in a script that forks, whose standard error is to stay empty."""

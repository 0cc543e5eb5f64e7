"""Frames that go to another host: through two bridges, and over a bare Aeron stream for comparison."""

from __future__ import annotations

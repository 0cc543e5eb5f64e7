"""Which machine this is, and which start of it: rings and monotonic clocks mean nothing elsewhere."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

__all__ = ["boot_id", "host_name"]


def host_name() -> str:
    """Which machine this is."""
    return platform.node()


@cache
def boot_id() -> str:
    """Which start of it; empty when the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""

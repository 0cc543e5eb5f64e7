"""What a check found: how bad it is, what it is, what to do."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

__all__ = ["Finding", "Status", "counted", "fine", "human_bytes", "problem", "warning"]

Status = Literal["ok", "warning", "problem"]
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


class Finding(msgspec.Struct, frozen=True):
    """The outcome of one check; in JSON the advice is called ``try``.

    Example:
        >>> warning("media driver", "none runs", "tpool up").status
        'warning'
    """

    check: str
    status: Status
    found: str
    advice: str | None = None


def fine(check: str, found: str, advice: str | None = None) -> Finding:
    """All is well; the advice is a tip."""
    return Finding(check, "ok", found, advice)


def warning(check: str, found: str, advice: str) -> Finding:
    """It works, but slower, or not always, or not with everybody."""
    return Finding(check, "warning", found, advice)


def problem(check: str, found: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(check, "problem", found, advice)


def counted(count: int, noun: str) -> str:
    """So many of something.

    Example:
        >>> counted(1, "epoch"), counted(0, "flaw"), counted(1200, "frame")
        ('1 epoch', '0 flaws', '1200 frames')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def human_bytes(count: int) -> str:
    """A size as people read it.

    Example:
        >>> human_bytes(64 << 20), human_bytes(1000), human_bytes(1536)
        ('64 MiB', '1000 bytes', '1.5 KiB')
    """
    size, unit = float(count), "bytes"
    for larger in _UNITS:
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"

"""The kinds of values that configuration knows: what each accepts, and how to say so.

A section annotates its fields with these and adds the documentation of the field with `doc`; `keys` reads
both back. Numbers are bounded everywhere, so that a slip of the keyboard is an error and not a disaster.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta

__all__ = [
    "AbsolutePath",
    "AeronDirectory",
    "Channel",
    "Milliseconds",
    "Namespace",
    "StreamId",
    "TermLength",
    "doc",
    "format_size",
    "parse_size",
]

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_SIZE: Final = re.compile(r"\A([0-9]{1,18})([kmgKMG]?)\Z")
_FACTORS: Final = {"": 1, "k": KIB, "m": MIB, "g": GIB}

# Keys of Meta(extra=...), which msgspec carries along and `keys` understands.
ALLOWED: Final = "allowed"
"""What the kind accepts, in words; needed where a pattern would not tell a person anything."""
IS_SIZE: Final = "is_size"
"""The value is a number of bytes and may be written as in Aeron: 64k, 4m, 1g."""
POWER_OF_TWO: Final = "power_of_two"


def doc(text: str) -> Meta:
    """The documentation of a field, shown by ``tpool config explain`` and written by ``tpool config init``.

    Example:
        >>> doc("Where the files are.").description
        'Where the files are.'
    """
    return Meta(description=text)


def parse_size(text: str) -> int:
    """Read a size as Aeron writes it.

    Raises:
        ValueError: Not a whole number with an optional k, m or g.

    Example:
        >>> parse_size("64k"), parse_size("4M"), parse_size("100")
        (65536, 4194304, 100)
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise ValueError("not a number with k, m, g or nothing after it")
    return int(match[1]) * _FACTORS[match[2].lower()]


def format_size(size: int) -> str:
    """Write a size as Aeron reads it, as short as it gets without rounding.

    Example:
        >>> format_size(4 * 1024 * 1024), format_size(1000)
        ('4m', '1000')
    """
    for suffix in ("g", "m", "k"):
        if size and size % _FACTORS[suffix] == 0:
            return f"{size // _FACTORS[suffix]}{suffix}"
    return str(size)


Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
"""A duration from a millisecond to an hour."""

TermLength = Annotated[int, Meta(ge=64 * KIB, le=GIB, extra={IS_SIZE: True, POWER_OF_TWO: True})]
"""The length of one term buffer; the limits are Aeron's."""

StreamId = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""An Aeron stream id; Aeron's are signed, 0 means "none" in our messages."""

Channel = Annotated[
    str,
    Meta(
        pattern=r"\Aaeron:(ipc|udp)(\?[!-~]+)?\Z",
        extra={ALLOWED: "an Aeron channel such as aeron:ipc or aeron:udp?endpoint=HOST:PORT"},
    ),
]
"""An Aeron channel."""

AeronDirectory = Annotated[
    str,
    Meta(pattern=r"\A(/[^\0]*)?\Z", extra={ALLOWED: "an absolute path, or empty for Aeron's own default"}),
]
"""The directory of a media driver."""

# The characters are those of a path in a region URI: visible ASCII without "?" and "|" (decision M11).
AbsolutePath = Annotated[
    str,
    Meta(
        pattern=r"\A/[!->@-{}~]*\Z",
        extra={ALLOWED: "an absolute path of visible ASCII characters without ?, | and spaces"},
    ),
]
"""A directory below which regions lie."""

Namespace = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\Z",
        extra={ALLOWED: "1 to 64 letters, digits, _, - and ., not starting with - or ."},
    ),
]
"""One component of a path that can't lead anywhere else."""

"""The kinds of values that configuration knows: what each accepts, and how to say so.

A section annotates its fields with these and adds the documentation of the field with `doc`; `keys` reads
both back. Numbers are bounded everywhere, so that a slip of the keyboard is an error and not a disaster.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from tensor_pool.channels import for_publication

__all__ = [
    "AbsolutePath",
    "AeronDirectory",
    "Channel",
    "Milliseconds",
    "Namespace",
    "StreamId",
    "TermLength",
    "TimerInterval",
    "doc",
]

# Keys of Meta(extra=...), which msgspec carries along and `keys` understands.
ALLOWED: Final = "allowed"
"""What the kind accepts, in words; needed where a pattern would not tell a person anything."""
IS_SIZE: Final = "is_size"
"""The value is a number of bytes and may be written as in Aeron: 64k, 4m, 1g."""
POWER_OF_TWO: Final = "power_of_two"
CHECK: Final = "check"
"""A function that raises `ValueError` about a value, for what patterns and bounds can't say."""


def doc(text: str) -> Meta:
    """The documentation of a field, shown by ``tpool config explain`` and written by ``tpool config init``.

    Example:
        >>> doc("Where the files are.").description
        'Where the files are.'
    """
    return Meta(description=text)


Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
"""A duration from a millisecond to an hour."""

TimerInterval = Annotated[int, Meta(ge=1, le=1_000)]
"""How often time-outs are looked at; up to Aeron's own default, below every time-out that has no key."""

TermLength = Annotated[int, Meta(ge=64 << 10, le=1 << 30, extra={IS_SIZE: True, POWER_OF_TWO: True})]
"""The length of one term buffer; the limits are Aeron's."""

StreamId = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""An Aeron stream id; Aeron's are signed, 0 means "none" in our messages."""


def _check_channel(text: str) -> None:
    # The same code that completes channels in use; what can be published to can be subscribed to as well.
    for_publication(text)


Channel = Annotated[
    str,
    Meta(
        extra={
            CHECK: _check_channel,
            ALLOWED: "an Aeron channel such as aeron:ipc or aeron:udp?endpoint=HOST:PORT",
        },
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

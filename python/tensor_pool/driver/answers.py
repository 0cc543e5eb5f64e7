"""What a driver says: a refusal with its code and words, and the texts of all answers."""

from __future__ import annotations

from typing import Final, NamedTuple

from tensor_pool.errors import RegionError, RegionFullError, TensorPoolError
from tensor_pool.wire.messages import ResponseCode

__all__ = ["MAX_TEXT_BYTES", "Moment", "Refusal", "refusal_of", "wire_text"]

MAX_TEXT_BYTES: Final = 1024
"""What an error text has at most (decision D11)."""


class Moment(NamedTuple):
    """Both times at which something happens: nouns have no clock."""

    monotonic_ns: int
    realtime_ns: int


class Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """A request is not granted; carries the answer.

    Example:
        >>> Refusal(ResponseCode.REJECTED, "the stream has a producer").code.name
        'REJECTED'
    """

    def __init__(self, code: ResponseCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def wire_text(text: str) -> str:
    r"""Text as messages carry it: ASCII on one line, at most 1024 bytes.

    Example:
        >>> wire_text("no\nroom \u2603"), len(wire_text("x" * 2_000))
        ('no room \\u2603', 1024)
    """
    line = " ".join(text.split())
    encoded = line.encode("ascii", "backslashreplace")
    if len(encoded) > MAX_TEXT_BYTES:
        encoded = encoded[: MAX_TEXT_BYTES - 3] + b"..."
    return encoded.decode("ascii")


def refusal_of(error: RegionError) -> Refusal:
    """The answer to a request whose files could not be made: our failure, not the client's [DRV-4.6-5]."""
    what = "no room for the stream" if isinstance(error, RegionFullError) else "the regions can't be made"
    return Refusal(ResponseCode.INTERNAL_ERROR, f"{what}: {_explained(error)}")


def _explained(error: TensorPoolError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message

"""What both ends of every link have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

WARM_UP: Final = 0
"""Number of frames that only touch memory."""
END: Final = 2**63
"""Number of the frames that say that all is sent."""


class Sender(Protocol):
    """The end that sends."""

    def send(self, number: int) -> None:
        """Sends frame `number`, stamped with the time when this call began."""

    def close(self) -> None:
        """Ends the connection."""


class Receiver(Protocol):
    """The end that receives."""

    def receive(self, timeout_s: float) -> tuple[int, int] | None:
        """The next frame's number and time stamp; None when none came in time, or it was overwritten.

        Raises:
            ValueError: The frame's end does not belong to its beginning.
        """

    def close(self) -> None:
        """Ends the connection."""


def stamp(words: Words, number: int, now_ns: int) -> None:
    """Writes what the receiver checks: the number at both ends, and the time."""
    words[0] = number
    words[1] = now_ns
    words[-1] = number


def read_stamp(words: Words) -> tuple[int, int]:
    """The number and the time of a frame.

    Raises:
        ValueError: The frame's end does not belong to its beginning.
    """
    number = int(words[0])
    if int(words[-1]) != number:
        raise ValueError(f"a torn frame: {number} at its beginning, {words[-1]} at its end")
    return number, int(words[1])

"""A process that is nothing but a media driver: for `SpawnedMediaDriver` and `tpool media run`.

Usage: ``python -m tensor_pool.transport.media_main AERON_DIR OPTIONS_AS_JSON``. One line of JSON on standard
output says how the start went; the process then runs until SIGINT, SIGTERM or the end of its standard input.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import TensorPoolError
from tensor_pool.transport.media import EmbeddedMediaDriver, MediaDriverOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["EXIT_FAILED", "EXIT_OK", "main", "serve"]

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1


def serve(
    aeron_dir: str,
    options: MediaDriverOptions,
    announce: Callable[[EmbeddedMediaDriver], object],
    *,
    end_with_stdin: bool = False,
) -> None:
    """Runs a media driver until SIGINT or SIGTERM.

    Args:
        aeron_dir: Its directory.
        options: How it runs.
        announce: Called once it runs.
        end_with_stdin: End with the standard input too.

    Raises:
        TransportError: It could not start.
    """
    signals, wake_up = os.pipe()
    os.set_blocking(wake_up, False)

    def on_signal(signum: int, frame: FrameType | None) -> None:
        """Only there so that Python writes to the pipe instead of raising or dying."""

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    wake_up_before = signal.set_wakeup_fd(wake_up)
    try:
        with EmbeddedMediaDriver(aeron_dir, options) as driver:
            announce(driver)
            # Sleeps in the kernel until there is a reason to end; the driver's own threads need no help.
            select.select([signals, *([sys.stdin] if end_with_stdin else [])], [], [])
    finally:
        signal.set_wakeup_fd(wake_up_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(signals)
        os.close(wake_up)


def _say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """The process that `SpawnedMediaDriver` starts."""
    aeron_dir, options = arguments
    try:
        serve(
            aeron_dir,
            MediaDriverOptions(**json.loads(options)),
            lambda driver: _say({"aeron_dir": driver.aeron_dir, "pid": driver.pid}),
            end_with_stdin=True,
        )
    except TensorPoolError as error:
        _say({"error": type(error).__name__, "message": error.message, "hint": error.hint})
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

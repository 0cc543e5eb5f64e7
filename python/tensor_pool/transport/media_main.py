"""A process that is nothing but a media driver: for `SpawnedMediaDriver` and `tpool media run`.

Usage: ``python -m tensor_pool.transport.media_main AERON_DIR OPTIONS_AS_JSON``. One line of JSON on standard
output says how the start went; the process then runs until SIGINT, SIGTERM or the end of its standard input.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import TensorPoolError
from tensor_pool.stop_signals import StopSignals
from tensor_pool.transport.media import EmbeddedMediaDriver, MediaDriverOptions

if TYPE_CHECKING:
    from collections.abc import Callable

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
    with StopSignals() as stop, EmbeddedMediaDriver(aeron_dir, options) as driver:
        announce(driver)
        # The driver's own threads need no help.
        stop.wait(end_of=sys.stdin if end_with_stdin else None)


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

"""How ``tpool`` ends. Needs nothing but the standard library, since it may end before click was found."""

from __future__ import annotations

from typing import Final

__all__ = ["BROKEN_PIPE", "INTERRUPTED", "NO_DRIVER", "OK", "PROBLEMS", "USAGE"]

OK: Final = 0
PROBLEMS: Final = 1
USAGE: Final = 2  # a wrong command line, a wrong configuration, or a missing package
NO_DRIVER: Final = 3
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE: Final = 141  # 128 + SIGPIPE

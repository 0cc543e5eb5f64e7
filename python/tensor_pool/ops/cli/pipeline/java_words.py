"""What Java and its own Pythons write on standard error, until nobody wants to know."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["java_words"]

_STANDARD_ERROR: Final = 2


@contextmanager
def java_words(*, are_wanted: Callable[[], bool]) -> Iterator[None]:
    """Passes on what processes write that are started within the block, for as long as they live.

    A command that was interrupted closes what Spark's processes are in the middle of writing to, and each of
    them says so with a page of text. They can't be told to be quiet.
    """
    source, sink = os.pipe()
    before = os.dup(_STANDARD_ERROR)
    os.dup2(sink, _STANDARD_ERROR)
    arguments = (source, before, are_wanted)
    threading.Thread(target=_pass_on, args=arguments, name="java words", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(before, _STANDARD_ERROR)
        os.close(sink)


def _pass_on(source: int, to: int, are_wanted: Callable[[], bool]) -> None:
    while words := os.read(source, 1 << 16):
        if are_wanted():
            with suppress(OSError):  # nobody reads ours either
                os.write(to, words)
    os.close(source)
    os.close(to)

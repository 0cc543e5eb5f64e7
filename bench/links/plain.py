"""Frames through shared memory with nothing around them: what two processes reach that only copy.

No names, no checks, no waking: the sender counts its frames in a word, and a receiver that falls behind by a
whole round would read nonsense without noticing. Both copy at once, as the ends of every other link do.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from links.ends import read_stamp, stamp

if TYPE_CHECKING:
    from links.plan import LinkPlan

_PAGE_WORDS: Final = 512
_NAP_S: Final = 50e-6


class _Memory:
    """A count of frames, and behind it the slots."""

    def __init__(self, plan: LinkPlan, *, create: bool) -> None:
        path = Path("/dev/shm") / f"tensor-pool-{plan.name}"
        length = _PAGE_WORDS + plan.slots * plan.words
        if create:
            np.memmap(path, np.uint64, "w+", shape=length)[...] = 0  # touched: no page is fresh later
        words = np.memmap(path, np.uint64, "r+", shape=length)
        if not create:
            path.unlink()  # both have it
        self.count = words[:1]
        self.slots = words[_PAGE_WORDS:].reshape(plan.slots, plan.words)


class PlainSender:
    """Copies into one slot after the other."""

    def __init__(self, plan: LinkPlan) -> None:
        self._memory = _Memory(plan, create=True)
        self._sent = 0
        self._source = np.zeros(plan.words, np.uint64)

    def send(self, number: int) -> None:
        """Copies a frame and counts it."""
        stamp(self._source, number, time.monotonic_ns())
        np.copyto(self._memory.slots[self._sent % len(self._memory.slots)], self._source)
        self._sent += 1
        self._memory.count[0] = self._sent

    def close(self) -> None:
        """Nothing to do: it ends with the process."""


class PlainReceiver:
    """Copies out of one slot after the other; half a round behind when it was too slow."""

    def __init__(self, plan: LinkPlan) -> None:
        self._memory = _Memory(plan, create=False)
        self._taken = 0
        self._target = np.zeros(plan.words, np.uint64)

    def receive(self, timeout_s: float) -> tuple[int, int] | None:
        """The next frame."""
        deadline = time.monotonic() + timeout_s
        while (sent := int(self._memory.count[0])) == self._taken:
            if time.monotonic() > deadline:
                return None
            time.sleep(_NAP_S)
        slots = self._memory.slots
        if sent - self._taken > len(slots) // 2:
            self._taken = sent - len(slots) // 2
        np.copyto(self._target, slots[self._taken % len(slots)])
        self._taken += 1
        return read_stamp(self._target)

    def close(self) -> None:
        """Nothing to do."""

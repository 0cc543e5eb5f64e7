"""Counters by reason, that every process of the host can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from tensor_pool.runtime.counters import Counter, CounterFactory, CounterType

__all__ = ["ReasonCounters"]

_MAX_KEY_BYTES: Final = 100


class ReasonCounters(Closing):
    """The numbers of one owner; what is counted by reason gets a counter with the first of its kind.

    Example:
        >>> from tensor_pool.runtime import CounterType, LocalCounters
        >>> counters = ReasonCounters(LocalCounters(), "discovery")
        >>> counters.add(CounterType.DISCOVERY_DROPPED, "no_response_channel")
        >>> counters.snapshot()
        {'queries dropped (no_response_channel)': 1}
    """

    def __init__(self, factory: CounterFactory, owner: str) -> None:
        self._factory = factory
        self._owner = owner
        self._cells: dict[tuple[CounterType, str], Counter] = {}

    def add(self, kind: CounterType, reason: str = "") -> None:
        """Counts one more."""
        self.cell(kind, reason).add()

    def set(self, kind: CounterType, value: int) -> None:
        """Says how many there are."""
        self.cell(kind).set(value)

    def cell(self, kind: CounterType, reason: str = "") -> Counter:
        """The counter itself."""
        key = (kind, reason)
        if key not in self._cells:
            self._cells[key] = self._factory.create(
                kind, f"{self._owner}: {_name(*key)}", key=reason.encode("ascii")[:_MAX_KEY_BYTES]
            )
        return self._cells[key]

    def snapshot(self) -> dict[str, int]:
        """All numbers by their names."""
        return {_name(*key): cell.value for key, cell in self._cells.items()}

    def close(self) -> None:
        """Gives the counters back. May be called again."""
        for cell in self._cells.values():
            cell.close()
        self._cells.clear()


def _name(kind: CounterType, reason: str) -> str:
    return f"{kind.label} ({reason})" if reason else kind.label

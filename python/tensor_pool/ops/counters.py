"""Everybody's counters: what each counts, whose it is, and how fast it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.runtime.counters import FIRST_TYPE_ID, CounterType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.transport import CounterReading

__all__ = ["CounterRow", "CounterRows", "counter_kind"]

_OURS: Final = {kind.type_id: kind for kind in CounterType}
_LAST_TYPE_ID: Final = FIRST_TYPE_ID + 999
_AERON: Final = {
    0: "media driver",
    1: "publication limit",
    2: "sender position",
    3: "receiver highest position",
    4: "subscription position",
    5: "receiver position",
    6: "send channel",
    7: "receive channel",
    9: "sender limit",
    10: "image position",
    11: "client heartbeat",
    12: "publication position",
    13: "sender back-pressure",
    14: "local address",
    15: "name resolver neighbours",
    16: "name resolver entries",
    17: "receivers",
    18: "destinations",
    19: "NAKs received",
    20: "NAKs sent",
}
_NS_PER_S: Final = 1e9


class CounterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A counter as it is printed; the names are the keys of the JSON output."""

    counter_id: int
    type_id: int
    kind: str
    value: int
    per_second: float | None
    """How fast it grew since the last look; None at the first."""
    owner_id: int | None
    """The Aeron client that made it; None for the media driver's own."""
    label: str
    key: str
    """Hexadecimal, without zeros behind."""


def counter_kind(type_id: int) -> str:
    """What counters of a type count, in a few words.

    Example:
        >>> counter_kind(4002), counter_kind(12), counter_kind(1234)
        ('errors', 'publication position', 'type 1234')
    """
    if type_id in _OURS:
        return _OURS[type_id].label
    return _AERON.get(type_id, f"type {type_id}")


class CounterRows:
    """Turns readings into rows, and remembers them for the next time.

    Args:
        ours: Only counters of tensor pools (types 4000 to 4999).
        type_id: Only counters of this type.
        text: Only counters with this in their label, whatever the case of its letters.

    Example:
        >>> from tensor_pool.transport import CounterReading
        >>> rows = CounterRows(ours=True)
        >>> reading = CounterReading(50, 4001, 7, 1, 3, bytes(112), "camera: work")
        >>> [(row.kind, row.value, row.per_second) for row in rows.update([reading], now_ns=0)]
        [('work', 7, None)]
        >>> [row.per_second for row in rows.update([reading._replace(value=9)], now_ns=500_000_000)]
        [4.0]
    """

    def __init__(self, *, ours: bool = False, type_id: int | None = None, text: str = "") -> None:
        self._ours = ours
        self._type_id = type_id
        self._text = text.casefold()
        self._last: dict[tuple[int, int], int] = {}
        self._last_ns: int | None = None

    def update(self, readings: Iterable[CounterReading], *, now_ns: int) -> list[CounterRow]:
        """The rows of what was read now."""
        elapsed_s = None if self._last_ns is None else (now_ns - self._last_ns) / _NS_PER_S
        rows: list[CounterRow] = []
        values: dict[tuple[int, int], int] = {}
        for reading in readings:
            if not self._wanted(reading):
                continue
            # A counter's number is used again after its end; its registration is not.
            identity = (reading.counter_id, reading.registration_id)
            values[identity] = reading.value
            before = self._last.get(identity)
            rate = None if before is None or not elapsed_s else (reading.value - before) / elapsed_s
            rows.append(_row(reading, rate))
        self._last, self._last_ns = values, now_ns
        return rows

    def _wanted(self, reading: CounterReading) -> bool:
        return (
            (not self._ours or FIRST_TYPE_ID <= reading.type_id <= _LAST_TYPE_ID)
            and (self._type_id is None or reading.type_id == self._type_id)
            and self._text in reading.label.casefold()
        )


def _row(reading: CounterReading, rate: float | None) -> CounterRow:
    return CounterRow(
        counter_id=reading.counter_id,
        type_id=reading.type_id,
        kind=counter_kind(reading.type_id),
        value=reading.value,
        per_second=None if rate is None else round(rate, 3),
        owner_id=reading.owner_id if reading.owner_id >= 0 else None,
        label=reading.label,
        key=reading.key.rstrip(b"\0").hex(),
    )

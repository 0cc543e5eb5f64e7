"""What bridges count, in counters that every process of the host can read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.runtime.counters import CounterType
from tensor_pool.transport.counters import read_counters

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from tensor_pool.bridging.service import MappingStats
    from tensor_pool.runtime import Counter, CounterFactory

__all__ = ["BridgeCounters", "MappingReading", "read_bridges"]

_PERIOD_NS: Final = 500_000_000
_KEY: Final = struct.Struct("<IIB")
"""Source, destination, and how long the reason is that follows."""

_SENT: Final = {
    CounterType.BRIDGE_FRAMES_SENT: "frames",
    CounterType.BRIDGE_CHUNKS_SENT: "chunks",
    CounterType.BRIDGE_BYTES_SENT: "nbytes",
}
_RECEIVED: Final = {
    CounterType.BRIDGE_FRAMES: "frames",
    CounterType.BRIDGE_CHUNKS: "chunks",
    CounterType.BRIDGE_BYTES: "nbytes",
    CounterType.BRIDGE_ASSEMBLIES: "in_flight",
    CounterType.BRIDGE_ASSEMBLY_BYTES: "bytes_in_flight",
    CounterType.BRIDGE_ASSEMBLY_NS: "assembly_ns",
}


class BridgeCounters:
    """An agent that keeps the counters of a bridge up to date, twice a second.

    Args:
        instance_id: What the bridge is called.
        counters: Where counters come from.
        stats: What to count.
        now_ns: The time.
    """

    name: Final = "bridge counters"

    def __init__(
        self,
        instance_id: str,
        counters: CounterFactory,
        stats: Callable[[], Sequence[MappingStats]],
        *,
        now_ns: Callable[[], int],
    ) -> None:
        self._instance_id = instance_id
        self._counters = counters
        self._stats = stats
        self._now_ns = now_ns
        self._due_ns = 0
        self._cells: dict[tuple[CounterType, int, int, str], Counter] = {}

    def on_start(self) -> None:
        """Nothing to open."""

    def do_work(self) -> int:
        """See `tensor_pool.runtime.Agent.do_work`."""
        now_ns = self._now_ns()
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + _PERIOD_NS
            self.update()
        return 0

    def on_close(self) -> None:
        """Gives the counters back."""
        for cell in self._cells.values():
            cell.close()
        self._cells.clear()

    def update(self) -> None:
        """Writes all numbers."""
        for mapping in self._stats():
            if mapping.sent is not None:
                self._set_all(mapping, mapping.sent, _SENT)
                self._set_each(mapping, CounterType.BRIDGE_FRAMES_UNSENT, mapping.sent.dropped)
            if mapping.received is not None:
                self._set_all(mapping, mapping.received, _RECEIVED)
                self._set_each(mapping, CounterType.BRIDGE_FRAMES_LOST, mapping.received.frames_lost)
                self._set_each(mapping, CounterType.BRIDGE_CHUNKS_UNUSED, mapping.received.chunks_unused)

    def _set_all(self, mapping: MappingStats, stats: object, kinds: dict[CounterType, str]) -> None:
        for kind, field in kinds.items():
            self._set(mapping, kind, getattr(stats, field))

    def _set_each(self, mapping: MappingStats, kind: CounterType, numbers: dict[str, int]) -> None:
        for reason, number in numbers.items():
            self._set(mapping, kind, number, reason)

    def _set(self, mapping: MappingStats, kind: CounterType, value: int, reason: str = "") -> None:
        source, dest = mapping.source_stream_id, mapping.dest_stream_id
        key = (kind, source, dest, reason)
        if key not in self._cells:
            label = f"bridge {self._instance_id}: {source} to {dest} {kind.label}{reason and f' ({reason})'}"
            name = reason.encode("ascii")
            self._cells[key] = self._counters.create(
                kind, label, key=_KEY.pack(source, dest, len(name)) + name
            )
        self._cells[key].set(value)


class MappingReading(msgspec.Struct, kw_only=True):
    """What the counters of one mapping say, on one side of it."""

    source_stream_id: int
    dest_stream_id: int
    side: str
    """``send`` or ``receive``."""
    frames: int = 0
    chunks: int = 0
    nbytes: int = 0
    in_flight: int = 0
    bytes_in_flight: int = 0
    assembly_ns: int = 0
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    """Frames that were not sent or given up, by reason."""
    unused: dict[str, int] = msgspec.field(default_factory=dict)
    """Chunks that no frame was made of, by reason."""


def read_bridges(aeron_dir: str | os.PathLike[str] | None = None) -> list[MappingReading]:
    """What the bridges of a host have done, one reading for each mapping and side.

    Args:
        aeron_dir: The media driver's directory.

    Raises:
        NoMediaDriverError: The directory holds no media driver's files.
    """
    found: dict[tuple[int, int, str], MappingReading] = {}
    kinds = {kind.type_id: kind for kind in CounterType if kind.name.startswith("BRIDGE_")}
    for counter in read_counters(aeron_dir):
        kind = kinds.get(counter.type_id)
        if kind is None:
            continue
        source, dest, length = _KEY.unpack_from(counter.key)
        reason = counter.key[_KEY.size : _KEY.size + length].decode("ascii", "replace")
        side = "send" if kind in _SENT or kind is CounterType.BRIDGE_FRAMES_UNSENT else "receive"
        reading = found.setdefault(
            (source, dest, side), MappingReading(source_stream_id=source, dest_stream_id=dest, side=side)
        )
        if reason:
            where = reading.unused if kind is CounterType.BRIDGE_CHUNKS_UNUSED else reading.lost
            where[reason] = counter.value
        else:
            setattr(reading, (_SENT | _RECEIVED)[kind], counter.value)
    return [found[key] for key in sorted(found)]

"""What bridges count, in counters that every process of the host can read."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.runtime.counters import CounterType
from tensor_pool.transport.counters import read_counters

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from tensor_pool.bridging.mapping import ResolvedMapping
    from tensor_pool.bridging.service import MappingStats
    from tensor_pool.runtime import Counter, CounterFactory
    from tensor_pool.transport.counters import CounterReading

__all__ = ["BridgeCounters", "MappingReading", "StandstillCounters", "read_bridges"]

_PERIOD_NS: Final = 500_000_000
_KEY: Final = struct.Struct("<IIHBB")
"""Source, destination, place among the mappings, and lengths of what follows: bridge and reason."""

_SENT: Final = {
    CounterType.BRIDGE_FRAMES_SENT: "frames",
    CounterType.BRIDGE_CHUNKS_SENT: "chunks",
    CounterType.BRIDGE_BYTES_SENT: "nbytes",
    CounterType.BRIDGE_FRAMES_THINNED: "thinned",
}
_RECEIVED: Final = {
    CounterType.BRIDGE_FRAMES: "frames",
    CounterType.BRIDGE_CHUNKS: "chunks",
    CounterType.BRIDGE_BYTES: "nbytes",
    CounterType.BRIDGE_ASSEMBLIES: "in_flight",
    CounterType.BRIDGE_ASSEMBLY_BYTES: "bytes_in_flight",
    CounterType.BRIDGE_ASSEMBLY_NS: "assembly_ns",
}

_LABEL_BYTES: Final = 380
_SAYS: Final = " error: "
"""What stands between the ids and the text in the label of an error."""
_CLIENT_HEARTBEAT: Final = 11
"""The media driver's counter of each client: its key is the client's id, its value milliseconds of 1970."""
_SILENCE_S: Final = 3.0
"""Clients show life twice a second; the media driver drops them only after ten seconds."""


class _Place(NamedTuple):
    """A mapping in a bridge, on one side of it."""

    place: int
    source_stream_id: int
    dest_stream_id: int
    side: str

    def key(self, instance_id: str, reason: str) -> bytes:
        names = instance_id.encode("ascii"), reason.encode("ascii")
        numbers = self.source_stream_id, self.dest_stream_id, self.place
        return _KEY.pack(*numbers, *map(len, names)) + b"".join(names)

    def label(self, instance_id: str) -> str:
        return f"bridge {instance_id}: {self.source_stream_id} to {self.dest_stream_id}"


class _Errors:
    """Why mappings carry nothing, each in the label of a counter that exists for so long."""

    def __init__(self, instance_id: str, counters: CounterFactory) -> None:
        self._instance_id = instance_id
        self._counters = counters
        self._told: dict[_Place, tuple[str, Counter]] = {}

    def tell(self, mapping: _Place, text: str | None) -> None:
        """What is wrong with a mapping now; None for nothing."""
        label = ""
        if text:
            said = f"{mapping.label(self._instance_id)}{_SAYS}{' '.join(text.split())}"
            label = said.encode()[:_LABEL_BYTES].decode(errors="ignore")
        before = self._told.get(mapping)
        if (before[0] if before is not None else "") == label:
            return
        if before is not None:
            before[1].close()
            del self._told[mapping]
        if label:
            cell = self._counters.create(
                CounterType.BRIDGE_ERROR, label, key=mapping.key(self._instance_id, mapping.side)
            )
            cell.set(1)
            self._told[mapping] = label, cell

    def forget(self, place: int) -> None:
        for mapping in [mapping for mapping in self._told if mapping.place == place]:
            self._told.pop(mapping)[1].close()

    def close(self) -> None:
        for _, cell in self._told.values():
            cell.close()
        self._told.clear()


class StandstillCounters(Closing):
    """Tells every process of the host why a bridge carries nothing at all, while it can't be built.

    Args:
        instance_id: What the bridge is called.
        counters: Where counters come from.
        routes: Its mappings.
    """

    def __init__(self, instance_id: str, counters: CounterFactory, routes: Sequence[ResolvedMapping]) -> None:
        self._errors = _Errors(instance_id, counters)
        sides = [(route, "send") for route in routes if route.sends]
        sides += [(route, "receive") for route in routes if route.receives]
        self._places = [
            _Place(place, route.source_stream_id, route.dest_stream_id, side)
            for place, (route, side) in enumerate(sides)
        ]

    def tell(self, text: str) -> None:
        """Says why, for all mappings.

        Raises:
            NoMediaDriverError: The media driver died or does not answer.
        """
        for place in self._places:
            self._errors.tell(place, text)

    def close(self) -> None:
        """Says nothing more. May be called again."""
        self._errors.close()


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
        self._cells: dict[tuple[int, CounterType, str], Counter] = {}
        self._errors = _Errors(instance_id, counters)
        self._dests: dict[int, int] = {}
        """The destination of each mapping, by its place."""

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
        self._errors.close()

    def update(self) -> None:
        """Writes all numbers, and when they were true: rates need that, as they are written now and then."""
        found, counted_ns = self._stats(), self._now_ns()
        for place, mapping in enumerate(found):
            if self._dests.setdefault(place, mapping.dest_stream_id) != mapping.dest_stream_id:
                self._forget(place)  # what it wrote says another destination
                self._dests[place] = mapping.dest_stream_id
            if mapping.sent is not None:
                self._set_all(place, mapping, mapping.sent, _SENT)
                self._set_each(place, mapping, CounterType.BRIDGE_FRAMES_UNSENT, mapping.sent.dropped)
            if mapping.received is not None:
                received = mapping.received
                self._set_all(place, mapping, received, _RECEIVED)
                self._set_each(place, mapping, CounterType.BRIDGE_FRAMES_LOST, received.frames_lost)
                self._set_each(place, mapping, CounterType.BRIDGE_CHUNKS_UNUSED, received.chunks_unused)
            where = self._place(place, mapping)
            self._set(place, mapping, CounterType.BRIDGE_COUNTED_NS, counted_ns, where.side)
            self._errors.tell(where, mapping.error)

    def _set_all(
        self, place: int, mapping: MappingStats, stats: object, kinds: dict[CounterType, str]
    ) -> None:
        for kind, field in kinds.items():
            self._set(place, mapping, kind, getattr(stats, field))

    def _set_each(
        self, place: int, mapping: MappingStats, kind: CounterType, numbers: dict[str, int]
    ) -> None:
        for reason, number in numbers.items():
            self._set(place, mapping, kind, number, reason)

    def _set(
        self, place: int, mapping: MappingStats, kind: CounterType, value: int, reason: str = ""
    ) -> None:
        key = (place, kind, reason)
        if key not in self._cells:
            where = self._place(place, mapping)
            label = f"{where.label(self._instance_id)} {kind.label}{reason and f' ({reason})'}"
            self._cells[key] = self._counters.create(kind, label, key=where.key(self._instance_id, reason))
        self._cells[key].set(value)

    @staticmethod
    def _place(place: int, mapping: MappingStats) -> _Place:
        side = "receive" if mapping.sent is None else "send"
        return _Place(place, mapping.source_stream_id, mapping.dest_stream_id, side)

    def _forget(self, place: int) -> None:
        self._errors.forget(place)
        for key in [key for key in self._cells if key[0] == place]:
            self._cells.pop(key).close()


class MappingReading(msgspec.Struct, kw_only=True):
    """What the counters of one mapping say, on one side of it."""

    instance_id: str
    """The bridge."""
    key: tuple[int, int]
    """Which mapping of which process it is."""
    source_stream_id: int
    dest_stream_id: int
    side: str
    """``send`` or ``receive``."""
    frames: int = 0
    chunks: int = 0
    nbytes: int = 0
    thinned: int = 0
    in_flight: int = 0
    bytes_in_flight: int = 0
    assembly_ns: int = 0
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    """Frames that were not sent or given up, by reason."""
    unused: dict[str, int] = msgspec.field(default_factory=dict)
    """Chunks that no frame was made of, by reason."""
    counted_ns: int = 0
    """When all this was true, by the monotonic clock; 0 while the bridge stands still."""
    error: str = ""
    """Why it carries nothing; empty where nothing is wrong."""
    is_alive: bool = True
    """Whether the process of the bridge shows life; counters of a dead one linger for a while."""


def read_bridges(aeron_dir: str | os.PathLike[str] | None = None) -> list[MappingReading]:
    """What the bridges of a host have done, one reading for each mapping and side.

    Args:
        aeron_dir: The media driver's directory.

    Raises:
        NoMediaDriverError: The directory holds no media driver's files.
    """
    found: dict[tuple[int, int], MappingReading] = {}
    kinds = {kind.type_id: kind for kind in CounterType if kind.name.startswith("BRIDGE_")}
    counters = read_counters(aeron_dir)
    alive = _living(counters)
    for counter in counters:
        kind = kinds.get(counter.type_id)
        if kind is None:
            continue
        source, dest, place, of_name, of_reason = _KEY.unpack_from(counter.key)
        names = counter.key[_KEY.size : _KEY.size + of_name + of_reason].decode("ascii", "replace")
        key, reason = (counter.owner_id, place), names[of_name:]
        if key not in found:
            found[key] = MappingReading(
                instance_id=names[:of_name],
                key=key,
                source_stream_id=source,
                dest_stream_id=dest,
                side=_side(kind, reason),
                is_alive=counter.owner_id in alive,
            )
        if kind is CounterType.BRIDGE_ERROR:
            found[key].error = counter.label.partition(_SAYS)[2]
        elif kind is CounterType.BRIDGE_COUNTED_NS:
            found[key].counted_ns = counter.value
        elif reason:
            by_reason = found[key].unused if kind is CounterType.BRIDGE_CHUNKS_UNUSED else found[key].lost
            by_reason[reason] = counter.value
        else:
            setattr(found[key], (_SENT | _RECEIVED)[kind], counter.value)
    return sorted(
        found.values(), key=lambda each: (each.source_stream_id, each.dest_stream_id, each.side, each.key)
    )


def _side(kind: CounterType, reason: str) -> str:
    if kind in {CounterType.BRIDGE_ERROR, CounterType.BRIDGE_COUNTED_NS}:
        return reason
    return "send" if kind in _SENT or kind is CounterType.BRIDGE_FRAMES_UNSENT else "receive"


def _living(counters: Sequence[CounterReading]) -> set[int]:
    """The ids of clients that have shown life a short while ago."""
    since_ms = (time.time() - _SILENCE_S) * 1000
    beats = (counter for counter in counters if counter.type_id == _CLIENT_HEARTBEAT)
    return {int.from_bytes(beat.key[:8], "little") for beat in beats if beat.value >= since_ms}

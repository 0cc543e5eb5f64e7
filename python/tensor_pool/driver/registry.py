"""The streams that a driver knows: their names, ids, geometry and current epochs. No files, no messages."""

from __future__ import annotations

import bisect
import collections
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.driver.state import RememberedStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool import _native
    from tensor_pool.driver.config import DriverSection, IdRange, StreamProfile
    from tensor_pool.pool.sizing import Geometry

__all__ = ["Epoch", "Stream", "StreamRegistry", "TensorShape", "Wish", "next_epoch"]

_NO_DIMS: Final = (0,) * 8
_MAX_WISHES: Final = 16
"""Descriptions that wait at one stream; the oldest gives way."""


def next_epoch(previous: int, realtime_ns: int) -> int:
    """The epoch after `previous`: grows by itself, and over restarts with the clock (decision D6).

    Example:
        >>> next_epoch(5, 1_000_000), next_epoch(5_000, 1_000_000)
        (1000, 5001)
    """
    return max(previous + 1, realtime_ns // 1_000)


class TensorShape(msgspec.Struct, frozen=True):
    """What a producer said about its frames, for those who list streams."""

    dtype: Dtype = Dtype.UNKNOWN
    major_order: MajorOrder = MajorOrder.UNKNOWN
    ndims: int = 0
    dims: tuple[int, ...] = _NO_DIMS


class Wish(msgspec.Struct, frozen=True):
    """A geometry that a client asked for before its attach, and until when it holds."""

    geometry: Geometry
    shape: TensorShape
    until_ns: int


class Epoch(msgspec.Struct, frozen=True):
    """The files of a stream between two remappings."""

    number: int
    address: _native.RingAddress
    geometry: Geometry
    is_allocated: bool
    """Whether a producer was to write it; a sparse one was only made to be announced (decision D7)."""
    hugepages: bool = False

    @property
    def allocated_bytes(self) -> int:
        """The memory that it takes."""
        return self.geometry.region_bytes if self.is_allocated else 0


def _few_reports() -> collections.deque[tuple[int, int]]:
    # Over several of them it matters little that each is heard some hundredths of a second late.
    return collections.deque(maxlen=5)


class Stream(msgspec.Struct, kw_only=True):
    """One stream."""

    stream_id: int
    name: str
    profile: StreamProfile
    is_static: bool = False
    epoch: Epoch | None = None
    geometry: Geometry | None = None
    """What its last producer asked for."""
    shape: TensorShape = TensorShape()
    wishes: dict[int, Wish] = msgspec.field(default_factory=dict)
    touched_ns: int = 0
    """When somebody last asked for it or left it."""
    activity_ns: int | None = None
    """When its activity time stamp was last raised here."""
    current_seq: int | None = None
    rate_milli_hz: int | None = None
    report_ns: int = 0
    """When its producer last reported `current_seq`."""
    reports: collections.deque[tuple[int, int]] = msgspec.field(default_factory=_few_reports)
    """Its last reports: sequence number and time."""

    @property
    def is_provisioned(self) -> bool:
        """Whether it exists for those who don't want to create it."""
        return self.is_static or self.epoch is not None

    def wish(self, client_id: int, wish: Wish) -> None:
        """Keeps what a client asks for until its attach."""
        self.wishes.pop(client_id, None)
        self.wishes[client_id] = wish
        while len(self.wishes) > _MAX_WISHES:
            del self.wishes[next(iter(self.wishes))]

    def geometry_for(self, client_id: int, now_ns: int) -> Geometry:
        """What an attach of this client gets: its wish, what there was before, or the profile."""
        wish = self.wishes.get(client_id)
        if wish is not None and wish.until_ns >= now_ns:
            return wish.geometry
        return self.geometry or self.profile.geometry

    def settle(self, client_id: int, geometry: Geometry) -> None:
        """Notes what a producer got; its wish has been granted."""
        wish = self.wishes.pop(client_id, None)
        self.geometry = geometry
        if wish is not None:
            self.shape = wish.shape

    def begin_epoch(self, epoch: Epoch | None) -> None:
        """Another epoch, or none: its frames are counted anew, and none was reported yet."""
        self.epoch = epoch
        self.current_seq = self.rate_milli_hz = None
        self.reports.clear()

    def report(self, seq: int, now_ns: int) -> None:
        """Notes how far its producer says it is, and how fast that went."""
        if self.current_seq is not None and seq < self.current_seq:
            self.reports.clear()
        self.reports.append((seq, now_ns))
        first_seq, first_ns = self.reports[0]
        if now_ns > first_ns:
            self.rate_milli_hz = min((seq - first_seq) * 1_000_000_000_000 // (now_ns - first_ns), 2**32 - 2)
        self.current_seq = seq
        self.report_ns = now_ns


class StreamRegistry:
    """All streams by id and by name.

    Args:
        section: Ranges, profiles and static streams.

    Example:
        >>> from tensor_pool.driver.config import DriverSection
        >>> registry = StreamRegistry(DriverSection())
        >>> registry.reserve("camera-1", now_ns=0).stream_id, registry.reserve("camera-2", now_ns=0).stream_id
        (20000, 20001)
        >>> registry.by_name("camera-1").stream_id
        20000
    """

    def __init__(self, section: DriverSection) -> None:
        self._section = section
        self._streams: dict[int, Stream] = {}
        self._ids: list[int] = []  # sorted, for pages
        self._names: dict[str, int] = {}
        self._unclaimed: dict[int, Stream] = {}
        self._remembered: dict[int, RememberedStream] = {}
        self._given_out = 0  # where to look for the next free id
        self.highest_epoch = 0
        """The highest epoch that was ever used here; never goes back, also over restarts."""
        self.changes = 0
        """Raised whenever something changed that must be remembered over a restart."""
        for static in section.streams:
            profile = section.profile_of(static)
            self.claim(self.add(static.id, name=static.name, profile=profile, is_static=True))

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        """The streams in the order of their ids; a copy, so that some may be removed."""
        return iter([self._streams[stream_id] for stream_id in self._ids])

    def get(self, stream_id: int) -> Stream | None:
        """A stream by id."""
        return self._streams.get(stream_id)

    def by_name(self, name: str) -> Stream | None:
        """A stream by name."""
        stream_id = self._names.get(name)
        return None if stream_id is None else self._streams[stream_id]

    def page(self, offset: int, count: int) -> list[Stream]:
        """Streams in the order of their ids."""
        return [self._streams[stream_id] for stream_id in self._ids[offset : offset + count]]

    def is_creatable(self, stream_id: int) -> bool:
        """Whether a client may create this id by naming it (decision D1)."""
        return any(stream_id in ids for ids in self.creatable_ranges)

    @property
    def creatable_ranges(self) -> list[IdRange]:
        """The ranges of `is_creatable`."""
        return self._section.parsed_creatable_ranges

    def add(
        self,
        stream_id: int,
        *,
        name: str = "",
        profile: StreamProfile | None = None,
        is_static: bool = False,
        now_ns: int = 0,
    ) -> Stream:
        """Enters a stream that is not there yet."""
        assert stream_id not in self._streams
        stream = Stream(
            stream_id=stream_id,
            name=name,
            profile=self._section.default_profile if profile is None else profile,
            is_static=is_static,
            touched_ns=now_ns,
        )
        self._streams[stream_id] = self._unclaimed[stream_id] = stream
        bisect.insort(self._ids, stream_id)
        if name:
            self._names[name] = stream_id
        self._changed(stream)
        return stream

    def rename(self, stream: Stream, name: str) -> None:
        """Gives a stream without a name one."""
        assert not stream.name
        assert name not in self._names
        stream.name = name
        self._names[name] = stream.stream_id
        self._changed(stream)

    def remove(self, stream: Stream) -> None:
        """Forgets a stream; its id and name may be given out again."""
        del self._streams[stream.stream_id]
        self._unclaimed.pop(stream.stream_id, None)
        del self._ids[bisect.bisect_left(self._ids, stream.stream_id)]
        if stream.name:
            del self._names[stream.name]
        self._remembered.pop(stream.stream_id, None)
        self.changes += 1

    def claim(self, stream: Stream) -> None:
        """Notes that a stream is more than a name that somebody asked for: it keeps its id from now on."""
        if self._unclaimed.pop(stream.stream_id, None) is not None:
            self._changed(stream)

    def is_claimed(self, stream: Stream) -> bool:
        """Whether anybody ever attached to it, or it is static."""
        return stream.stream_id not in self._unclaimed

    def _changed(self, stream: Stream) -> None:
        self.changes += 1
        if stream.name and not stream.is_static:
            self._remembered[stream.stream_id] = RememberedStream(
                stream.stream_id, stream.name, self.is_claimed(stream)
            )

    @property
    def remembered(self) -> tuple[RememberedStream, ...]:
        """What is kept of all streams over a restart; each was put down when it changed."""
        return tuple(self._remembered.values())

    @property
    def unclaimed(self) -> list[Stream]:
        """The streams that somebody asked for and nobody ever attached to; a copy."""
        return list(self._unclaimed.values())

    @property
    def unclaimed_count(self) -> int:
        """How many those are."""
        return len(self._unclaimed)

    def reserve(self, name: str, *, now_ns: int) -> Stream | None:
        """Enters a stream under the next free id of the range; None when the range is used up."""
        stream_id = self._free_id()
        return None if stream_id is None else self.add(stream_id, name=name, now_ns=now_ns)

    def take_epoch(self, realtime_ns: int) -> int:
        """An epoch above every one that any stream ever had, so that forgotten streams need no memory."""
        self.highest_epoch = next_epoch(self.highest_epoch, realtime_ns)
        self.changes += 1
        return self.highest_epoch

    def forgettable(self, now_ns: int, unused_ns: int) -> Stream | None:
        """The stream without files that nobody has asked for the longest, to make room for another."""
        idle = [
            stream
            for stream in self._streams.values()
            if not stream.is_static and stream.epoch is None and now_ns - stream.touched_ns >= unused_ns
        ]
        return min(idle, key=lambda stream: stream.touched_ns, default=None)

    def _free_id(self) -> int | None:
        ids = self._section.ranges.get("stream_id_range")
        if ids is None:
            return None
        # Ids that were just given up wait until the range has been gone through: late messages name them.
        for step in range(len(ids)):
            candidate = ids.first + (self._given_out + step) % len(ids)
            if candidate not in self._streams:
                self._given_out = candidate - ids.first + 1
                return candidate
        return None

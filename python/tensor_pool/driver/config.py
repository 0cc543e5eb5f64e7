"""The section `driver`: what the SHM driver serves, allows and keeps."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tensor_pool.channels import parse_size
from tensor_pool.config.kinds import ALLOWED, CHECK, IS_SIZE, Milliseconds, StreamId, doc
from tensor_pool.config.sections import Section
from tensor_pool.errors import ChannelError, ConfigError
from tensor_pool.pool.sizing import MAX_POOLS, MAX_SLOTS, Geometry, choose_geometry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensor_pool.config import StreamsSection

__all__ = ["DriverSection", "HelloAuthority", "IdRange", "StaticStream", "StreamProfile"]

HelloAuthority = Literal["producer", "driver", "supervisor"]
"""Who answers a ConsumerHello: exactly one of them (decision D14)."""

_MAX_ID: Final = 2**31 - 1


class IdRange(NamedTuple):
    """Stream ids from the first to the last, both included.

    Example:
        >>> ids = IdRange.parse("20000-20009")
        >>> len(ids), 20009 in ids, 20010 in ids, str(ids)
        (10, True, False, '20000-20009')
    """

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> IdRange:
        """Reads ``FIRST-LAST``, or a single id.

        Raises:
            ValueError: Not that, upside down, or outside of 1 to 2147483647.
        """
        found = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", text)
        if found is None:
            raise ValueError(f"{text!r} is not FIRST-LAST")
        first = int(found[1])
        last = int(found[2] or first)
        if not 1 <= first <= last <= _MAX_ID:
            raise ValueError(f"{text} does not go from a smaller to a larger id within 1 to {_MAX_ID}")
        return cls(first, last)

    def overlaps(self, other: IdRange) -> bool:
        """Whether any id is in both."""
        return self.first <= other.last and other.first <= self.last

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.first <= value <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def _check_range(text: str) -> None:
    IdRange.parse(text)


def _check_optional_range(text: str) -> None:
    if text:
        IdRange.parse(text)


RangeText = Annotated[
    str, Meta(extra={CHECK: _check_range, ALLOWED: "ids as FIRST-LAST, for instance 20000-29999"})
]
OptionalRangeText = Annotated[
    str, Meta(extra={CHECK: _check_optional_range, ALLOWED: "ids as FIRST-LAST, or empty for none"})
]
ByteLimit = Annotated[int, Meta(ge=0, le=1 << 60, extra={IS_SIZE: True})]
SlotCount = Annotated[int, Meta(ge=0, le=MAX_SLOTS)]
StreamName = Annotated[
    str,
    Meta(
        pattern=r"\A[!-~]([ -~]{0,254}[!-~])?\Z",
        extra={ALLOWED: "1 to 256 printable ASCII characters, no space at either end"},
    ),
]
"""What a stream is called; travels in messages of schema 906."""

_SIZES: Final = "slot sizes such as 64k or 1048576: 64 times a power of two"


class StreamProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The geometry that a stream gets when its producer says nothing about it.

    Example:
        >>> StreamProfile(nslots=16, pools=("64k", "1m")).geometry
        Geometry(nslots=16, strides=(65536, 1048576))
    """

    nslots: SlotCount = 0
    """Slots, a power of two; 0: as many as fit into 256 MiB, from 8 to 1024."""
    pools: Annotated[tuple[int | str, ...], Meta(min_length=1, max_length=MAX_POOLS)] = ("1m",)
    """Slot sizes of the pools."""
    hugepages: bool = False
    """Whether the regions must lie on huge pages."""

    def __post_init__(self) -> None:
        _ = self.geometry  # raises what is wrong with the numbers

    @property
    def geometry(self) -> Geometry:
        """The numbers, checked."""
        try:
            strides = [parse_size(size) if isinstance(size, str) else size for size in self.pools]
        except ChannelError as e:
            raise ConfigError(e.message, hint=_SIZES) from None
        return choose_geometry(pools=strides, nslots=self.nslots or None)


class StaticStream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream that exists from the start."""

    id: StreamId
    name: Annotated[str, Meta(pattern=r"\A([!-~]([ -~]{0,254}[!-~])?)?\Z")] = ""
    """As `StreamName`, or empty for none."""
    profile: str = ""
    """A name of `driver.profiles`; empty: the default profile."""


def _check_ranges(ranges: tuple[str, ...]) -> None:
    for text in ranges:
        IdRange.parse(text)


class DriverSection(Section, frozen=True):
    """The SHM driver: which streams it serves, how long leases last, what it allows and what it cleans up."""

    section_name: ClassVar[str] = "driver"

    instance_id: Annotated[
        str,
        Meta(
            pattern=r"\A([A-Za-z0-9_][A-Za-z0-9._-]{0,31})?\Z",
            extra={ALLOWED: "up to 32 letters, digits, _, - and ., not starting with - or ."},
        ),
        doc("Tells drivers of one namespace apart: files lie in NAMESPACE-INSTANCE. Empty for the only one."),
    ] = ""
    keepalive_interval_ms: Annotated[
        Milliseconds, doc("How often clients are to say that they live; the driver tells them in its status.")
    ] = 1_000
    expiry_grace_intervals: Annotated[
        int, Meta(ge=1, le=1_000), doc("Keepalives that may be missing in a row before a lease expires.")
    ] = 3
    announce_interval_ms: Annotated[
        Milliseconds, doc("How often each stream is announced and its activity time stamp raised.")
    ] = 1_000
    announce_clock_domain: Annotated[
        Literal["monotonic", "realtime_synced"],
        doc(
            "Clock of the time stamps in announces. 'realtime_synced' is for clocks that PTP or NTP keeps "
            "together, and needs `clock_error_budget_ms`."
        ),
    ] = "monotonic"
    clock_error_budget_ms: Annotated[
        float,
        Meta(ge=0, le=10_000),
        doc("How far the synchronised clocks may be apart; required with 'realtime_synced', 0 otherwise."),
    ] = 0.0
    stream_id_range: Annotated[OptionalRangeText, doc("Ids given out to named streams and on demand.")] = (
        "20000-29999"
    )
    creatable_ranges: Annotated[
        tuple[str, ...],
        Meta(
            max_length=64,
            extra={CHECK: _check_ranges, ALLOWED: "a list, each ids as FIRST-LAST, for instance 10000-10999"},
        ),
        doc("Ids that a client may create by naming them; others are refused unless they exist."),
    ] = ("10000-10999", "20000-29999", "50000-59999")
    descriptor_stream_id_range: Annotated[
        OptionalRangeText, doc("Aeron stream ids for descriptors to one consumer; empty: nobody gets one.")
    ] = "31000-31999"
    control_stream_id_range: Annotated[
        OptionalRangeText,
        doc("Aeron stream ids for control messages to one consumer; empty: nobody gets one."),
    ] = "32000-32999"
    hello_authority: Annotated[
        HelloAuthority, doc("Who answers a consumer's hello; everybody else stays silent.")
    ] = "producer"
    default_nslots: Annotated[
        SlotCount,
        doc(
            "Slots of a stream whose producer doesn't say; a power of two. 0: as many as fit into 256 MiB, "
            "from 8 to 1024."
        ),
    ] = 0
    default_pools: Annotated[
        tuple[int | str, ...],
        Meta(min_length=1, max_length=MAX_POOLS, extra={ALLOWED: f"a list of {_SIZES}"}),
        doc("Slot sizes of a stream whose producer doesn't say how large its frames are."),
    ] = ("1m",)
    hugepages: Annotated[
        Literal["optional", "required"],
        doc("'required' refuses every stream unless `shm.shm_base_dir` lies on huge pages (hugetlbfs)."),
    ] = "optional"
    profiles: Annotated[
        dict[str, StreamProfile],
        Meta(
            max_length=256,
            extra={
                ALLOWED: "tables [driver.profiles.NAME] with nslots (a power of two), pools (slot sizes) and "
                "hugepages (true or false)"
            },
        ),
        doc("Geometries by name, for `driver.streams`."),
    ] = {}  # noqa: RUF012 - msgspec copies it
    streams: Annotated[
        tuple[StaticStream, ...],
        Meta(
            max_length=10_000,
            extra={ALLOWED: "tables [[driver.streams]] with id, and maybe name and profile"},
        ),
        doc("Streams that exist from the start, whether or not anybody attaches."),
    ] = ()
    group: Annotated[
        str,
        Meta(
            pattern=r"\A([A-Za-z0-9_][A-Za-z0-9._-]{0,63})?\Z",
            extra={ALLOWED: "a group's name or number, or empty"},
        ),
        doc(
            "Group that may open the regions, with `shm.permissions` 'group'. Empty: the driver's own group."
        ),
    ] = ""
    recreate_on_start: Annotated[
        bool, doc("Whether the files that an earlier driver left are removed at the start, fresh or not.")
    ] = False
    cleanup_on_exit: Annotated[
        bool, doc("Whether the driver's regions are removed when it ends; names and epochs are remembered.")
    ] = True
    epoch_keep_count: Annotated[
        int, Meta(ge=1, le=1_000), doc("Epochs of a stream that are kept, the current one included.")
    ] = 1
    epoch_min_age_ms: Annotated[
        Milliseconds, doc("How long an epoch that has ended is kept at least, for a look at its last frames.")
    ] = 10_000
    idle_stream_timeout_ms: Annotated[
        Milliseconds,
        doc("How long a stream made on demand is announced without any lease; its name keeps its id."),
    ] = 60_000
    shutdown_token: Annotated[
        str,
        Meta(max_length=256, pattern=r"\A[ -~]*\Z", extra={ALLOWED: "up to 256 ASCII characters, or empty"}),
        doc(
            "Who knows it may end the driver and revoke leases by message. Empty: no shutdown by message, "
            "and anybody may revoke."
        ),
    ] = ""
    shutdown_drain_ms: Annotated[
        Milliseconds, doc("How long a driver that was asked to end goes on serving those who are attached.")
    ] = 1_000
    max_leases: Annotated[int, Meta(ge=1, le=1_000_000), doc("Leases at one time.")] = 10_000
    max_leases_per_stream: Annotated[
        int, Meta(ge=1, le=1_000_000), doc("Leases of one stream at one time.")
    ] = 1_000
    max_streams: Annotated[
        int, Meta(ge=1, le=1_000_000), doc("Streams that the driver knows at one time.")
    ] = 10_000
    max_total_bytes: Annotated[
        ByteLimit, doc("Memory that all streams together may take; 0: what the file system has.")
    ] = 0
    max_stream_bytes: Annotated[
        ByteLimit, doc("Memory that one epoch of a stream may take; 0: no limit.")
    ] = 0
    max_attaches_per_second: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        doc(
            "Attach requests that are looked at; what comes faster is refused. Clients that rarely ask have "
            "a tenth more for themselves, so that one that runs away keeps nobody out."
        ),
    ] = 1_000
    max_new_streams_per_second: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        doc("Names and ids that are asked for for the first time; what comes faster is refused."),
    ] = 1_000
    max_unclaimed_streams: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        doc(
            "Names and ids at one time that were asked for and that nobody ever attached to. Those that "
            "nobody asks for again are forgotten after a minute."
        ),
    ] = 5_000

    def __post_init__(self) -> None:
        _ = self.default_profile
        self._check_consumer_ranges()
        self._check_streams()
        if self.announce_clock_domain == "realtime_synced" and not self.clock_error_budget_ms:
            # An undisciplined clock must not stamp announces [WIRE-10.1.1-14, WIRE-10.1.1-15].
            raise ConfigError(
                "announce_clock_domain 'realtime_synced' without clock_error_budget_ms",
                hint="say how far the synchronised clocks may be apart, or use 'monotonic'",
            )

    @property
    def default_profile(self) -> StreamProfile:
        """The geometry of streams that nobody described."""
        return StreamProfile(self.default_nslots, self.default_pools, self.hugepages == "required")

    def profile_of(self, stream: StaticStream) -> StreamProfile:
        """The profile of a static stream."""
        return self.profiles[stream.profile] if stream.profile else self.default_profile

    @property
    def lease_ns(self) -> int:
        """How long a lease lasts after a keepalive."""
        return self.keepalive_interval_ms * self.expiry_grace_intervals * 1_000_000

    @property
    def ranges(self) -> Mapping[str, IdRange]:
        """The ranges of single keys that are not empty, by key."""
        names = ("stream_id_range", "descriptor_stream_id_range", "control_stream_id_range")
        return {name: IdRange.parse(text) for name in names if (text := getattr(self, name))}

    @property
    def parsed_creatable_ranges(self) -> list[IdRange]:
        """The ranges in which clients may create ids by naming them."""
        return [IdRange.parse(text) for text in self.creatable_ranges]

    def check_beside(self, streams: StreamsSection) -> None:
        """Compares with the ids of the pool's own messages (decision D1).

        Raises:
            ConfigError: A range for single consumers contains one of them.
        """
        for name in ("descriptor_stream_id_range", "control_stream_id_range"):
            ids = self.ranges.get(name)
            for key in streams.__struct_fields__:
                if ids is not None and key.endswith("_stream_id") and getattr(streams, key) in ids:
                    raise ConfigError(
                        f"driver.{name} {ids} contains {getattr(streams, key)}, streams.{key}",
                        hint="choose a range that no other stream uses",
                    )

    def _check_consumer_ranges(self) -> None:
        ranges = self.ranges
        for (name, ids), (other_name, other) in itertools.combinations(ranges.items(), 2):
            if ids.overlaps(other):
                raise ConfigError(f"{name} {ids} and {other_name} {other} overlap", hint="use ranges apart")
        for name in ("descriptor_stream_id_range", "control_stream_id_range"):
            own = ranges.get(name)
            for text in self.creatable_ranges:
                if own is not None and own.overlaps(IdRange.parse(text)):
                    raise ConfigError(
                        f"{name} {own} and creatable_ranges {text} overlap", hint="use ranges apart"
                    )

    def _check_streams(self) -> None:
        ids: set[int] = set()
        names: set[str] = set()
        for stream in self.streams:
            if stream.profile and stream.profile not in self.profiles:
                raise ConfigError(
                    f"stream {stream.id} has the profile {stream.profile!r}, which is not defined",
                    hint=f"write [driver.profiles.{stream.profile}]",
                )
            if stream.id in ids or (stream.name and stream.name in names):
                raise ConfigError(
                    f"stream {stream.id} {stream.name} stands twice in streams", hint="remove one"
                )
            for name in ("descriptor_stream_id_range", "control_stream_id_range"):
                own = self.ranges.get(name)
                if own is not None and stream.id in own:
                    raise ConfigError(
                        f"{name} {own} contains the stream {stream.id}", hint="use ranges apart"
                    )
            ids.add(stream.id)
            names.add(stream.name)

"""The section `bridge`: which streams go to or come from other hosts, over which channels, in which form."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from msgspec import Meta

from tensor_pool.bridging import config_rules
from tensor_pool.bridging.chunk_sizes import (
    DEFAULT_MTU,
    MOST_CHUNKS,
    MOST_PAYLOAD_BYTES,
    Dialect,
    SliceSizes,
    slice_sizes,
)
from tensor_pool.bridging.mapping import (
    BridgeChannel,
    BridgeMapping,
    BridgeRole,
    ChannelStream,
    OptionalAeronStreamId,
    ResolvedMapping,
)
from tensor_pool.channels import Channel
from tensor_pool.config.kinds import ALLOWED, CHECK, IS_SIZE, Milliseconds, StreamId, doc
from tensor_pool.config.sections import Section
from tensor_pool.driver.config import DriverSection, IdRange
from tensor_pool.errors import ChannelError, ConfigError

if TYPE_CHECKING:
    from tensor_pool.config import Config, StreamsSection

__all__ = ["BridgeMapping", "BridgeSection", "OnConflict", "ResolvedMapping", "WireStreamId", "check_bridge"]

WireStreamId = Literal["source", "dest"]
"""Which id chunks and forwarded messages carry (decision R1)."""
OnConflict = Literal["fail", "move"]
"""What a receiver does whose destination has a producer already [BRG-4-5]."""

_LOG: Final = logging.getLogger(__name__)
_REQUIRED: Final = ("instance_id", "payload_channel", "control_channel", "mappings")
_MAX_MAPPINGS: Final = 1_000


def _parse_range(value: str | tuple[int, int]) -> IdRange | None:
    if not value:
        return None
    return IdRange.parse(value if isinstance(value, str) else f"{value[0]}-{value[1]}")


def _check_range(value: str | tuple[int, int]) -> None:
    _parse_range(value)


ByteCount = Annotated[int, Meta(ge=0, le=2**32 - 1, extra={IS_SIZE: True})]


class BridgeSection(Section, frozen=True):
    """The bridge: whole frames between hosts over Aeron UDP. Nothing is bridged without mappings.

    Both ends of a mapping must agree on channels, stream ids, `dialect` and `wire_stream_id`.
    """

    section_name: ClassVar[str] = "bridge"

    instance_id: Annotated[
        str,
        Meta(
            pattern=r"\A([A-Za-z0-9_][A-Za-z0-9._-]{0,31})?\Z",
            extra={ALLOWED: "up to 32 letters, digits, _, - and ., not starting with - or ."},
        ),
        doc("Names the bridge in logs and status. A bridge needs one."),
    ] = ""
    role: Annotated[
        BridgeRole,
        doc("Which ends of its mappings this process has; each mapping may say otherwise."),
    ] = "both"
    payload_channel: Annotated[
        BridgeChannel, doc("Channel of the chunks that frames travel in. A bridge needs one.")
    ] = ""
    payload_stream_id: Annotated[StreamId, doc("Stream id of the chunks.")] = 3000
    control_channel: Annotated[
        BridgeChannel,
        doc("Channel of forwarded pool announces, and of QoS and progress. A bridge needs one."),
    ] = ""
    control_stream_id: Annotated[StreamId, doc("Stream id of forwarded announces, QoS and progress.")] = 3001
    metadata_channel: Annotated[
        BridgeChannel, doc("Channel of forwarded metadata. Empty: metadata stays at home.")
    ] = ""
    metadata_stream_id: Annotated[StreamId, doc("Stream id of forwarded metadata.")] = 3002
    source_metadata_stream_id: Annotated[
        OptionalAeronStreamId,
        doc("Aeron stream id of the metadata that is forwarded; 0: `streams.metadata_stream_id`."),
    ] = 0
    mtu_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=65_504,
            multiple_of=32,
            extra={IS_SIZE: True, ALLOWED: "a size up to 65504, a multiple of 32, or 0"},
        ),
        doc(f"MTU that chunks are cut for; 0: the channel's own `mtu`, or Aeron's default of {DEFAULT_MTU}."),
    ] = 0
    chunk_bytes: Annotated[
        ByteCount, doc("Payload bytes of a chunk, at most the MTU less 128; 0: just that.")
    ] = 0
    max_chunk_bytes: Annotated[
        int,
        Meta(ge=1, le=MOST_CHUNKS, extra={IS_SIZE: True}),
        doc("Payload bytes of a chunk that are never exceeded, neither sent nor accepted."),
    ] = MOST_CHUNKS
    max_payload_bytes: Annotated[
        ByteCount,
        doc(f"Payload bytes of a frame; larger are dropped. 0: what {MOST_CHUNKS} chunks carry, up to 1g."),
    ] = 0
    dest_stream_id_range: Annotated[
        str | tuple[int, int],
        Meta(extra={CHECK: _check_range, ALLOWED: "ids as FIRST-LAST or [FIRST, LAST], or empty for none"}),
        doc("Ids for destinations whose mapping names none, in their order; 50000-59999 suits."),
    ] = ""
    on_conflict: Annotated[
        OnConflict,
        doc(
            "What a receiver does when its destination has a producer already: 'fail', or 'move' to an id of "
            "`dest_stream_id_range` when it is not given back within a lease and a second."
        ),
    ] = "fail"
    wire_stream_id: Annotated[
        WireStreamId,
        doc("Which id chunks and forwarded messages carry; 'dest' is for peers that send the destination's."),
    ] = "source"
    dialect: Annotated[
        Dialect,
        doc("Form of the chunks that are sent; 'newer' has room for a trace id. Both forms are accepted."),
    ] = "ours"
    checksums: Annotated[
        bool, doc("Whether chunks carry a CRC32C of their payload; needs the dialect 'newer'.")
    ] = False
    forward_metadata: Annotated[
        bool | Literal["auto"],
        Meta(extra={ALLOWED: "true, false or auto"}),
        doc("Whether names and metadata go along; 'auto' means yes where there is a `metadata_channel`."),
    ] = "auto"
    forward_qos: Annotated[
        bool,
        doc(
            "Whether QoS reports go along, also those of `streams.qos_stream_id`; mappings then need control "
            "stream ids."
        ),
    ] = False
    forward_progress: Annotated[
        bool,
        doc("Whether progress of slow frames goes along; each mapping then needs its control stream ids."),
    ] = False
    assembly_timeout_ms: Annotated[
        Milliseconds, doc("How long a receiver waits for the missing chunks of a frame before it drops it.")
    ] = 250
    max_inflight_frames: Annotated[
        int, Meta(ge=1, le=65_536), doc("Frames of one mapping that a receiver assembles at one time.")
    ] = 16
    max_inflight_bytes: Annotated[
        int,
        Meta(ge=1, le=1 << 40, extra={IS_SIZE: True}),
        doc(
            "Payload bytes of the frames of one mapping that a receiver assembles at one time. A frame that "
            "is larger by itself costs all others."
        ),
    ] = 256 << 20
    max_ring_bytes: Annotated[
        int,
        Meta(ge=0, le=1 << 50, extra={IS_SIZE: True}),
        doc(
            "What the ring of a destination without `profile` may take: where the source has a larger one, "
            "it gets fewer slots. 0: whatever the source has."
        ),
    ] = 1 << 30
    mappings: Annotated[
        tuple[BridgeMapping, ...],
        Meta(
            max_length=_MAX_MAPPINGS,
            extra={
                ALLOWED: "tables [[bridge.mappings]] with source_stream_id, and maybe dest_stream_id, "
                "profile, metadata_stream_id, source_control_stream_id, dest_control_stream_id, role, name, "
                "payload_channel, control_channel, metadata_channel, max_rate_hz and max_bytes_per_s"
            },
        ),
        doc(
            "The streams that are bridged. Channels and role of a mapping come before those of the bridge; "
            "both directions over unicast need that."
        ),
    ] = ()

    def __post_init__(self) -> None:
        if self.is_configured:
            self.check_complete()
            config_rules.check_options(self)
            config_rules.check_mappings(self)

    @property
    def is_configured(self) -> bool:
        """Whether anything differs from the defaults; a configuration without a bridge is fine.

        Example:
            >>> BridgeSection().is_configured
            False
        """
        defaults = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        return any(getattr(self, name) != default for name, default in defaults)

    @property
    def dest_ids(self) -> IdRange | None:
        """`dest_stream_id_range`, if there is one."""
        return _parse_range(self.dest_stream_id_range)

    @property
    def assembly_timeout_ns(self) -> int:
        """The same in nanoseconds."""
        return self.assembly_timeout_ms * 1_000_000

    @property
    def resolved_mappings(self) -> tuple[ResolvedMapping, ...]:
        """All mappings with the bridge's own values where they have none."""
        return tuple(self.resolved(mapping) for mapping in self.mappings)

    def mtu_of(self, channel: str) -> int:
        """The MTU that chunks on a channel are cut for [BRG-10-8].

        Raises:
            ConfigError: `mtu_bytes` is larger than the channel's own.

        Example:
            >>> BridgeSection().mtu_of("aeron:udp?endpoint=127.0.0.1:4000|mtu=8k")
            8192
        """
        of_channel = Channel.parse(channel).mtu_bytes
        if self.mtu_bytes and of_channel and self.mtu_bytes > of_channel:
            raise ConfigError(
                f"mtu_bytes {self.mtu_bytes} is larger than the {of_channel} of {channel}",
                hint="leave mtu_bytes at 0, or make it as small",
            )
        return self.mtu_bytes or of_channel or DEFAULT_MTU

    def slice_bytes(self, mapping: BridgeMapping) -> SliceSizes:
        """Payload bytes of chunk 0 and of each later chunk (decision R2).

        A receiver takes chunks of up to the second of them.

        Raises:
            ConfigError: The MTU is too small.

        Example:
            >>> camera = BridgeMapping(10_000, 50_000, payload_channel="aeron:udp?endpoint=10.0.0.2:4000")
            >>> BridgeSection().slice_bytes(camera)
            SliceSizes(first=1063, later=1280)
        """
        return slice_sizes(
            self.mtu_of(mapping.payload_channel or self.payload_channel),
            chunk_bytes=self.chunk_bytes,
            max_chunk_bytes=self.max_chunk_bytes,
            dialect=self.dialect,
        )

    def max_payload(self, mapping: BridgeMapping) -> int:
        """The largest payload of a frame, as configured or as the chunks allow (decision R3).

        Raises:
            ConfigError: More is configured than the chunks can carry.
        """
        slices = self.slice_bytes(mapping)
        if self.max_payload_bytes > slices.most_payload_bytes:
            raise ConfigError(
                f"max_payload_bytes {self.max_payload_bytes} is more than {slices.most_payload_bytes}, the "
                f"most that {MOST_CHUNKS} chunks of {slices.later} bytes carry within 1 GiB",
                hint="lower it, leave it at 0, or use a larger MTU (mtu=8k in the channel)",
            )
        return self.max_payload_bytes or slices.most_payload_bytes

    def resolved(self, mapping: BridgeMapping) -> ResolvedMapping:
        """A mapping with the bridge's own values where it has none.

        Channels name their MTU, so that a publication takes exactly the chunks that were cut for it.

        Raises:
            ConfigError: MTU, chunks and payload don't go together.
        """
        metadata_channel = mapping.metadata_channel or self.metadata_channel
        forwards_metadata = bool(metadata_channel) and self.forward_metadata is not False
        of_dest = self.wire_stream_id == "dest"
        return ResolvedMapping(
            mapping=mapping,
            role=mapping.role or self.role,
            dest_stream_id=mapping.dest_stream_id,
            wire_stream_id=mapping.dest_stream_id if of_dest else mapping.source_stream_id,
            payload=self._stream(mapping.payload_channel or self.payload_channel, self.payload_stream_id),
            control=self._stream(mapping.control_channel or self.control_channel, self.control_stream_id),
            metadata=self._stream(metadata_channel, self.metadata_stream_id) if forwards_metadata else None,
            forwards_qos=self.forward_qos,
            forwards_progress=self.forward_progress,
            mtu_bytes=self.mtu_of(mapping.payload_channel or self.payload_channel),
            slices=self.slice_bytes(mapping),
            max_payload_bytes=self.max_payload(mapping),
        )

    def source_metadata_id(self, streams: StreamsSection) -> int:
        """The Aeron stream id of the metadata that the sender forwards."""
        return self.source_metadata_stream_id or streams.metadata_stream_id

    def check_complete(self) -> None:
        """Looks for the keys that a bridge can't be without.

        Raises:
            ConfigError: One is missing.
        """
        missing = [name for name in _REQUIRED if not getattr(self, name)]
        if missing:
            keys = ", ".join(f"bridge.{name}" for name in missing)
            raise ConfigError(
                f"{keys} {'is' if len(missing) == 1 else 'are'} required",
                hint="a bridge needs a name, a payload and a control channel, and [[bridge.mappings]]",
            )

    def _stream(self, channel: str, stream_id: int) -> ChannelStream:
        mtu = {"mtu": str(self.mtu_bytes or DEFAULT_MTU)}
        try:
            return ChannelStream(str(Channel.parse(channel).with_defaults(mtu)), stream_id)
        except ChannelError as e:  # an MTU that Aeron refuses, from a section that no file was read for
            raise ConfigError(e.message, hint=e.hint) from None


def check_bridge(config: Config) -> None:
    """Compares the section with the others, for whoever is about to start the bridge; logs what was decided.

    The section `driver` speaks for this host only, so its ranges bind only destinations that are here.

    Raises:
        ConfigError: There is no bridge, or it collides with the streams and ranges of this host.
    """
    section = config[BridgeSection]
    section.check_complete()
    config_rules.check_beside_streams(section, config.streams)
    config_rules.check_beside_driver(section, config[DriverSection])
    _log_decisions(section)


def _log_decisions(section: BridgeSection) -> None:
    mappings = section.resolved_mappings
    silent = [str(mapping) for mapping in mappings if not mapping.forwards_metadata]
    if silent and section.forward_metadata == "auto":
        _LOG.warning(
            "no metadata goes along with %s: there is no metadata_channel (forward_metadata = false says so)",
            ", ".join(silent),
        )
    if not section.max_payload_bytes:
        for slices in dict.fromkeys(mapping.slices for mapping in mappings):
            if slices.most_payload_bytes < MOST_PAYLOAD_BYTES:
                _LOG.info(
                    "frames of more than %d bytes can't be sent: %d chunks carry no more, of %d bytes each",
                    slices.most_payload_bytes,
                    MOST_CHUNKS,
                    slices.later,
                )

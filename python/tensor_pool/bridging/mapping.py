"""One mapping of the bridge: as it is configured, and with everything filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tensor_pool.channels import Channel, for_publication
from tensor_pool.config.kinds import ALLOWED, CHECK
from tensor_pool.errors import ChannelError

if TYPE_CHECKING:
    from tensor_pool.bridging.chunk_sizes import SliceSizes

__all__ = [
    "BridgeChannel",
    "BridgeMapping",
    "BridgeRole",
    "ChannelStream",
    "OptionalAeronStreamId",
    "OptionalStreamId",
    "ResolvedMapping",
    "check_bridge_channel",
]

BridgeRole = Literal["sender", "receiver", "both"]
"""Which ends of a mapping this process has."""

LAST_STREAM_ID: Final = 2**32 - 2
"""Ids of pool streams are u32, and the last value of that is the null value."""


def check_bridge_channel(text: str) -> None:
    """Refuses what is not a UDP channel; empty is fine.

    Raises:
        ChannelError: Not a channel, or one that stays on this host [BRG-3-1].
    """
    if text and Channel.parse(for_publication(text)).media != "udp":
        raise ChannelError(
            f"{text} stays on this host, a bridge leads to others", hint="aeron:udp?endpoint=HOST:PORT"
        )


BridgeChannel = Annotated[
    str,
    Meta(
        extra={
            CHECK: check_bridge_channel,
            ALLOWED: "a UDP channel such as aeron:udp?endpoint=HOST:PORT, or empty",
        }
    ),
]
OptionalAeronStreamId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""An Aeron stream id, or 0 for none."""
OptionalStreamId = Annotated[int, Meta(ge=0, le=LAST_STREAM_ID)]
"""The id of a pool stream, or 0 for none."""


class BridgeMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stream that the bridge carries from its source host to its destination host.

    Example:
        >>> str(BridgeMapping(10_000, 50_000)), str(BridgeMapping(10_000))
        ('10000->50000', '10000->any')
    """

    source_stream_id: Annotated[int, Meta(ge=1, le=LAST_STREAM_ID)]
    """The stream that the sender reads."""
    dest_stream_id: OptionalStreamId = 0
    """The stream that the receiver writes; 0: one of `bridge.dest_stream_id_range`, and where there is none,
    the one that the destination's driver knows by `name`."""
    profile: str = ""
    """Geometry of the destination, a name of `driver.profiles`; empty: as the source has it."""
    metadata_stream_id: OptionalStreamId = 0
    """Stream id in forwarded metadata; 0: that of the destination."""
    source_control_stream_id: OptionalAeronStreamId = 0
    """Aeron stream on the source host from which progress and QoS are forwarded; 0: none."""
    dest_control_stream_id: OptionalAeronStreamId = 0
    """Aeron stream on the destination host to which they go; 0: none."""
    role: Literal["", "sender", "receiver", "both"] = ""
    """Which ends are here; empty: `bridge.role`."""
    name: Annotated[str, Meta(max_length=255, pattern=r"\A([!-~]([ -~]*[!-~])?)?\Z")] = ""
    """What the destination stream is called; empty: nothing."""
    payload_channel: str = ""
    """Channel of the chunks; empty: `bridge.payload_channel`."""
    control_channel: str = ""
    """Channel of control messages; empty: `bridge.control_channel`."""
    metadata_channel: str = ""
    """Channel of metadata; empty: `bridge.metadata_channel`."""
    max_rate_hz: Annotated[float, Meta(ge=0, le=1e9)] = 0
    """Frames a second that are sent at most; 0: all."""
    max_bytes_per_s: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    """Payload bytes a second that are sent at most; 0: all."""

    def __str__(self) -> str:
        return f"{self.source_stream_id}->{self.dest_stream_id or 'any'}"


class ChannelStream(NamedTuple):
    """An Aeron stream: where it runs, and its number there.

    Example:
        >>> one = ChannelStream("aeron:udp?endpoint=239.0.0.1:4000|mtu=8k", 3000)
        >>> one.place == ChannelStream("aeron:udp?endpoint=239.0.0.1:4000", 3000).place
        True
    """

    channel: str
    stream_id: int

    @property
    def place(self) -> tuple[str, str, str, str, int]:
        """Equal for two that meet on the network, however their other parameters differ."""
        channel = Channel.parse(self.channel)
        endpoint, control, tags = (channel.params.get(name, "") for name in ("endpoint", "control", "tags"))
        return channel.media, endpoint, control, tags, self.stream_id


class ResolvedMapping(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping with the bridge's own values where it has none.

    Made by `BridgeSection.resolved`.
    """

    mapping: BridgeMapping
    """As it was configured."""
    role: BridgeRole
    dest_stream_id: int
    """0 as long as none of the range was taken, see `with_destination`."""
    wire_stream_id: int
    """The id in chunks and forwarded messages (decision R1); stays when the destination moves."""
    payload: ChannelStream
    control: ChannelStream
    metadata: ChannelStream | None
    """None: metadata is not forwarded."""
    forwards_qos: bool
    forwards_progress: bool
    mtu_bytes: int
    slices: SliceSizes
    max_payload_bytes: int

    @property
    def source_stream_id(self) -> int:
        """The stream that the sender reads."""
        return self.mapping.source_stream_id

    @property
    def metadata_stream_id(self) -> int:
        """The stream id in republished metadata [BRG-7.1-5]."""
        return self.mapping.metadata_stream_id or self.dest_stream_id

    @property
    def sends(self) -> bool:
        """Whether this process reads the source."""
        return self.role != "receiver"

    @property
    def receives(self) -> bool:
        """Whether this process writes the destination."""
        return self.role != "sender"

    @property
    def forwards_metadata(self) -> bool:
        """Whether metadata goes along."""
        return self.metadata is not None

    def with_destination(self, stream_id: int) -> ResolvedMapping:
        """The same with a destination from the range; what is on the wire stays as it was."""
        return msgspec.structs.replace(self, dest_stream_id=stream_id)

    def __str__(self) -> str:
        return str(self.mapping)

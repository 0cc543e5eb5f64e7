"""The section `discovery`: where to ask what streams there are, and who answers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from tensor_pool.channels import Channel, Endpoint
from tensor_pool.config.kinds import ALLOWED, CHECK, Milliseconds, StreamId, doc
from tensor_pool.config.sections import Section
from tensor_pool.discovery.access import AccessRule  # noqa: TC001 - the type of a key
from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from tensor_pool.config import Config

__all__ = [
    "DEFAULT_MAX_RESULTS",
    "REQUEST_STREAM_ID",
    "DiscoverySection",
    "DriverSource",
    "Provider",
    "registry_endpoint",
    "requests_endpoint",
]

REQUEST_STREAM_ID: Final = 7000
DEFAULT_MAX_RESULTS: Final = 1_000
FEED_STREAM_ID: Final = 7001
_REGISTRY_CHANNEL: Final = "aeron:ipc"


def _check_optional_channel(text: str) -> None:
    if text:
        Channel.parse(text)


OptionalChannel = Annotated[
    str, Meta(extra={CHECK: _check_optional_channel, ALLOWED: "an Aeron channel, or empty"})
]
OptionalId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


def _check_needed_channel(text: str, whose: str) -> None:
    if not text:
        raise ConfigError(f"{whose} has an empty channel", hint="an Aeron channel")
    Channel.parse(text)


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who can be asked: a driver's embedded provider or a registry."""

    channel: str
    """Channel of requests."""
    stream_id: StreamId = REQUEST_STREAM_ID
    """Stream id of requests."""

    def __post_init__(self) -> None:
        _check_needed_channel(self.channel, "a provider")


class DriverSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a registry hears announces: of one driver that it is told of, or of any that say who they are.

    Example:
        >>> DriverSource("aeron:udp?endpoint=127.0.0.1:40124").names_its_driver
        False
    """

    channel: str
    """Channel of pool announces."""
    stream_id: StreamId = FEED_STREAM_ID
    """Stream id of pool announces."""
    metadata_channel: str = ""
    """Channel of names and attributes; empty: that of the announces."""
    metadata_stream_id: OptionalId = 0
    """Stream id of names and attributes; 0: that of the announces."""
    instance_id: str = ""
    """The driver whose announces come here; empty: drivers say it themselves."""
    control_channel: str = ""
    """Where that driver is asked for leases."""
    control_stream_id: OptionalId = 0
    """Stream id of that."""
    host: str = ""
    """The host of that driver."""

    @property
    def names_its_driver(self) -> bool:
        """Whether the driver is known beforehand."""
        return bool(self.instance_id)

    def __post_init__(self) -> None:
        _check_needed_channel(self.channel, "a source")
        for channel in (self.metadata_channel, self.control_channel):
            _check_optional_channel(channel)
        if self.instance_id and not (self.control_channel and self.control_stream_id):
            raise ConfigError(
                f"discovery source {self.channel} names driver {self.instance_id!r} but not where to ask it",
                hint="control_channel and control_stream_id, or no instance_id",
            )


class DiscoverySection(Section, frozen=True):
    """Discovery: a driver answers queries about its own streams, a registry about those of many drivers.

    Answers are advice: only the driver that they name gives leases.
    """

    section_name: ClassVar[str] = "discovery"

    embedded: Annotated[bool, doc("Whether the SHM driver's process answers queries about its streams.")] = (
        True
    )
    channel: Annotated[
        OptionalChannel,
        doc("Channel of requests. Empty: the driver's control channel; for a registry aeron:ipc."),
    ] = ""
    stream_id: Annotated[
        OptionalId,
        doc(f"Stream id of requests. 0: the driver's control stream; for a registry {REQUEST_STREAM_ID}."),
    ] = 0
    host: Annotated[
        str,
        Meta(
            pattern=r"\A([!-~]{1,64})?\Z", extra={ALLOWED: "up to 64 printable ASCII characters, no spaces"}
        ),
        doc("What this host is called in answers that others get. Empty: its host name."),
    ] = ""
    client_id: Annotated[
        int,
        Meta(ge=0, le=2**32 - 1),
        doc("What clients call themselves when they ask; rules of access go by it. 0: they don't say."),
    ] = 0
    providers: Annotated[
        tuple[Provider, ...],
        Meta(max_length=64, extra={ALLOWED: "tables [[discovery.providers]] with channel and stream_id"}),
        doc("Whom clients ask besides their own host's driver: registries, say. All are asked at once."),
    ] = ()
    registries: Annotated[
        tuple[Provider, ...],
        Meta(max_length=64, extra={ALLOWED: "tables [[discovery.registries]] with channel and stream_id"}),
        doc(f"Where this host's driver tells of its streams; the stream id of a feed is {FEED_STREAM_ID}."),
    ] = ()
    sources: Annotated[
        tuple[DriverSource, ...],
        Meta(
            max_length=1_000,
            extra={
                ALLOWED: "tables [[discovery.sources]] with channel, and maybe stream_id, metadata_channel, "
                "metadata_stream_id, instance_id, control_channel, control_stream_id and host"
            },
        ),
        doc("Where a registry hears of streams."),
    ] = ()
    announce_period_ms: Annotated[
        Milliseconds, doc("How often drivers announce. What is not announced for three of these is gone.")
    ] = 1_000
    max_streams: Annotated[int, Meta(ge=1, le=1_000_000), doc("Streams that a provider knows at most.")] = (
        10_000
    )
    max_results: Annotated[
        int, Meta(ge=1, le=65_534), doc("Results of one answer; where more match, the answer is an error.")
    ] = DEFAULT_MAX_RESULTS
    access: Annotated[
        tuple[AccessRule, ...],
        Meta(
            max_length=1_000,
            extra={ALLOWED: "tables [[discovery.access]] with clients = [[FIRST, LAST]], names and tags"},
        ),
        doc("Who sees which streams. None: everybody sees all."),
    ] = ()
    denies: Annotated[
        bool, doc("Whether who may not see a stream gets an error, not NOT_FOUND as if there were none.")
    ] = False
    resolves_names: Annotated[
        bool,
        doc(
            "Whether answers also go to UDP endpoints with host names. Looking one up may stop the media "
            "driver for seconds, so only numeric addresses are answered by default."
        ),
    ] = False

    def __post_init__(self) -> None:
        heard = set()
        for source in self.sources:
            parsed = Channel.parse(source.channel)
            where = (
                parsed.media,
                parsed.params.get("endpoint"),
                parsed.params.get("control"),
                source.stream_id,
            )
            if where in heard:
                raise ConfigError(
                    f"discovery.sources has {source.channel} with stream {source.stream_id} twice",
                    hint="one table for each place; drivers that say who they are may share it",
                )
            heard.add(where)

    @property
    def expiry_ns(self) -> int:
        """How long an entry lives without an announce [DSC-6.2-2]."""
        return 3 * self.announce_period_ms * 1_000_000

    @property
    def host_name(self) -> str:
        """`host`, or the machine's name.

        Example:
            >>> DiscoverySection(host="lab-3").host_name
            'lab-3'
        """
        return self.host or socket.gethostname()


def requests_endpoint(config: Config) -> Endpoint:
    """Where this host's provider is asked: the driver's control stream unless configured otherwise.

    Example:
        >>> from tensor_pool.config import load_config
        >>> requests_endpoint(load_config(environ={}, search=False)).stream_id
        1000
    """
    section, streams = config[DiscoverySection], config.streams
    return Endpoint(
        section.channel or streams.control_channel, section.stream_id or streams.control_stream_id
    )


def registry_endpoint(section: DiscoverySection) -> Endpoint:
    """Where a registry of this configuration is asked (decision K4).

    Example:
        >>> registry_endpoint(DiscoverySection())
        Endpoint(channel='aeron:ipc', stream_id=7000)
    """
    return Endpoint(section.channel or _REGISTRY_CHANNEL, section.stream_id or REQUEST_STREAM_ID)

"""The section `control`: where commands and status travel, and who may command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tensor_pool.channels import Channel, Endpoint
from tensor_pool.config.kinds import ALLOWED, Milliseconds, doc
from tensor_pool.config.sections import Section
from tensor_pool.control.access import CommandRule, is_local
from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from tensor_pool.config import Config

__all__ = ["ControlLink", "ControlPlaces", "ControlSection"]


class ControlLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way between a host that commands and one whose services obey; both describe it alike but for `role`.

    Example:
        >>> here, there = "aeron:udp?endpoint=10.7.0.1:20301", "aeron:udp?endpoint=10.7.0.2:20300"
        >>> ControlLink("command", channel=there, status_channel=here).control.stream_id
        1400
    """

    role: Literal["serve", "command"]
    """``serve`` where the services are, ``command`` where commands are given."""
    channel: str
    """Channel of commands."""
    status_channel: str
    """Channel of what services tell."""
    stream_id: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1400
    """Stream id of commands."""
    status_stream_id: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1401
    """Stream id of what services tell."""

    def __post_init__(self) -> None:
        for channel in (self.channel, self.status_channel):
            Channel.parse(channel)

    @property
    def control(self) -> Endpoint:
        """Where commands go."""
        return Endpoint(self.channel, self.stream_id)

    @property
    def status(self) -> Endpoint:
        """Where services tell."""
        return Endpoint(self.status_channel, self.status_stream_id)


class ControlSection(Section, frozen=True):
    """Service control: commands to services such as the recorder, and what services tell of themselves."""

    section_name: ClassVar[str] = "control"

    enabled: Annotated[
        bool,
        doc("Whether the commands that serve (driver, bridge, record, replay, ...) can be commanded."),
    ] = True
    schema_id: Annotated[
        int,
        Meta(ge=1, le=65_535),
        doc("Schema id of events; change it where all others in a deployment use another."),
    ] = 905
    status_period_ms: Annotated[
        Milliseconds, doc("How often services tell again what they are, for those who came later.")
    ] = 1_000
    links: Annotated[
        tuple[ControlLink, ...],
        Meta(
            max_length=64,
            extra={
                ALLOWED: "tables [[control.links]] with role, channel, status_channel, and maybe stream_id "
                "and status_stream_id"
            },
        ),
        doc("Ways to and from other hosts: commands go both here and there."),
    ] = ()
    access: Annotated[
        tuple[CommandRule, ...],
        Meta(
            max_length=1_000,
            extra={ALLOWED: "tables [[control.access]] with sources and maybe services"},
        ),
        doc("Who may command which services. None: this host alone, over IPC and loopback."),
    ] = ()

    def require_enabled(self) -> None:
        """For those who are of no use when nobody can command them.

        Raises:
            ConfigError: Services are switched off.

        Example:
            >>> ControlSection(enabled=False).require_enabled()
            Traceback (most recent call last):
            tensor_pool.errors.ConfigError: control.enabled is false: nobody could command it
              try: control.enabled=true
        """
        if not self.enabled:
            raise ConfigError(
                "control.enabled is false: nobody could command it", hint="control.enabled=true"
            )


class ControlPlaces(NamedTuple):
    """Where a host's commands and status travel.

    Example:
        >>> from tensor_pool.config import load_config
        >>> ControlPlaces.of(load_config(environ={}, search=False)).heard_at
        [Endpoint(channel='aeron:ipc', stream_id=1400)]
    """

    heard_at: list[Endpoint]
    """Where services hear commands."""
    told_at: list[Endpoint]
    """Where services tell."""
    commanded_at: list[Endpoint]
    """Where commands are sent to."""
    followed_at: list[Endpoint]
    """Where status is heard."""

    @classmethod
    def of(cls, config: Config) -> ControlPlaces:
        """The streams of the host itself, and of the links to others.

        Raises:
            ConfigError: Commands and status would be one stream, or commands would be heard from other hosts
                and nobody there may command.
        """
        streams, section = config.streams, config[ControlSection]
        control = Endpoint(streams.service_control_channel, streams.service_control_stream_id)
        status = Endpoint(streams.service_status_channel, streams.service_status_stream_id)
        serving = [link for link in section.links if link.role == "serve"]
        commanding = [link for link in section.links if link.role == "command"]
        places = cls(
            heard_at=[control, *(link.control for link in serving)],
            told_at=[status, *(link.status for link in serving)],
            commanded_at=[control, *(link.control for link in commanding)],
            followed_at=[status, *(link.status for link in commanding)],
        )
        if {*places.heard_at, *places.commanded_at} & {*places.told_at, *places.followed_at}:
            raise ConfigError(
                "commands and status would travel on one stream, and each echo would be a command again",
                hint="streams.service_control_stream_id and service_status_stream_id must differ",
            )
        remote = [place.channel for place in places.heard_at if not is_local(place.channel)]
        if remote and not section.access:
            raise ConfigError(
                f"commands are heard on {remote[0]}, but nobody beyond this host may command",
                hint='a table [[control.access]] with sources = ["ipc", "10.7.0.0/24"], say',
            )
        return places

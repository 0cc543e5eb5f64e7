"""The sections that exist below the services: what they hold, their defaults, and their documentation.

A service adds its section beside its code, as a `Section` of its own, and names it in `registry.SECTIONS`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from tensor_pool.channels import (
    DEFAULT_TIMER_INTERVAL_MS,
    STANDARD,
    ChannelDefaults,
    check_timer_interval,
    parse_size,
)
from tensor_pool.config.kinds import (
    AbsolutePath,
    AeronDirectory,
    Channel,
    Milliseconds,
    Namespace,
    StreamId,
    TermLength,
    TimerInterval,
    doc,
)
from tensor_pool.runtime.idle import IdleName  # noqa: TC001 - msgspec reads annotations at run time
from tensor_pool.runtime.logs import LogFormat, LogLevel  # noqa: TC001 - msgspec reads annotations at run time

__all__ = [
    "AeronSection",
    "AgentsSection",
    "LogSection",
    "MediaDriverMode",
    "Section",
    "ShmSection",
    "StreamsSection",
]

MediaDriverMode = Literal["embedded", "spawned", "external"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parent of all sections.

    Each field has a default and is annotated with its kind (`kinds`) and its documentation (`kinds.doc`).
    Rules between fields go to ``__post_init__``, which raises `ConfigError` with what is wrong.

    Example:
        >>> class Camera(Section, frozen=True):
        ...     section_name = "camera"
        ...     exposure_ms: Annotated[Milliseconds, doc("How long the shutter is open.")] = 10
        >>> Camera().exposure_ms
        10
    """

    section_name: ClassVar[str]


class AeronSection(Section, frozen=True):
    """Aeron: which media driver to use, and how its buffers and time-outs are set."""

    section_name: ClassVar[str] = "aeron"

    dir: Annotated[
        AeronDirectory,
        doc(
            "Directory of the media driver. Empty: AERON_DIR, else /dev/shm/aeron-USER, as Aeron itself does."
        ),
    ] = ""
    media_driver: Annotated[
        MediaDriverMode,
        doc(
            "Who runs the media driver: 'external' uses the one that serves `dir`, 'spawned' starts one as a "
            "process of its own, 'embedded' starts one inside this process."
        ),
    ] = "external"
    driver_timeout_ms: Annotated[
        Milliseconds,
        doc(
            "How long a media driver may be silent before it counts as dead, and how long requests to it "
            "wait. Connecting waits 5 s for one that is about to start, whatever this says."
        ),
    ] = 10_000
    term_length: Annotated[
        TermLength,
        doc(
            "Length of a term buffer of every publication that does not set its own. A publication takes "
            "three of them; Aeron's own default of 64m would cost 192 MiB each."
        ),
    ] = parse_size(STANDARD.term_length)
    untethered_window_limit_timeout_ms: Annotated[
        Milliseconds,
        doc("How long a subscriber may hold a publication back before the others go on without it."),
    ] = STANDARD.window_limit_ms
    untethered_linger_timeout_ms: Annotated[
        Milliseconds, doc("How long a subscriber that was left behind keeps its image.")
    ] = STANDARD.linger_ms
    untethered_resting_timeout_ms: Annotated[
        Milliseconds, doc("How long a subscriber that was left behind waits before it joins again.")
    ] = STANDARD.resting_ms
    timer_interval_ms: Annotated[
        TimerInterval,
        doc(
            "How often a media driver that we start looks at its timers; it can't notice a time-out sooner, "
            "so it must be shorter than each untethered time-out. Aeron's default of 1 s would make them "
            "useless."
        ),
    ] = DEFAULT_TIMER_INTERVAL_MS

    @property
    def channel_defaults(self) -> ChannelDefaults:
        """What channels get that they don't say themselves."""
        return ChannelDefaults(
            term_length=str(self.term_length),
            window_limit_ms=self.untethered_window_limit_timeout_ms,
            linger_ms=self.untethered_linger_timeout_ms,
            resting_ms=self.untethered_resting_timeout_ms,
        )

    def __post_init__(self) -> None:
        names = [f"untethered_{name}_timeout_ms" for name in ("window_limit", "linger", "resting")]
        check_timer_interval(self.timer_interval_ms, {name: getattr(self, name) for name in names})


class StreamsSection(Section, frozen=True):
    """Aeron channels and stream ids of the pool's own messages; all processes of a pool must agree on them.

    Channels take their term length and untethered time-outs from the section `aeron` unless they set their
    own. One channel and id may serve several purposes, or all of them. The two of service control are checked
    and wait for their services.
    """

    section_name: ClassVar[str] = "streams"

    control_channel: Annotated[
        Channel, doc("Channel of the SHM driver's control messages: attach, detach, keepalive.")
    ] = "aeron:ipc"
    control_stream_id: Annotated[StreamId, doc("Stream id of the SHM driver's control messages.")] = 1000
    announce_channel: Annotated[Channel, doc("Channel on which pools are announced.")] = "aeron:ipc"
    announce_stream_id: Annotated[StreamId, doc("Stream id on which pools are announced.")] = 1001
    descriptor_channel: Annotated[Channel, doc("Channel of frame descriptors.")] = "aeron:ipc"
    descriptor_stream_id: Annotated[StreamId, doc("Stream id of frame descriptors.")] = 1100
    qos_channel: Annotated[Channel, doc("Channel of producers' and consumers' QoS reports.")] = "aeron:ipc"
    qos_stream_id: Annotated[StreamId, doc("Stream id of producers' and consumers' QoS reports.")] = 1200
    metadata_channel: Annotated[Channel, doc("Channel of data source metadata.")] = "aeron:ipc"
    metadata_stream_id: Annotated[StreamId, doc("Stream id of data source metadata.")] = 1300
    service_control_channel: Annotated[Channel, doc("Channel of commands to services.")] = "aeron:ipc"
    service_control_stream_id: Annotated[StreamId, doc("Stream id of commands to services.")] = 1400
    service_status_channel: Annotated[Channel, doc("Channel on which services echo and report.")] = (
        "aeron:ipc"
    )
    service_status_stream_id: Annotated[StreamId, doc("Stream id on which services echo and report.")] = 1401


class ShmSection(Section, frozen=True):
    """Where shared memory lies and who may open it."""

    section_name: ClassVar[str] = "shm"

    shm_base_dir: Annotated[
        AbsolutePath,
        doc("Directory below which regions are made, as tensorpool-USER/NAMESPACE/STREAM_ID/EPOCH."),
    ] = "/dev/shm"  # noqa: S108 - the tmpfs of shared memory, not a temporary file
    allowed_base_dirs: Annotated[
        tuple[AbsolutePath, ...],
        Meta(max_length=64),
        doc(
            "Directories below which announced regions are accepted. Empty: only `shm_base_dir`. "
            "Nothing switches the containment check off."
        ),
    ] = ()
    namespace: Annotated[
        Namespace, doc("Keeps deployments of one user apart; part of every region's path.")
    ] = "default"
    permissions: Annotated[
        Literal["private", "group"],
        doc(
            "Who may open the regions: 'private' makes files 0600 in directories 0700, 'group' makes files "
            "0660 in directories 2770, so that new files get the directory's group."
        ),
    ] = "private"

    @property
    def file_mode(self) -> int:
        """The mode of region files [WIRE-15.21a.6-1]."""
        return 0o600 if self.permissions == "private" else 0o660

    @property
    def directory_mode(self) -> int:
        """The mode of the directories that hold them [WIRE-15.21a.6-1]."""
        return 0o700 if self.permissions == "private" else 0o2770

    @property
    def base_dirs(self) -> tuple[str, ...]:
        """The directories below which regions are accepted."""
        return self.allowed_base_dirs or (self.shm_base_dir,)


class AgentsSection(Section, frozen=True):
    """How agents run: what they do without work, and what happens when they fail or don't end."""

    section_name: ClassVar[str] = "agents"

    idle: Annotated[
        IdleName,
        doc(
            "What an agent does when there is no work. 'doorbell' serves agents that have one and is "
            "'backoff' for the others; 'yield' and 'spin' take a whole core."
        ),
    ] = "doorbell"
    idle_max_pause_ms: Annotated[
        float,
        Meta(gt=0, le=100),
        doc("The longest pause of 'backoff', the pause of 'sleep', the time-out of 'doorbell'."),
    ] = 100.0
    error_limit: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        doc("Errors in a row after which an agent still goes on; 0 stops it at the first."),
    ] = 16
    close_timeout_ms: Annotated[
        Milliseconds, doc("How long closing an agent waits for its present work to end.")
    ] = 5_000
    overrun_ms: Annotated[
        Milliseconds, doc("A duty cycle that takes longer than this counts as an overrun.")
    ] = 100


class LogSection(Section, frozen=True):
    """What is logged and how it looks. Logs go to standard error."""

    section_name: ClassVar[str] = "log"

    level: Annotated[LogLevel, doc("What is worth a line.")] = "info"
    format: Annotated[LogFormat, doc("'auto' is text on a terminal and JSON lines otherwise.")] = "auto"

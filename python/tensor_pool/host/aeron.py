"""Aeron as configured: the one place where the section `aeron` becomes a media driver and clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensor_pool.host.client_name import client_name
from tensor_pool.transport import (
    AeronClient,
    EmbeddedMediaDriver,
    ExternalMediaDriver,
    MediaDriverOptions,
    SpawnedMediaDriver,
    default_aeron_dir,
)
from tensor_pool.transport.media import DEFAULT_OPTIONS

if TYPE_CHECKING:
    from tensor_pool.config import AeronSection
    from tensor_pool.transport import ChannelDefaults, MediaDriver

__all__ = ["aeron_dir", "channel_defaults", "connect", "media_driver_options", "open_media_driver"]

_IDLE_SLEEP_MS: Final = 30
"""The longest sleep of a client's own thread: how late it may hear the media driver after a rest."""


def aeron_dir(section: AeronSection) -> str:
    """The directory where the media driver and its clients meet.

    Example:
        >>> from tensor_pool.config import AeronSection
        >>> aeron_dir(AeronSection(dir="/dev/shm/lab"))
        '/dev/shm/lab'
    """
    return section.dir or default_aeron_dir()


def channel_defaults(section: AeronSection) -> ChannelDefaults:
    """What channels get that they don't say themselves."""
    return section.channel_defaults


def media_driver_options(section: AeronSection, **changes: Any) -> MediaDriverOptions:
    """How a media driver of ours runs; `changes` are fields of `MediaDriverOptions`.

    Whatever the section allows makes a media driver; only `changes` can contradict it.

    Raises:
        ConfigError: `changes` contradict each other or the section.
    """
    configured: dict[str, Any] = {
        "timer_interval_ms": section.timer_interval_ms,
        # Nobody chose the default, so it gives way: a driver that sleeps longer than its timer is late.
        "idle_max_sleep_ms": min(DEFAULT_OPTIONS.idle_max_sleep_ms, section.timer_interval_ms),
        "untethered_window_limit_ms": section.untethered_window_limit_timeout_ms,
        "untethered_linger_ms": section.untethered_linger_timeout_ms,
        "untethered_resting_ms": section.untethered_resting_timeout_ms,
        "term_bytes": section.term_length,
        "ipc_term_bytes": section.term_length,
    }
    return MediaDriverOptions(**(configured | changes))


def open_media_driver(section: AeronSection) -> MediaDriver:
    """The media driver that the section asks for: started here, started beside us, or found.

    Raises:
        TransportError: It can't be started there.
        NoMediaDriverError: It is somebody else's, and nobody runs one there.
    """
    directory = aeron_dir(section)
    if section.media_driver == "external":
        return ExternalMediaDriver(directory)
    start = EmbeddedMediaDriver if section.media_driver == "embedded" else SpawnedMediaDriver
    return start(directory, media_driver_options(section))


def connect(section: AeronSection, *, name: str | None = None) -> AeronClient:
    """A client of the section's media driver; what Aeron's tools show of it has the process id too.

    Raises:
        NoMediaDriverError: Nobody runs one there.
    """
    return AeronClient.connect(
        aeron_dir(section),
        name=client_name(name) if name is None or isinstance(name, str) else name,
        driver_timeout_ms=section.driver_timeout_ms,
        idle_sleep_ms=_IDLE_SLEEP_MS,
        channel_defaults=channel_defaults(section),
    )

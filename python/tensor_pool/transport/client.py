"""The connection of a process to a media driver."""

from __future__ import annotations

import os
from typing import Final, NamedTuple, Self

from tensor_pool import _native
from tensor_pool.channels import (
    STANDARD,
    Channel,
    ChannelDefaults,
    check_stream_id,
    for_publication,
    for_subscription,
)
from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError
from tensor_pool.transport.aeron_dir import check_aeron_dir
from tensor_pool.transport.backpressure import DROP, BackPressurePolicy
from tensor_pool.transport.endpoints import AeronPublication, AeronSubscription
from tensor_pool.transport.media import resolve_aeron_dir

__all__ = ["AeronClient", "ConductorError"]

_NS_PER_MS: Final = 1_000_000
_MAX_TIMEOUT_MS: Final = 1_000_000_000
_MAX_MESSAGE_BYTES: Final = 16 << 20
"""Aeron's own limit, whatever the term length."""
_MAX_UNFINISHED_BYTES: Final = 64 << 20
"""What half-received messages of all publications of one subscription may take."""


def _nanoseconds(milliseconds: float, name: str) -> int:
    if not 0 <= milliseconds <= _MAX_TIMEOUT_MS:
        raise ConfigError(f"{name}={milliseconds}", hint=f"milliseconds from 0 to {_MAX_TIMEOUT_MS:,}")
    return round(milliseconds * _NS_PER_MS)


class ConductorError(NamedTuple):
    """Something that the client's own thread ran into."""

    code: int
    message: str


class AeronClient(Closing):
    """A client of a media driver. It owns one thread, which costs next to nothing while nothing changes.

    Use `connect`. Everything made through it is closed with it. It may be shared by threads, and closed by
    any.

    Example:
        >>> from tensor_pool.transport import EmbeddedMediaDriver
        >>> with EmbeddedMediaDriver.temporary() as driver, AeronClient.connect(driver.aeron_dir) as client:
        ...     client.aeron_dir == driver.aeron_dir
        True
    """

    def __init__(
        self,
        native: _native.AeronClient,
        *,
        request_timeout_ms: float,
        channel_defaults: ChannelDefaults = STANDARD,
    ) -> None:
        self._native = native
        self._channel_defaults = channel_defaults
        self._request_timeout_ns = _nanoseconds(request_timeout_ms, "request_timeout_ms")

    @classmethod
    def connect(
        cls,
        aeron_dir: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        connect_timeout_ms: float = 5_000,
        driver_timeout_ms: float = 10_000,
        keepalive_interval_ms: float = 500,
        idle_sleep_ms: float = 16,
        channel_defaults: ChannelDefaults = STANDARD,
    ) -> Self:
        """Connects to the media driver of a directory.

        Args:
            aeron_dir: The media driver's directory; `default_aeron_dir()` when not given.
            name: Shown beside the client's id by Aeron's tools; at most 100 bytes.
            connect_timeout_ms: Wait this long for a media driver that is about to start.
            driver_timeout_ms: A media driver that shows no life for this long is dead. Requests wait as long.
            keepalive_interval_ms: How often the client shows life and looks for the driver's.
            idle_sleep_ms: The longest sleep of the client's thread between two looks at its work.
            channel_defaults: What channels get that they don't say themselves.

        Raises:
            ConfigError: A time is negative or absurd, or the directory can't be a media driver's.
            NoMediaDriverError: There is none within `connect_timeout_ms`.
        """
        directory = resolve_aeron_dir(aeron_dir)
        check_aeron_dir(directory)
        if name is not None and not isinstance(name, str):
            raise ConfigError(f"name={name!r}", hint="a text that Aeron's tools show, such as 'camera'")
        native = _native.AeronClient(
            aeron_dir=directory,
            name=f"tensor-pool {os.getpid()}" if name is None else name,
            connect_timeout_ns=_nanoseconds(connect_timeout_ms, "connect_timeout_ms"),
            driver_timeout_ns=_nanoseconds(driver_timeout_ms, "driver_timeout_ms"),
            keepalive_interval_ns=_nanoseconds(keepalive_interval_ms, "keepalive_interval_ms"),
            idle_sleep_ns=_nanoseconds(idle_sleep_ms, "idle_sleep_ms"),
        )
        return cls(native, request_timeout_ms=driver_timeout_ms, channel_defaults=channel_defaults)

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return self._native.aeron_dir

    @property
    def client_id(self) -> int:
        """Unique among the clients of one media driver."""
        return self._native.client_id

    @property
    def closed(self) -> bool:
        """Whether it was closed, or lost its media driver."""
        return self._native.closed

    @property
    def native(self) -> _native.AeronClient:
        """For native code that works with Aeron without crossing into Python."""
        return self._native

    def add_publication(
        self, channel: str | Channel, stream_id: int, *, policy: BackPressurePolicy = DROP
    ) -> AeronPublication:
        """An exclusive publication; the channel gets what `channels.for_publication` adds.

        Raises:
            ChannelError: Aeron refuses the channel.
            NoMediaDriverError: The media driver died or does not answer.
        """
        text = for_publication(channel, self._channel_defaults)
        native = self._native.add_publication(text, check_stream_id(stream_id), self._request_timeout_ns)
        return AeronPublication(native, policy)

    def add_subscription(
        self, channel: str | Channel, stream_id: int, *, max_message_bytes: int = _MAX_MESSAGE_BYTES
    ) -> AeronSubscription:
        """A subscription; the channel gets what `channels.for_subscription` adds.

        Args:
            channel: Where to listen.
            stream_id: The Aeron stream.
            max_message_bytes: Longer messages are not put together, and counted as abandoned.

        Raises:
            ChannelError: Aeron refuses the channel.
            NoMediaDriverError: The media driver died or does not answer.
        """
        text = for_subscription(channel, self._channel_defaults)
        checked_id = check_stream_id(stream_id)
        native = self._native.add_subscription(
            text, checked_id, max_message_bytes, _MAX_UNFINISHED_BYTES, self._request_timeout_ns
        )
        return AeronSubscription(native, text, checked_id)

    def add_counter(self, type_id: int, label: str, key: bytes = b"") -> _native.AeronCounter:
        """A counter that every process of the host can read, with Aeron's own tools too.

        Args:
            type_id: What it counts.
            label: What people read; at most 380 bytes.
            key: Tells counters of one type apart; at most 112 bytes.

        Raises:
            TransportError: Label or key are too long.
            NoMediaDriverError: The media driver died or does not answer.
        """
        return self._native.add_counter(type_id, key, label, self._request_timeout_ns)

    def check(self) -> None:
        """Does nothing while the client is good.

        Raises:
            NoMediaDriverError: The media driver died.
            TransportError: The client gave up for another reason, such as being stopped for too long.
            ClosedError: It was closed.
        """
        self._native.check()

    def take_errors(self) -> list[ConductorError]:
        """What the client's thread ran into since the last call, the last 64 at most."""
        return [ConductorError(*error) for error in self._native.take_errors()]

    def close(self) -> None:
        """Closes it and everything made through it; may be called again."""
        self._native.close()

    def __repr__(self) -> str:
        return f"<AeronClient {self.client_id} of {self.aeron_dir}{' closed' if self.closed else ''}>"

"""Connections of this process to pools, for tasks that come and go: workers of Spark serve many of them.

Attaching takes longer than reading a few frames, so connections and consumers stay until the process ends.
"""

from __future__ import annotations

import contextlib
import os
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tensor_pool.errors import ClosedError, ConfigError

if TYPE_CHECKING:
    from tensor_pool import _native
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.pool import Pool

__all__ = ["Connection", "LiveRing", "RingUri", "Window", "live_ring"]


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How to find a pool."""

    aeron_dir: str = ""
    config: str = ""
    settings: str = ""
    """Keys of the configuration with their values, as JSON."""

    def open(self, name: str) -> Pool:
        """Connects.

        Raises:
            ConfigError: The settings make no sense.
            NoDriverError: There is no driver.
        """
        try:
            settings = msgspec.json.decode(self.settings, type=dict[str, Any]) if self.settings else None
        except (msgspec.DecodeError, msgspec.ValidationError) as e:
            raise ConfigError(
                f"option settings={self.settings!r:.80}: {e}", hint='as JSON: {"client.wake_profile": "eco"}'
            ) from None
        from tensor_pool.host.connection import connect  # noqa: PLC0415 - planning needs none of it

        return connect(self.aeron_dir or None, config=self.config or None, settings=settings, name=name)


class RingUri(NamedTuple):
    """Which stream of which pool a reference means.

    Example:
        >>> uri = RingUri("lab/camera-1", Connection(aeron_dir="/dev/shm/aeron"))
        >>> str(uri)
        'tensorpool:lab%2Fcamera-1?aeron_dir=%2Fdev%2Fshm%2Faeron'
        >>> RingUri.parse(str(uri)) == uri
        True
    """

    stream: str
    connection: Connection

    def __str__(self) -> str:
        known = {key: value for key, value in msgspec.structs.asdict(self.connection).items() if value}
        return f"tensorpool:{urllib.parse.quote(self.stream, safe='')}?{urllib.parse.urlencode(known)}"

    @classmethod
    def parse(cls, uri: str) -> RingUri:
        """The same from text.

        Raises:
            ConfigError: It is no such URI.
        """
        parts = urllib.parse.urlsplit(uri)
        known = dict(urllib.parse.parse_qsl(parts.query))
        if parts.scheme != "tensorpool" or set(known) - set(Connection.__struct_fields__):
            raise ConfigError(f"{uri!r:.80} names no ring", hint="such references come from mode=live")
        return cls(urllib.parse.unquote(parts.path), Connection(**known))


class Window(NamedTuple):
    """What a ring holds at a moment."""

    epoch: int
    oldest: int
    """The number of the oldest frame."""
    end: int
    """The number after the newest one."""
    frame_bytes: int
    """How large frames can be."""


class LiveRing:
    """One stream, read by numbers of frames.

    Args:
        consumer: In use by nobody else.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.consumer: Final = consumer

    @property
    def window(self) -> Window | None:
        """What is there; None while the stream is not."""
        reader = self.consumer.session.reader
        if reader is None:
            return None
        try:
            oldest, newest = reader.oldest(), reader.newest()
            address = reader.address
        except ClosedError:
            return None
        end = 0 if newest is None else newest + 1
        return Window(address.epoch, end if oldest is None else oldest, end, max(p[1] for p in address.pools))

    def passed(self, seq: int) -> None:
        """Frames before this one are dealt with: if the epoch ends, they are not lost."""
        reader = self.consumer.session.reader
        if reader is not None:
            with contextlib.suppress(ClosedError):
                reader.seek(seq, seen=True)

    @property
    def ended_frames(self) -> int:
        """Frames that were there and not passed when their epoch ended, ever."""
        return self.consumer.stats.drops_by_reason.get("epoch_ended", 0)

    def read(self, epoch: int, seq: int) -> _native.Frame | None:
        """A frame, where it lies; None when it is not there any more."""
        reader = self.consumer.session.reader
        try:
            if reader is None or reader.address.epoch != epoch:
                return None
            return reader.read(seq)
        except ClosedError:
            return None

    def await_epoch(self, epoch: int, timeout_s: float) -> bool:
        """Waits until an epoch, or a later one, is mapped; whether it is that very one."""
        session = self.consumer.session
        with session.changed:
            session.changed.wait_for(lambda: self._epoch() >= epoch, timeout_s)
        return self._epoch() == epoch

    def _epoch(self) -> int:
        window = self.window
        return -1 if window is None else window.epoch


class _Connections:
    """The connections of one process; a forked child has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pools: dict[Connection, Pool] = {}
        self._rings: dict[RingUri, LiveRing] = {}

    def ring(self, uri: RingUri) -> LiveRing:
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._pools, self._rings = os.getpid(), {}, {}
            ring = self._rings.get(uri)
            if ring is None or ring.consumer.session.dead is not None or ring.consumer.closed:
                ring = self._rings[uri] = LiveRing(self._consumer(uri))
            return ring

    def _consumer(self, uri: RingUri) -> Consumer:
        pool = self._pools.get(uri.connection)
        if pool is None or pool.closed or self._is_dead(uri.connection):
            pool = self._pools[uri.connection] = uri.connection.open("spark")
        stream = int(uri.stream) if uri.stream.isdecimal() else uri.stream
        return pool.consumer(stream, start="oldest", max_outstanding_seq_gap=0)

    def _is_dead(self, connection: Connection) -> bool:
        """Whether its media driver has died: such a connection does not come back."""
        return any(
            ring.consumer.session.dead is not None
            for uri, ring in self._rings.items()
            if uri.connection == connection
        )


_CONNECTIONS: Final = _Connections()


def live_ring(uri: RingUri) -> LiveRing:
    """The ring of a stream; attached when this process asks for the first time.

    Raises:
        NoDriverError: There is no driver.
    """
    return _CONNECTIONS.ring(uri)

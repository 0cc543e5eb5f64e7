"""Counters that live in the media driver's shared memory, and how to read everybody's.

Example:
    >>> from tensor_pool.runtime import CounterType
    >>> from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
    >>> with EmbeddedMediaDriver.temporary() as driver, AeronClient.connect(driver.aeron_dir) as client:
    ...     counter = AeronCounters(client).create(CounterType.AGENT_WORK, "camera: work")
    ...     counter.add(3)
    ...     [(reading.label, reading.value) for reading in read_counters(driver.aeron_dir, type_id=4001)]
    [('camera: work', 3)]
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool import _native
from tensor_pool.errors import TensorPoolError
from tensor_pool.transport.media import resolve_aeron_dir

if TYPE_CHECKING:
    import os

    from tensor_pool.runtime import Counter, CounterType
    from tensor_pool.transport.protocol import Client, CounterCell

__all__ = ["AeronCounters", "CounterReading", "read_counters", "received_positions"]

_RECEIVED_UP_TO: Final = 3
"""The type of Aeron's counters that say how far a publication of another host was received (rcv-hwm)."""
_STREAM_KEY: Final = struct.Struct("<qii")
"""How the keys of such counters begin: registration, session, stream."""


class AeronCounters:
    """Makes the counters of agents Aeron counters, so that every process of the host can read them.

    Args:
        client: Whose counters they are; they end with it.
    """

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, kind: CounterType, label: str, *, key: bytes = b"") -> Counter:
        """See `tensor_pool.runtime.CounterFactory.create`.

        Raises:
            TransportError: Label or key are too long.
            NoMediaDriverError: The media driver died or does not answer.
        """
        return _AeronCounter(self._client.add_counter(kind.type_id, label, key))


class _AeronCounter:
    """A cell that goes on counting for its owner alone when the media driver is gone."""

    __slots__ = ("_cell", "_last")

    def __init__(self, cell: CounterCell) -> None:
        self._cell = cell
        self._last = 0

    @property
    def value(self) -> int:
        with contextlib.suppress(TensorPoolError):
            self._last = self._cell.get()
        return self._last

    def add(self, amount: int = 1, /) -> None:
        try:
            self._last = self._cell.add(amount)
        except TensorPoolError:
            self._last += amount

    def set(self, value: int, /) -> None:
        self._last = value
        with contextlib.suppress(TensorPoolError):
            self._cell.set(value)

    def close(self) -> None:
        with contextlib.suppress(TensorPoolError):
            self._cell.close()


class CounterReading(NamedTuple):
    """One counter of a media driver, whoever owns it."""

    counter_id: int
    """Unique while the counter exists."""
    type_id: int
    """What it counts, by Aeron's table (below 4,000) or ours."""
    value: int
    registration_id: int
    owner_id: int
    """The id of the client that made it."""
    key: bytes
    """Always 112 bytes; what was given, then zeros."""
    label: str


def read_counters(
    aeron_dir: str | os.PathLike[str] | None = None, *, type_id: int | None = None
) -> list[CounterReading]:
    """The counters of a media driver, without being its client. A dead one's last values can be read too.

    Args:
        aeron_dir: The media driver's directory; `default_aeron_dir()` when not given.
        type_id: Only counters of this type.

    Raises:
        NoMediaDriverError: The directory holds no media driver's files.
    """
    directory = resolve_aeron_dir(aeron_dir)
    readings = (CounterReading(*record) for record in _native.aeron_counters(directory))
    return [reading for reading in readings if type_id is None or reading.type_id == type_id]


def received_positions(aeron_dir: str | os.PathLike[str] | None, stream_id: int) -> dict[int, int]:
    """How far each publication of a stream was received that came over UDP and is heard now, by its session.

    Raises:
        NoMediaDriverError: The directory holds no media driver's files.
    """
    positions: dict[int, int] = {}
    for reading in read_counters(aeron_dir, type_id=_RECEIVED_UP_TO):
        _, session_id, of_stream = _STREAM_KEY.unpack_from(reading.key)
        if of_stream == stream_id:
            positions[session_id] = max(reading.value, positions.get(session_id, 0))
    return positions

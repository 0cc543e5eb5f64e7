"""Counters that live in the media driver's shared memory, and how to read everybody's.

Example:
    >>> from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
    >>> with EmbeddedMediaDriver.temporary() as driver, AeronClient.connect(driver.aeron_dir) as client:
    ...     frames = counter_factory(client)(4000, "frames of camera-1", b"")
    ...     _ = frames.add(3)
    ...     [(reading.label, reading.value) for reading in read_counters(driver.aeron_dir, type_id=4000)]
    [('frames of camera-1', 3)]
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tensor_pool import _native
from tensor_pool.transport.media import default_aeron_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.transport.protocol import Client, CounterCell

__all__ = ["CounterReading", "counter_factory", "read_counters"]


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


def counter_factory(client: Client) -> Callable[[int, str, bytes], CounterCell]:
    """Makes counters of a client from type id, label and key: what agents take without knowing of Aeron."""
    return client.add_counter


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
    directory = os.fspath(aeron_dir) if aeron_dir is not None else default_aeron_dir()
    readings = (CounterReading(*record) for record in _native.aeron_counters(directory))
    return [reading for reading in readings if type_id is None or reading.type_id == type_id]

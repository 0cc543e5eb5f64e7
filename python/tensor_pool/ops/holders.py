"""Which processes of this host are behind the client ids that hold leases.

A client id is a random number for one lease. But who holds it reports once a second, from a publication of
its connection to the media driver, which knows whose that is and what it calls itself.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool.host.client_name import read_client_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensor_pool.transport import CounterReading

__all__ = ["UNKNOWN", "Holder", "find_holders"]

_HEARTBEAT, _PUBLICATION_POSITION = 11, 12
"""Aeron's type ids of the counters whose labels name clients, and whose keys name publications."""
_PUBLICATION_KEY: Final = struct.Struct("<qii")
"""How such keys begin: registration, session, stream."""


class Holder(NamedTuple):
    """A process that holds a lease; nothing is known of programs of other makers."""

    pid: int | None = None
    name: str | None = None
    """What it calls itself: ``connect(name=...)``."""


UNKNOWN: Final = Holder()


def find_holders(
    reporters: Mapping[int, int], readings: Sequence[CounterReading], *, qos_stream_id: int
) -> dict[int, Holder]:
    """The processes behind client ids.

    Args:
        reporters: The sessions from which client ids reported.
        readings: The counters of the media driver.
        qos_stream_id: The Aeron stream of the reports.

    Example:
        >>> from tensor_pool.transport import CounterReading
        >>> label = "client-heartbeat: id=7 name=camera tensor-pool 4711 version=1.54.0 commit=x"
        >>> key = _PUBLICATION_KEY.pack(30, -5, 1200).ljust(112, bytes(1))
        >>> counters = [CounterReading(1, 11, 0, 7, 7, b"", label), CounterReading(2, 12, 0, 30, 7, key, "")]
        >>> find_holders({99: -5}, counters, qos_stream_id=1200)
        {99: Holder(pid=4711, name='camera')}
    """
    processes: dict[int, Holder] = {}
    owners: dict[int, int] = {}
    for reading in readings:
        if reading.type_id == _HEARTBEAT and (found := read_client_name(reading.label)) is not None:
            processes[reading.owner_id] = Holder(*found)
        elif reading.type_id == _PUBLICATION_POSITION:
            _, session_id, stream_id = _PUBLICATION_KEY.unpack_from(reading.key)
            if stream_id == qos_stream_id:
                owners[session_id] = reading.owner_id
    return {
        client_id: processes[owners[session_id]]
        for client_id, session_id in reporters.items()
        if owners.get(session_id) in processes
    }

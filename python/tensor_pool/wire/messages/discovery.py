"""Schema 910: what streams there are, and where."""

import enum

from tensor_pool.wire.bind import GroupEntry, Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.messages.control import PayloadPool
from tensor_pool.wire.schema import load_schema

__all__ = ["DiscoveryRequest", "DiscoveryResponse", "DiscoveryResult", "DiscoveryStatus", "DiscoveryTag"]

_SCHEMA = load_schema("discovery")


class DiscoveryStatus(enum.IntEnum):
    """How a query went."""

    OK = 1
    NOT_FOUND = 2
    ERROR = 3


class DiscoveryTag(GroupEntry, frozen=True):
    """A word that streams are found by."""

    tag: str


@message(_SCHEMA)
class DiscoveryRequest(Message, frozen=True):
    """A query; absent filters match everything. The answer goes to the channel and stream it names."""

    request_id: int
    client_id: int
    response_stream_id: int
    stream_id: int | None = None
    producer_id: int | None = None
    data_source_id: int | None = None
    tags: tuple[DiscoveryTag, ...] = ()
    response_channel: str = ""
    data_source_name: str = ""


class DiscoveryResult(GroupEntry, frozen=True):
    """One stream that matched."""

    stream_id: int
    producer_id: int
    epoch: int
    layout_version: int
    header_nslots: int
    header_slot_bytes: int
    max_dims: int
    data_source_id: int | None
    driver_control_stream_id: int
    payload_pools: tuple[PayloadPool, ...] = ()
    tags: tuple[DiscoveryTag, ...] = ()
    header_region_uri: str = ""
    data_source_name: str = ""
    driver_instance_id: str = ""
    driver_control_channel: str = ""


@message(_SCHEMA)
class DiscoveryResponse(Message, frozen=True):
    """The streams that match a query."""

    request_id: int
    status: DiscoveryStatus
    results: tuple[DiscoveryResult, ...] = ()
    error_message: str = ""

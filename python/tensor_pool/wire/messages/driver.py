"""Schema 901: attach, leases and shutdown.

Newer peers use other blocks for attach under the same schema id and version (decision B10). Those are
messages of their own here, `NewerShmAttachRequest` and `NewerShmAttachResponse`, because their fields differ;
a driver answers each request in the dialect it was asked in.
"""

import enum

from tensor_pool.wire.bind import Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.messages.control import PayloadPool, ResponseCode
from tensor_pool.wire.schema import load_schema

__all__ = [
    "HugepagesPolicy",
    "LeaseRevokeReason",
    "NewerShmAttachRequest",
    "NewerShmAttachResponse",
    "PublishMode",
    "Role",
    "ShmAttachRequest",
    "ShmAttachResponse",
    "ShmDetachRequest",
    "ShmDetachResponse",
    "ShmDriverShutdown",
    "ShmDriverShutdownRequest",
    "ShmLeaseKeepalive",
    "ShmLeaseRevoked",
    "ShutdownReason",
]

_SCHEMA = load_schema("driver")
_NEWER_SCHEMA = load_schema("driver_newer")


class Role(enum.IntEnum):
    """What a lease allows; exactly one of the two [DRV-4.1-2]."""

    PRODUCER = 1
    CONSUMER = 2


class PublishMode(enum.IntEnum):
    """Whether an attach may create the stream."""

    REQUIRE_EXISTING = 1
    EXISTING_OR_CREATE = 2


class HugepagesPolicy(enum.IntEnum):
    """What newer peers ask for where ours say yes or no."""

    UNSPECIFIED = 0
    STANDARD = 1
    HUGEPAGES = 2


class LeaseRevokeReason(enum.IntEnum):
    """Why a lease ended."""

    DETACHED = 1
    EXPIRED = 2
    REVOKED = 3


class ShutdownReason(enum.IntEnum):
    """Why a driver goes away."""

    NORMAL = 0
    ADMIN = 1
    ERROR = 2


@message(_SCHEMA)
class ShmAttachRequest(Message, frozen=True):
    """Asks for a lease on a stream; 0 in `expected_layout_version` or `max_dims` is "any" (decision D3).

    Example:
        >>> ShmAttachRequest(correlation_id=1, stream_id=10000, client_id=7, role=Role.CONSUMER).publish_mode
    """

    correlation_id: int
    stream_id: int
    client_id: int
    role: Role
    expected_layout_version: int = 0
    max_dims: int = 0
    publish_mode: PublishMode | None = None
    require_hugepages: bool | None = None


@message(_NEWER_SCHEMA, name="ShmAttachRequest")
class NewerShmAttachRequest(Message, frozen=True):
    """The request as newer peers send it."""

    correlation_id: int
    stream_id: int
    client_id: int
    role: Role
    expected_layout_version: int = 0
    publish_mode: PublishMode | None = None
    require_hugepages: HugepagesPolicy | None = HugepagesPolicy.UNSPECIFIED
    desired_node_id: int | None = None


@message(_SCHEMA)
class ShmAttachResponse(Message, frozen=True):
    """A lease and where the regions are; with another code than OK everything optional is absent."""

    correlation_id: int
    code: ResponseCode
    lease_id: int | None = None
    lease_expiry_timestamp_ns: int | None = None
    stream_id: int | None = None
    epoch: int | None = None
    layout_version: int | None = None
    header_nslots: int | None = None
    header_slot_bytes: int | None = None
    max_dims: int | None = None
    payload_pools: tuple[PayloadPool, ...] = ()
    header_region_uri: str = ""
    error_message: str = ""


@message(_NEWER_SCHEMA, name="ShmAttachResponse")
class NewerShmAttachResponse(Message, frozen=True):
    """The response as newer peers expect it: a node id instead of `max_dims`."""

    correlation_id: int
    code: ResponseCode
    lease_id: int | None = None
    lease_expiry_timestamp_ns: int | None = None
    stream_id: int | None = None
    epoch: int | None = None
    layout_version: int | None = None
    header_nslots: int | None = None
    header_slot_bytes: int | None = None
    node_id: int | None = None
    payload_pools: tuple[PayloadPool, ...] = ()
    header_region_uri: str = ""
    error_message: str = ""


@message(_SCHEMA)
class ShmDetachRequest(Message, frozen=True):
    """Gives a lease back."""

    correlation_id: int
    lease_id: int
    stream_id: int
    client_id: int
    role: Role


@message(_SCHEMA)
class ShmDetachResponse(Message, frozen=True):
    """The answer to a detach."""

    correlation_id: int
    code: ResponseCode
    error_message: str = ""


@message(_SCHEMA)
class ShmLeaseKeepalive(Message, frozen=True):
    """Extends a lease."""

    lease_id: int
    stream_id: int
    client_id: int
    role: Role
    client_timestamp_ns: int


@message(_SCHEMA)
class ShmDriverShutdown(Message, frozen=True):
    """The driver goes away; every lease ends."""

    timestamp_ns: int
    reason: ShutdownReason
    error_message: str = ""


@message(_SCHEMA)
class ShmLeaseRevoked(Message, frozen=True):
    """A lease ended, and why."""

    timestamp_ns: int
    lease_id: int
    stream_id: int
    client_id: int
    role: Role
    reason: LeaseRevokeReason
    error_message: str = ""


@message(_SCHEMA)
class ShmDriverShutdownRequest(Message, frozen=True):
    """Asks the driver to go away; needs the token that was configured (decision D10)."""

    correlation_id: int
    reason: ShutdownReason
    token: str = ""
    error_message: str = ""

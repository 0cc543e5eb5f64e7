"""Schema 906: names, geometry and a view into the driver (decision D17).

These messages are our own; foreign peers on the driver's control stream ignore them. Their byte tables are
in ``docs/reference/schema-906.md``.
"""

import enum

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.wire.bind import GroupEntry, Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.messages.control import ResponseCode
from tensor_pool.wire.messages.driver import Role
from tensor_pool.wire.schema import load_schema

__all__ = [
    "DriverAnnounce",
    "DriverState",
    "DriverStatus",
    "GetDriverStatus",
    "LeaseEntry",
    "LeaseRevokeResult",
    "LeasesListed",
    "ListLeases",
    "ListStreams",
    "ResolveStream",
    "RevokeLease",
    "StreamEntry",
    "StreamPool",
    "StreamResolved",
    "StreamsListed",
]

_SCHEMA = load_schema("admin")

_NO_DIMS = (0, 0, 0, 0, 0, 0, 0, 0)


class DriverState(enum.IntEnum):
    """What a driver is doing."""

    STARTING = 1
    RUNNING = 2
    DRAINING = 3


class StreamPool(GroupEntry, frozen=True):
    """The slot size of a pool that a producer asks for."""

    stride_bytes: int


@message(_SCHEMA)
class ResolveStream(Message, frozen=True):
    """Asks for the id of a named stream and, from a producer, for the geometry of its regions.

    Example:
        >>> ResolveStream(
        ...     correlation_id=1, client_id=7, role=Role.PRODUCER, name="camera-1", dtype=Dtype.UINT16,
        ...     major_order=MajorOrder.ROW, ndims=2, dims=(480, 640, 0, 0, 0, 0, 0, 0)).nslots
    """

    correlation_id: int
    client_id: int
    stream_id: int | None = None
    max_frame_bytes: int | None = None
    nslots: int | None = None
    rate_milli_hz: int | None = None
    consumer_latency_ms: int | None = None
    dims: tuple[int, ...] = _NO_DIMS
    dtype: Dtype = Dtype.UNKNOWN
    major_order: MajorOrder = MajorOrder.UNKNOWN
    role: Role = Role.CONSUMER
    ndims: int = 0
    pools: tuple[StreamPool, ...] = ()
    name: str = ""


@message(_SCHEMA)
class StreamResolved(Message, frozen=True):
    """The id that a name has; `created` when this request reserved it."""

    correlation_id: int
    client_id: int
    code: ResponseCode
    epoch: int | None = None
    stream_id: int | None = None
    created: bool = False
    producer_attached: bool = False
    name: str = ""
    error_message: str = ""


@message(_SCHEMA)
class ListStreams(Message, frozen=True):
    """Asks for streams, in order of their ids, from the `offset`-th on."""

    correlation_id: int
    client_id: int
    offset: int = 0
    max_results: int = 1000


class StreamEntry(GroupEntry, frozen=True):
    """One stream of the driver; what it doesn't know is None."""

    epoch: int | None
    current_seq: int | None
    activity_timestamp_ns: int | None
    max_frame_bytes: int | None
    region_bytes: int
    stream_id: int
    producer_id: int | None
    consumer_count: int
    nslots: int | None
    rate_milli_hz: int | None
    dims: tuple[int, ...]
    dtype: Dtype
    major_order: MajorOrder
    ndims: int
    name: str = ""


@message(_SCHEMA)
class StreamsListed(Message, frozen=True):
    """A page of streams; `total_count` is how many there are in all."""

    correlation_id: int
    client_id: int
    code: ResponseCode
    offset: int = 0
    total_count: int = 0
    streams: tuple[StreamEntry, ...] = ()
    error_message: str = ""


@message(_SCHEMA)
class ListLeases(Message, frozen=True):
    """Asks for leases, in order of their ids, of one stream or of all."""

    correlation_id: int
    client_id: int
    stream_id: int | None = None
    offset: int = 0
    max_results: int = 1000


class LeaseEntry(GroupEntry, frozen=True):
    """One lease; times are those of the driver's monotonic clock."""

    lease_id: int
    granted_timestamp_ns: int
    keepalive_timestamp_ns: int | None
    expiry_timestamp_ns: int | None
    epoch: int | None
    stream_id: int
    client_id: int
    role: Role


@message(_SCHEMA)
class LeasesListed(Message, frozen=True):
    """A page of leases; `total_count` is how many match in all."""

    correlation_id: int
    client_id: int
    code: ResponseCode
    offset: int = 0
    total_count: int = 0
    leases: tuple[LeaseEntry, ...] = ()
    error_message: str = ""


@message(_SCHEMA)
class RevokeLease(Message, frozen=True):
    """Ends a lease against its holder's will; stream and lease must belong together."""

    correlation_id: int
    client_id: int
    stream_id: int
    lease_id: int
    token: str = ""
    reason: str = ""


@message(_SCHEMA)
class LeaseRevokeResult(Message, frozen=True):
    """The answer to a RevokeLease; the holder gets a ShmLeaseRevoked."""

    correlation_id: int
    client_id: int
    code: ResponseCode
    lease_id: int
    error_message: str = ""


@message(_SCHEMA)
class GetDriverStatus(Message, frozen=True):
    """Asks for a DriverStatus."""

    correlation_id: int
    client_id: int


@message(_SCHEMA)
class DriverStatus(Message, frozen=True):
    """What a driver is, does and allows."""

    correlation_id: int
    client_id: int
    code: ResponseCode
    timestamp_ns: int
    start_timestamp_ns: int
    pid: int
    region_bytes: int
    free_bytes: int | None
    layout_version: int
    keepalive_interval_ms: int
    expiry_grace_intervals: int
    announce_interval_ms: int
    stream_count: int
    producer_count: int
    consumer_count: int
    max_results: int
    state: DriverState
    instance_id: str = ""
    software_version: str = ""
    error_message: str = ""


@message(_SCHEMA)
class DriverAnnounce(Message, frozen=True):
    """Who a driver is and where it is asked: precedes its announces where a registry listens to many."""

    timestamp_ns: int
    control_stream_id: int
    announce_interval_ms: int
    instance_id: str = ""
    control_channel: str = ""
    host: str = ""
